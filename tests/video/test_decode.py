"""The whole way from a file to Frames, in the supervised process: real videos, awkward ones, broken ones, long ones."""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path

import av
import numpy as np
import pytest

from cosmos_reason.errors import DataError, UserError
from cosmos_reason.types import VideoRef
from cosmos_reason.video import container, decode, decode_in_process, supervise
from cosmos_reason.video.decode import FrameSpec
from tests.video import make

ENDINGS = ("3g2", "3gp", "asf", "avi", "f4v", "flv", "gif", "m1v", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg")
ENDINGS += ("ogg", "ogv", "rm", "swf", "vob", "webm", "wmv")
HD = (1280, 720)
FULL_HD = (1920, 1080)


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_container_of_the_sample_decodes(ending, sample_videos):
    frames = decode(VideoRef(str(sample_videos / f"demo.{ending}")), FrameSpec(count=8, max_pixels=10_000))
    assert frames.source_frames == (120 if ending == "gif" else 1441)
    assert len(frames.pixels_THWC) == frames.asked == 8
    assert frames.pixels_THWC.dtype == np.uint8
    assert frames.pixels_THWC.shape[1] * frames.pixels_THWC.shape[2] <= 10_000
    assert (np.diff(frames.times_s_T) > 0).all()
    assert frames.times_s_T[-1] - frames.times_s_T[0] == pytest.approx(4.96 if ending == "gif" else 60.0, abs=0.1)
    assert frames.source_fps == pytest.approx(24, abs=0.05)
    assert frames.pixels_THWC[4].std() > 10  # a picture, not a blank
    assert re.fullmatch(r"(decord|pyav) \d+(\.\d+)+", frames.backend)


def test_containers_show_the_same_film(sample_videos):
    """One film, re-coded: what mp4 shows at a time, the others show at that time too."""
    looks = {}
    for ending in ("mp4", "webm", "ogv", "vob", "swf", "wmv", "rm", "avi"):
        path = str(sample_videos / f"demo.{ending}")
        first_s = decode(VideoRef(path), FrameSpec(count=2)).times_s_T[0]
        looks[ending] = decode(VideoRef(path), FrameSpec(times_s=(first_s + 20.0, first_s + 45.0))).pixels_THWC
    for ending, pixels_THWC in looks.items():
        assert np.abs(pixels_THWC.astype(int) - looks["mp4"]).mean() < 12, ending


@pytest.mark.parametrize(
    ("name", "shape", "count", "times_s"),
    [
        ("bigbuckbunny.mp4", (720, 1280), 132, [1.0, 1.48, 2.0]),
        ("bikes.mp4", (272, 640), 250, [1.0, 1.48, 2.0]),
        # 29.97 Hz: stamps are multiples of 1001/30000 s, and 2.002 s is past the end
        ("carphone_distorted.mp4", (144, 176), 120, [1.001, 1.5015, 1.9686]),
        ("carphone_pristine.mp4", (144, 176), 120, [1.001, 1.5015, 1.9686]),
    ],
)
def test_science_videos_decode(name, shape, count, times_s, science_videos):
    frames = decode(VideoRef(str(science_videos / name), 1.0, 2.0), FrameSpec(fps=2.0))
    assert frames.pixels_THWC.shape == (3, *shape, 3)
    assert frames.source_frames == count
    np.testing.assert_allclose(frames.times_s_T, times_s, atol=0.5 / 25)
    assert frames.sampled_fps == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize(
    ("frames", "fps", "wish", "expected"),
    [
        (31, 25, {"count": 32}, list(range(31))),
        (10, 10, {"count": 20}, list(range(10))),
        (3, 10, {"count": 4}, [0, 1, 2]),
        (1, 10, {"count": 8}, [0]),
        (1, 10, {"fps": 1.0}, [0]),
        (2, 10, {"fps": 30.0}, [0, 1]),
        (29, 30, {"fps": 1.0}, [0]),
        (5, 10, {"times_s": (0.42, 0.0, 0.42)}, [4, 0, 4]),
    ],
)
def test_short_clips_give_what_they_have(frames, fps, wish, expected, tmp_path):
    seen = decode(VideoRef(make.write(tmp_path / "a.mp4", frames, fps)), FrameSpec(**wish))
    assert make.numbers(seen.pixels_THWC) == expected
    np.testing.assert_allclose(seen.times_s_T, np.array(expected) / fps, atol=1e-6)
    assert seen.source_frames == frames


def test_matroska_obeys_the_count(tmp_path):
    seen = decode(VideoRef(make.write(tmp_path / "a.mkv", 300, 30)), FrameSpec(count=8))
    assert len(seen.pixels_THWC) == 8
    assert seen.times_s_T[-1] == pytest.approx(299 / 30, abs=1e-3)  # the last frame's label is its own stamp


def test_rate_after_the_cap_is_the_real_one(tmp_path):
    path = make.write(tmp_path / "a.mp4", 600, 10, size=(64, 48), options={"preset": "ultrafast"})
    seen = decode(VideoRef(path), FrameSpec(fps=2.0, max_frames=32))
    assert (len(seen.pixels_THWC), seen.asked) == (32, 32)
    assert seen.sampled_fps == pytest.approx(31 / 59.9)


def test_variable_rate_answers_by_stamp(tmp_path):
    stamps_ms = [*range(0, 2000, 200), *range(2000, 4000, 40)]
    path = make.write(tmp_path / "a.mp4", 60, 30, stamps_ms=stamps_ms)
    seen = decode(VideoRef(path), FrameSpec(times_s=(1.0, 3.0)))
    assert make.numbers(seen.pixels_THWC) == [5, 35]
    np.testing.assert_allclose(seen.times_s_T, [1.0, 3.0], atol=1e-3)


@pytest.mark.parametrize("name", ["late.mp4", "late.mkv", "late.ts"])
def test_times_are_on_the_containers_clock(name, tmp_path):
    path = make.write(tmp_path / name, 20, 10, stamps_ms=[5000 + 100 * i for i in range(20)])
    stamps_s, _ = make.truth(path)
    seen = decode(VideoRef(path, float(stamps_s[5]), float(stamps_s[8])), FrameSpec(count=4))
    assert make.numbers(seen.pixels_THWC) == [5, 6, 7, 8]
    np.testing.assert_allclose(seen.times_s_T, stamps_s[5:9], atol=1e-6)
    assert stamps_s[0] >= 5.0


@pytest.mark.parametrize("rate", [1.0, 2.0, 2.5, 4.0, 8.0])
def test_the_rate_is_a_float_and_stamps_follow_it(rate, tmp_path):
    """Whoever makes positions of these stamps gets steps as 4 : 2 : 1 at 1, 2 and 4 Hz, and no two that are equal."""
    seen = decode(VideoRef(make.write(tmp_path / "a.mp4", 160, 40)), FrameSpec(fps=rate))
    assert seen.sampled_fps == pytest.approx(rate)
    np.testing.assert_allclose(np.diff(seen.times_s_T), 1 / rate, atol=1e-6)


# A recorder that writes to a pipe can't go back to note the duration; the mp4 is in fragments.
PIPED = {
    "a.webm": ("libvpx", {}),
    "a.mkv": ("libx264", {}),
    "a.mp4": ("libx264", {"movflags": "frag_keyframe+empty_moov"}),
}


@pytest.mark.parametrize("scan_bytes", [container.SCAN_BYTES, 0])
@pytest.mark.parametrize("name", PIPED)
def test_a_file_without_a_duration_has_right_times(name, scan_bytes, tmp_path, monkeypatch):
    codec, muxer = PIPED[name]
    source = make.write(tmp_path / f"source_{name}", 40, 10, codec, options={"g": "10", "bf": "0"})
    path = make.through_pipe(source, tmp_path / name, muxer)
    monkeypatch.setattr(container, "SCAN_BYTES", scan_bytes)
    with av.open(path) as opened:
        assert name == "a.mp4" or not opened.duration
    seen = decode_in_process(VideoRef(path, 1.0, 3.5), FrameSpec(fps=2.0))
    assert make.numbers(seen.pixels_THWC) == [10, 15, 20, 25, 30, 35]
    np.testing.assert_allclose(seen.times_s_T, [1.0, 1.5, 2.0, 2.5, 3.0, 3.5], atol=1e-3)
    assert seen.source_fps == pytest.approx(10.0)


@pytest.mark.parametrize("frames", [1, 30])
def test_a_file_without_a_rate_has_right_times(frames, tmp_path):
    source = make.write(tmp_path / "source.webm", frames, 10, "libvpx")
    path = make.through_pipe(source, tmp_path / "a.webm")
    assert b"\x23\xe3\x83" not in Path(path).read_bytes()  # the element of the rate, DefaultDuration
    seen = decode(VideoRef(path), FrameSpec(count=3))
    wanted = [0] if frames == 1 else [0, 14, 29]
    assert make.numbers(seen.pixels_THWC) == wanted
    np.testing.assert_allclose(seen.times_s_T, np.array(wanted) / 10, atol=1e-3)
    assert seen.source_fps == pytest.approx(0.0 if frames == 1 else 10.0)
    assert len(decode(VideoRef(path), FrameSpec(fps=1.0)).pixels_THWC) == (1 if frames == 1 else 3)


BLANKED = {
    "a.mp4": ("libx264", {"muxer": {"movflags": "faststart"}}),
    "a.mkv": ("libx264", {}),
    "a.webm": ("libvpx-vp9", {}),
    "a.avi": ("mpeg4", {}),
    "a.ts": ("libx264", {}),
    "a.flv": ("libx264", {}),
}


@pytest.mark.parametrize("scan_bytes", [container.SCAN_BYTES, 0])
@pytest.mark.parametrize("name", BLANKED)
def test_a_piece_missing_from_the_middle_is_named_in_small_and_huge_files(name, scan_bytes, tmp_path, monkeypatch):
    codec, how = BLANKED[name]
    path = make.blank_middle(make.write(tmp_path / name, 100, 10, codec, options={"g": "10"}, **how))
    monkeypatch.setattr(container, "SCAN_BYTES", scan_bytes)
    with pytest.raises(DataError, match="damaged"):
        decode_in_process(VideoRef(path), FrameSpec(count=8))


@pytest.mark.parametrize("scan_bytes", [container.SCAN_BYTES, 0])
def test_a_torn_packet_is_named_in_small_and_huge_files(scan_bytes, tmp_path, monkeypatch):
    path = make.overwrite_middle(make.write(tmp_path / "a.ts", 100, 10, options={"g": "10"}))
    monkeypatch.setattr(container, "SCAN_BYTES", scan_bytes)
    with pytest.raises(DataError, match=r"inside a packet|a packet is torn"):
        decode_in_process(VideoRef(path), FrameSpec(count=5))


PAUSE_MS = [*range(0, 2000, 100), *range(32_000, 34_000, 100)]
SLIDES_MS = [20_000 * i for i in range(40)]


@pytest.mark.parametrize("stamps_ms", [PAUSE_MS, SLIDES_MS], ids=["pause", "slides"])
@pytest.mark.parametrize("name", ["a.mkv", "a.mp4"])
def test_a_huge_file_of_uneven_rate_is_no_damaged_one(name, stamps_ms, tmp_path, monkeypatch):
    path = make.write(tmp_path / name, 40, 10, stamps_ms=stamps_ms, options={"bf": "0"})
    monkeypatch.setattr(container, "SCAN_BYTES", 0)
    seen = decode_in_process(VideoRef(path), FrameSpec(count=5))
    assert len(seen.pixels_THWC) == 5
    np.testing.assert_allclose(seen.times_s_T, np.array(stamps_ms)[make.numbers(seen.pixels_THWC)] / 1000, atol=1e-3)


@pytest.mark.parametrize("name", ["a.avi", "a.asf"])
def test_packets_that_are_stamped_in_another_order_than_shown(name, tmp_path):
    """H.264 with B-frames in containers older than B-frames: packet stamps are in decoding order."""
    path = make.write(tmp_path / name, 60, 10, options={"g": "20", "bf": "2"})
    seen = decode(VideoRef(path), FrameSpec(count=7))
    assert make.numbers(seen.pixels_THWC) == np.round((seen.times_s_T - seen.times_s_T[0]) * 10).tolist()
    assert seen.times_s_T[-1] - seen.times_s_T[0] == pytest.approx(5.9)
    assert seen.source_frames == 60


@pytest.mark.parametrize("name", ["a.ts", "a.asf"])
def test_containers_without_an_index_give_the_right_frames(name, tmp_path):
    """decord alone answers other frames than it was asked for in these, without a word."""
    path = make.write(tmp_path / name, 200, 10, "mpeg2video", options={"g": "20", "bf": "0"})
    seen = decode(VideoRef(path), FrameSpec(count=5))
    stamps_s, _ = make.truth(path)
    assert make.numbers(seen.pixels_THWC) == np.searchsorted(stamps_s, seen.times_s_T - 1e-3).tolist()
    assert seen.backend.startswith("pyav")


def test_of_several_streams_one_is_shown(tmp_path):
    seen = decode(VideoRef(make.write(tmp_path / "a.mkv", 10, 10, streams=2)), FrameSpec(count=10))
    assert make.numbers(seen.pixels_THWC) == list(range(10))


def test_longer_sound_does_not_lengthen_the_pictures(tmp_path):
    seen = decode(VideoRef(make.write(tmp_path / "a.mp4", 10, 10, audio_s=3.0)), FrameSpec(count=2))
    assert seen.times_s_T.tolist() == pytest.approx([0.0, 0.9])


@pytest.mark.parametrize("seed", range(3))
def test_damage_in_the_middle_is_named_and_the_next_file_decodes(seed, tmp_path):
    bad = make.overwrite_middle(make.write(tmp_path / "bad.mp4", 60, 30), seed=seed)
    with pytest.raises(DataError, match=re.escape(f"{bad}: damaged")):
        decode(VideoRef(bad), FrameSpec(count=8))
    good = make.write(tmp_path / "good.mp4", 10, 10)
    assert len(decode(VideoRef(good), FrameSpec(count=8)).pixels_THWC) == 8


def test_faults_cross_the_process_as_what_they_are(tmp_path):
    path = make.write(tmp_path / "a.mp4", 10, 10)
    with pytest.raises(DataError, match=r"start_s = 1\.5 is past the end"):
        decode(VideoRef(path, 1.5), FrameSpec(count=1))
    with pytest.raises(UserError, match=r"wanted a frame at 9\.000 s, the nearest is at 0\.900 s"):
        decode(VideoRef(path), FrameSpec(times_s=(9.0,)))
    with pytest.raises(UserError, match="end_s"):
        decode(VideoRef(path, 0.5, 0.1), FrameSpec(count=1))
    missing = str(tmp_path / "missing.mp4")
    with pytest.raises(DataError) as caught:
        decode(VideoRef(missing), FrameSpec(count=1))
    assert (caught.value.path, str(caught.value)) == (missing, f"{missing}: no such file; check the path")


def test_both_ways_give_the_same_frames(tmp_path):
    ref, spec = VideoRef(make.write(tmp_path / "a.mp4", 30, 10)), FrameSpec(fps=4.0, max_pixels=3000)
    there, here, without = decode(ref, spec), decode_in_process(ref, spec), decode_in_process(ref, spec, only_pyav=True)
    np.testing.assert_array_equal(there.pixels_THWC, here.pixels_THWC)
    np.testing.assert_array_equal(there.times_s_T, here.times_s_T)
    assert there.backend == here.backend
    assert (here.backend.split()[0], without.backend.split()[0]) == ("decord", "pyav")
    np.testing.assert_allclose(here.times_s_T, without.times_s_T, atol=1e-9)


def test_a_decoder_that_dies_is_replaced_by_the_other(tmp_path, monkeypatch):
    """Where decord takes its process down, PyAV gets the file; where that dies too, the file is named."""
    path = make.write(tmp_path / "a.mp4", 10, 10)
    asked: list[tuple] = []
    real = supervise.call

    def dies(job, arguments, *rest):
        asked.append(arguments)
        if len(asked) == 1 or always:
            raise supervise.Crashed
        return real(job, arguments, *rest)

    monkeypatch.setattr(supervise, "call", dies)
    always = False
    assert decode(VideoRef(path), FrameSpec(count=2)).backend.startswith("pyav")
    always = True
    with pytest.raises(DataError, match="the decoder process died on it"):
        decode(VideoRef(path), FrameSpec(count=2))


def peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) * 1024


