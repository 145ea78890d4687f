"""Choosing frames by their stamps: every expectation is counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cosmos_reason.errors import DataError, UserError
from cosmos_reason.types import Frames, VideoRef
from cosmos_reason.video.sample import FrameSpec, check_range, choose, fit, in_range, pad_to_multiple

CLIP = VideoRef("clip.mp4")


def picked(stamps_s, spec, ref=CLIP, frame_s=None):
    stamps_s = np.asarray(stamps_s, dtype=np.float64)
    step_s = float(np.median(np.diff(stamps_s))) if len(stamps_s) > 1 else 0.04
    return choose(stamps_s, spec, ref, step_s if frame_s is None else frame_s)


def even(frames, fps):
    return np.arange(frames) / fps


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({}, "exactly one"),
        ({"fps": 1.0, "count": 2}, "fps, count"),
        ({"count": 0}, "at least 1 frame, got 0"),
        ({"count": -3}, "got -3"),
        ({"fps": 0.0}, "positive"),
        ({"fps": float("nan")}, "positive"),
        ({"times_s": ()}, "at least one time"),
        ({"times_s": (1.0, float("inf"))}, "finite"),
        ({"fps": 1.0, "min_frames": 0}, "min_frames"),
        ({"fps": 1.0, "min_frames": 4, "max_frames": 3}, "max_frames must be at least min_frames = 4, got 3"),
        ({"fps": 1.0, "max_pixels": 0}, "max_pixels"),
        ({"count": 4, "max_frames": 2}, "bound a rate"),
    ],
)
def test_wishes_that_no_clip_can_meet_are_user_errors(wish, words):
    with pytest.raises(UserError, match=words):
        FrameSpec(**wish)


@pytest.mark.parametrize(
    ("frames", "count", "expected"),
    [
        (10, 4, [0, 3, 6, 9]),
        (10, 2, [0, 9]),
        (11, 1, [5]),  # the middle stands for the clip
        (10, 10, list(range(10))),
        (10, 20, list(range(10))),  # all once; not twenty times frame 0
        (31, 32, list(range(31))),
        (3, 4, [0, 1, 2]),
        (1, 8, [0]),
        (2, 1, [0]),
        (300, 8, [0, 43, 85, 128, 171, 214, 256, 299]),
    ],
)
def test_count_spreads_over_the_clip_and_sees_both_ends(frames, count, expected):
    choice = picked(even(frames, 25), FrameSpec(count=count))
    assert choice.indices_T.tolist() == expected
    assert choice.asked == count


def test_count_gives_distinct_frames_where_the_source_is_slower_than_the_grid():
    # nine seconds of stillness, then ten frames in one second: the even grid alone would name frames 0 and 1 repeatedly
    stamps_s = np.concatenate([[0.0], 9 + np.arange(10) / 10])
    chosen = picked(stamps_s, FrameSpec(count=6)).indices_T
    assert len(set(chosen.tolist())) == 6
    assert chosen[0] == 0
    assert chosen[-1] == 10


@pytest.mark.parametrize(
    ("frames", "source_fps", "fps", "expected"),
    [
        (29, 30, 1.0, 1),  # 0.97 s: not zero frames
        (299, 29.97, 1.0, 10),  # 9.98 s: the last part-second is seen too
        (300, 30, 1.0, 10),
        (301, 30, 1.0, 11),
        (40, 10, 4.0, 16),
        (5, 25, 1.0, 1),
        (40, 10, 30.0, 40),  # never more than there are
    ],
)
def test_rate_gives_a_frame_for_every_begun_period(frames, source_fps, fps, expected):
    chosen = picked(even(frames, source_fps), FrameSpec(fps=fps)).indices_T
    assert len(chosen) == expected
    assert (np.diff(chosen) > 0).all()


def test_rate_follows_stamps_on_a_variable_rate():
    stamps_s = np.concatenate([np.arange(10) / 5, 2 + np.arange(60) / 30])  # 5 fps for 2 s, then 30 fps for 2 s
    chosen = picked(stamps_s, FrameSpec(fps=1.0), frame_s=1 / 30).indices_T
    assert stamps_s[chosen].tolist() == [0.0, 1.0, 2.0, 3.0]
    by_time = picked(stamps_s, FrameSpec(times_s=(3.0,))).indices_T
    assert by_time.tolist() == [40]  # index over the mean rate, 70 / 4 Hz, would say 52


def test_cap_spreads_over_the_whole_clip_and_floor_looks_closer():
    capped = picked(even(600, 10), FrameSpec(fps=2.0, max_frames=32))
    assert (len(capped.indices_T), capped.indices_T[0], capped.indices_T[-1]) == (32, 0, 599)
    floored = picked(even(5, 10), FrameSpec(fps=1.0, min_frames=4))
    assert floored.indices_T.tolist() == [0, 1, 3, 4]
    short = picked(even(3, 10), FrameSpec(fps=1.0, min_frames=4))
    assert (short.indices_T.tolist(), short.asked) == ([0, 1, 2], 4)


@pytest.mark.parametrize(
    ("start_s", "end_s", "expected"),
    [
        (None, None, list(range(10))),
        (0.2, 0.5, [2, 3, 4, 5]),
        (0.25, 0.45, [3, 4]),
        (0.22, 0.28, [2]),  # between two stamps: what is on show
        (0.95, None, [9]),
        (None, 0.0, [0]),
        (0.3, 0.3, [3]),
    ],
)
def test_range_includes_both_ends(start_s, end_s, expected):
    ref = VideoRef("clip.mp4", start_s, end_s)
    assert in_range(even(10, 10), ref, 0.1).tolist() == expected


def test_range_outside_the_clip_names_the_file_and_what_there_is():
    stamps_s = 5 + even(10, 10)
    with pytest.raises(DataError, match=r"clip\.mp4: start_s = 7 is past the end.*5\.000 s to 6\.000 s"):
        in_range(stamps_s, VideoRef("clip.mp4", 7.0), 0.1)
    with pytest.raises(DataError, match=r"end_s = 2 lies before the first picture"):
        in_range(stamps_s, VideoRef("clip.mp4", None, 2.0), 0.1)


@pytest.mark.parametrize(("start_s", "end_s"), [(-1.0, None), (None, float("nan")), (3.0, 2.0)])
def test_impossible_stretches_are_user_errors(start_s, end_s):
    with pytest.raises(UserError, match=r"clip\.mp4"):
        check_range(VideoRef("clip.mp4", start_s, end_s))


def test_explicit_times_take_the_nearest_frame_in_the_order_given():
    choice = picked(even(10, 10), FrameSpec(times_s=(0.71, 0.04, 0.06, 0.71)))
    assert choice.indices_T.tolist() == [7, 0, 1, 7]


@pytest.mark.parametrize(("time_s", "nearest"), [(0.96, "0.900"), (-0.06, "0.000")])
def test_explicit_time_off_the_clip_names_both_times(time_s, nearest):
    assert picked(even(10, 10), FrameSpec(times_s=(0.94,))).indices_T.tolist() == [9]  # within half a frame
    with pytest.raises(UserError, match=rf"clip\.mp4: wanted a frame at {time_s:.3f} s, the nearest is at {nearest} s"):
        picked(even(10, 10), FrameSpec(times_s=(time_s,)))


@pytest.mark.parametrize(
    ("size", "budget", "expected"),
    [
        ((1920, 1080), None, (1920, 1080)),
        ((64, 64), 4096, (64, 64)),
        ((1920, 1080), 1920 * 1080 // 4, (960, 540)),
        ((1000, 2), 100, (100, 1)),
        ((3, 1000), 10, (1, 10)),
        ((5, 5), 1, (1, 1)),
    ],
)
def test_fit_keeps_the_shape_within_the_budget(size, budget, expected):
    fitted = fit(*size, budget)
    assert fitted == expected
    assert budget is None or fitted[0] * fitted[1] <= budget


@pytest.mark.parametrize(("frames", "multiple", "expected"), [(3, 2, 4), (18, 4, 20), (4, 2, 4), (1, 2, 2), (5, 1, 5)])
def test_padding_repeats_the_last_frame_with_its_stamp(frames, multiple, expected):
    pixels = np.arange(frames, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 3), np.uint8)
    padded = pad_to_multiple(Frames(pixels, even(frames, 4), 4.0, frames, "pyav"), multiple)
    wanted = [min(i, frames - 1) for i in range(expected)]
    assert padded.pixels_THWC[:, 0, 0, 0].tolist() == wanted
    assert padded.times_s_T.tolist() == [i / 4 for i in wanted]


def test_padding_to_nothing_is_refused():
    with pytest.raises(UserError, match="at least 1, got 0"):
        pad_to_multiple(Frames(np.zeros((1, 1, 1, 3), np.uint8), np.zeros(1), 0.0, 1, "pyav"), 0)
