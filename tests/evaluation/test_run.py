"""Running over samples: records, resume by id, blind frames, faults as statuses."""

import json

import av
import numpy as np
import pytest

from cosmos_reason.errors import UserError
from cosmos_reason.evaluation.run import Record, evaluate, read_records, scored, seen, statuses
from cosmos_reason.types import Completion, Frames, Sample, VideoRef
from cosmos_reason.video import FrameSpec


class Echo:
    """Answers yes to everything and counts what it was asked."""

    name = "echo"
    spec = FrameSpec(count=2)

    def __init__(self):
        self.asked = 0

    def stream(self, prompt, max_tokens, temperature, seed):
        yield "yes"

    def complete(self, prompts, max_tokens, temperature, seed):
        self.asked += len(prompts)
        text = "<think>It is so.</think><answer>Yes</answer>"
        return [Completion(text, np.array([1]), np.zeros(1, np.float32), "stop") for _ in prompts]


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("clip") / "a.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=8)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for i in range(8):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((64, 64, 3), 20 * i, np.uint8))))
        container.mux(stream.encode(None))
    return path


def samples(clip, missing):
    ok = VideoRef(str(clip))
    return [
        Sample("s/1", "binary", "Does it move?", "yes", ok, family="f"),
        Sample("s/2", "binary", "Does it move?", "no", VideoRef(str(missing)), family="f"),
        Sample("s/3", "binary", "Is it red?", "no", ok, family="f"),
    ]


def test_an_undecodable_clip_keeps_its_place(clip, tmp_path):
    rows = samples(clip, tmp_path / "missing.mp4")
    records = {r.id: r for r in evaluate(Echo(), rows, tmp_path / "r.jsonl")}
    assert records["s/2"].finish_reason == "undecodable"
    assert "missing.mp4" in records["s/2"].error
    assert [s.value for s in scored(rows, records, lambda s: s.family)] == [1.0, 0.0, 0.0]
    assert statuses(rows, records) == {"ok": 2, "undecodable": 1}


def test_resume_asks_only_what_is_missing(clip, tmp_path):
    rows, path = samples(clip, tmp_path / "missing.mp4"), tmp_path / "r.jsonl"
    evaluate(Echo(), rows, path)
    lines = path.read_text().splitlines()
    path.write_text(lines[0] + "\n" + lines[2] + "\n" + lines[1][:20])  # killed while writing the last row
    backend = Echo()
    again = evaluate(backend, rows, path)
    assert backend.asked == 0  # only the undecodable one was missing
    assert [r.id for r in again] == ["s/1", "s/2", "s/3"]
    assert len(path.read_text().splitlines()) == 3


def test_doubled_rows_are_refused(tmp_path):
    row = json.dumps(Record("s/1", "", "stop", (), "").__dict__) + "\n"
    (tmp_path / "r.jsonl").write_text(row * 2)
    with pytest.raises(UserError, match="s/1"):
        read_records(tmp_path / "r.jsonl")


def test_doubled_ids_are_refused(clip, tmp_path):
    rows = samples(clip, clip)[:1] * 2
    with pytest.raises(UserError, match="more than once"):
        evaluate(Echo(), rows, tmp_path / "r.jsonl")


def test_a_missing_record_stays_in_the_denominator(clip):
    rows = samples(clip, clip)
    assert len(scored(rows, {}, lambda s: s.family)) == 3
    assert statuses(rows, {}) == {"missing": 3}


def test_blind_hides_the_pictures_and_nothing_else():
    frames = Frames(np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3), np.array([0.0, 0.5]), 2.0, 2, "decord")
    blind = seen(frames, "blind")
    assert np.unique(blind.pixels_THWC).tolist() == [128]
    assert blind.pixels_THWC.shape == frames.pixels_THWC.shape
    assert (blind.times_s_T == frames.times_s_T).all()