def worker_peak(path: str, spec: FrameSpec) -> tuple[int, int]:
    """Peak memory of a fresh worker that decodes this, and how many frames it gave.

    The least of three: on a busy machine a decoder's threads run ahead of their reader, by some frames.
    """
    peaks = []
    for _ in range(3):
        supervise.close_workers()
        frames = decode(VideoRef(path), spec)
        peaks.append(peak_bytes(supervise._idle[-1].process.pid))
    return min(peaks), len(frames.pixels_THWC)


def test_memory_follows_the_kept_frames_not_the_length(tmp_path):
    spec = FrameSpec(count=4)
    short, _ = worker_peak(make.write_long(tmp_path / "short.mp4", 4, fps=10, size=HD), spec)
    long, kept = worker_peak(make.write_long(tmp_path / "long.mp4", 600, fps=10, size=HD), spec)
    assert kept == 4
    assert long - short < 8 * HD[0] * HD[1] * 3  # of 6,000 frames


@pytest.mark.slow
def test_two_hours_of_full_hd_cost_what_is_kept(tmp_path):
    spec = FrameSpec(count=16, max_pixels=50_176)
    short, _ = worker_peak(make.write_long(tmp_path / "short.mp4", 4, size=FULL_HD), spec)
    film, kept = worker_peak(make.write_long(tmp_path / "film.mp4", 7200, size=FULL_HD), spec)
    assert kept == 16
    assert film - short < 16 * FULL_HD[0] * FULL_HD[1] * 3  # of 172,800 frames; the index itself takes some tens of MB


