"""Sets on disk: written, continued, read back."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from cosmos_reason.errors import DataError, UserError
from cosmos_reason.simulate.dataset import TEST_SEED, read_set, read_timeline, sample_to_json, training_set, write_set
from cosmos_reason.simulate.registry import make_clip, questions


@pytest.fixture(scope="module")
def small_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    calls: list[tuple[int, int]] = []
    folder = write_set(
        tmp_path_factory.mktemp("set"),
        ("levitate", "arrow"),
        2,
        TEST_SEED,
        1,
        lambda done, all_: calls.append((done, all_)),
    )
    assert calls == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    return folder


def test_videos_decode_to_the_frames_that_were_drawn(small_set: Path) -> None:
    name = f"levitate_{TEST_SEED}"
    drawn = make_clip("levitate", TEST_SEED).frames
    with av.open(str(small_set / "videos" / f"{name}.mp4")) as file:
        stream = file.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert stream.average_rate == Fraction(8)
        pictures = list(file.decode(stream))
    assert [p.time for p in pictures] == drawn.times_s_T.tolist()
    decoded = np.stack([p.to_ndarray(format="rgb24") for p in pictures])
    error = np.abs(decoded.astype(int) - drawn.pixels_THWC).mean()
    assert error < 4  # of 255; compression and chroma subsampling


def test_samples_and_timelines_read_back_as_they_were(small_set: Path) -> None:
    samples = read_set(small_set)
    for family in ("levitate", "arrow"):
        clip = make_clip(family, TEST_SEED + 1)
        path = small_set / "videos" / f"{clip.timeline.clip_id}.mp4"
        assert [s for s in samples if s.video.path == str(path)] == questions(clip.timeline, str(path))
        back = read_timeline(small_set / "timelines" / f"{clip.timeline.clip_id}.json")
        assert (back.facts, back.events, back.caption) == (
            clip.timeline.facts,
            clip.timeline.events,
            clip.timeline.caption,
        )
        for a, b in zip(back.objects, clip.timeline.objects, strict=True):
            assert np.allclose(a.position_m_T3, b.position_m_T3, atol=1e-4)
            assert np.allclose(a.box_T4, b.box_T4, atol=0.01)
            assert a.visible_T.tolist() == b.visible_T.tolist()


def test_a_set_is_continued_and_what_is_there_is_kept(small_set: Path) -> None:
    kept = small_set / "videos" / f"arrow_{TEST_SEED}.mp4"
    stamp = kept.stat().st_mtime_ns
    lost = small_set / "timelines" / f"levitate_{TEST_SEED}.json"
    text = lost.read_text()
    lost.unlink()
    before = (small_set / "samples.jsonl").read_text()
    calls: list[tuple[int, int]] = []
    write_set(small_set, ("levitate", "arrow"), 2, TEST_SEED, 1, lambda done, all_: calls.append((done, all_)))
    assert calls == [(3, 4), (4, 4)]
    assert lost.read_text() == text
    assert (small_set / "samples.jsonl").read_text() == before
    assert kept.stat().st_mtime_ns == stamp
    assert not list(small_set.rglob("*.part"))


def test_samples_are_plain_json(small_set: Path) -> None:
    for sample in read_set(small_set):
        row = sample_to_json(sample)
        assert row["video"]["path"].endswith(".mp4")
        assert isinstance(row["answer"], (str, float, tuple))


def test_faults_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no samples\.jsonl"):
        read_set(tmp_path)
    (tmp_path / "samples.jsonl").write_text("{}\nnonsense\n"[3:])
    with pytest.raises(DataError, match="line 1 is no JSON"):
        read_set(tmp_path)
    with pytest.raises(DataError, match="no such timeline"):
        read_timeline(tmp_path / "a.json")
    with pytest.raises(UserError, match="at least 1 clip"):
        write_set(tmp_path, ("arrow",), 0, 0, 1)


@pytest.mark.slow
def test_clips_kept_for_testing_are_not_learned_from(small_set: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"levitate_{TEST_SEED}/\w+ is of a test seed"):
        training_set(small_set)
    text = (small_set / "samples.jsonl").read_text().replace(f"_{TEST_SEED}", "_7").replace(f"_{TEST_SEED + 1}", "_8")
    (tmp_path / "samples.jsonl").write_text(text)
    assert training_set(tmp_path) == read_set(tmp_path)


def test_workers_write_what_one_process_writes(tmp_path: Path) -> None:
    one = write_set(tmp_path / "one", ("levitate",), 3, 0, 1)
    two = write_set(tmp_path / "two", ("levitate",), 3, 0, 2)
    for file in sorted(p.relative_to(one) for p in one.rglob("*") if p.is_file()):
        assert (one / file).read_bytes() == (two / file).read_bytes(), file
