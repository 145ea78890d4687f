"""The frame store: whole or absent, keyed by clips and sizes, faults counted."""

import av
import numpy as np
import pytest

from cosmos_reason.errors import UserError
from cosmos_reason.training.frames import FrameStore, clip_key, resize_frames
from cosmos_reason.types import Sample, VideoRef


def write(path, level, frames=4):
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=4)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for _ in range(frames):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((32, 32, 3), level, np.uint8))))
        container.mux(stream.encode(None))
    return Sample(f"{path}/q", "binary", "Is it?", "yes", VideoRef(str(path)))


def test_clips_of_one_name_in_two_folders_stay_apart(tmp_path):
    samples = [write(tmp_path / "a" / "1.mp4", 40), write(tmp_path / "b" / "1.mp4", 200)]
    store = FrameStore.build(samples, tmp_path / "cache", count=2, size=16, workers=1)
    assert store.pixels_NTHWC.shape == (2, 2, 16, 16, 3)
    dark, light = (store.frames(s.video).pixels_THWC.mean() for s in samples)
    assert abs(dark - 40) < 4 and abs(light - 200) < 4
    assert store.frames(samples[0].video).times_s_T.tolist() == [0.0, 0.75]


def test_a_finished_store_is_opened_again(tmp_path, monkeypatch):
    samples = [write(tmp_path / "1.mp4", 40)]
    FrameStore.build(samples, tmp_path / "cache", 2, 16, workers=1)
    monkeypatch.setattr("cosmos_reason.training.frames._decode_one", None)  # decoding again would fail
    assert len(FrameStore.build(samples, tmp_path / "cache", 2, 16, workers=1).rows) == 1


def test_a_changed_clip_makes_a_new_store(tmp_path):
    FrameStore.build([write(tmp_path / "1.mp4", 40)], tmp_path / "cache", 2, 16, workers=1)
    sample = write(tmp_path / "1.mp4", 200, frames=6)
    store = FrameStore.build([sample], tmp_path / "cache", 2, 16, workers=1)
    assert store.frames(sample.video).pixels_THWC.mean() > 190


def test_faulty_clips_are_counted_and_stop_the_run_when_many(tmp_path):
    samples = [write(tmp_path / f"{i}.mp4", 40) for i in range(60)]
    (tmp_path / "bad.mp4").write_text("not a video")
    bad = Sample("bad", "binary", "Is it?", "yes", VideoRef(str(tmp_path / "bad.mp4")))
    store = FrameStore.build([*samples, bad], tmp_path / "cache", 2, 16, workers=1)
    assert list(store.failed) == [clip_key(bad.video)] and bad.video not in store
    with pytest.raises(UserError, match=r"1 of 4 clips cannot be decoded.*bad\.mp4"):
        FrameStore.build([*samples[:3], bad], tmp_path / "cache", 2, 16, workers=1)


def test_an_empty_set_is_refused(tmp_path):
    with pytest.raises(UserError, match="no sample"):
        FrameStore.build([], tmp_path, 2, 16)


def test_resizing_averages_instead_of_skipping():
    stripes = np.zeros((1, 64, 64, 3), np.uint8)
    stripes[:, :, ::2] = 200
    assert abs(int(resize_frames(stripes, 16).mean()) - 100) <= 2
    assert resize_frames(stripes, 16).std() < 20  # point sampling would give 0 or 200 throughout