def leak_of(opens: int, folder: Path) -> tuple[int, int]:
    """Descriptors and bytes that a worker gains over so many opens of good and bad files, after a first round."""
    paths = [make.write(folder / "a.mp4", 20, 10), make.write(folder / "b.ts", 20, 10)]
    paths.append(make.overwrite_middle(make.write(folder / "bad.mp4", 60, 30)))
    supervise.close_workers()

    def open_all(times: int) -> tuple[int, int]:
        for i in range(times):
            try:
                decode(VideoRef(paths[i % 3]), FrameSpec(count=2))
            except DataError:
                assert i % 3 == 2
        gc.collect()
        pid = supervise._idle[-1].process.pid
        resident = int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()).group(1)) * 1024
        return len(os.listdir(f"/proc/{pid}/fd")), resident

    before, after = open_all(30), open_all(opens)
    return after[0] - before[0], after[1] - before[1]


def test_opens_leave_nothing_behind(tmp_path):
    descriptors, bytes_ = leak_of(60, tmp_path)
    assert descriptors == 0
    assert bytes_ < 16e6


@pytest.mark.slow
def test_a_thousand_opens_leave_nothing_behind(tmp_path):
    descriptors, bytes_ = leak_of(1000, tmp_path)
    assert descriptors == 0
    assert bytes_ < 32e6
