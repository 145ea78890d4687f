"""Which frames to keep: presentation stamps + FrameSpec → indices. Pure functions, no file is opened here.

`FrameSpec` says how densely to look; the stretch of the clip comes from `VideoRef`. The walk through this file:
range (`in_range`) → wanted times (`_by_count`, `_by_rate`, `_by_times`) → `Choice`; then `pad_to_multiple` and `fit`.

N frames that the stream can show, T frames kept. Times are seconds on the container's own clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cosmos_reason.errors import DataError, UserError
from cosmos_reason.types import Frames, VideoRef

# Containers round stamps to their own tick, a millisecond in Matroska: times this near are the same time.
TICK_S = 1e-3


@dataclass(frozen=True)
class FrameSpec:
    """How to look at a clip. Examples: ``FrameSpec(count=8)``, ``FrameSpec(fps=4.0, max_frames=32, max_pixels=50176)``.

    Exactly one of `fps`, `count` and `times_s` is given. Raises UserError where the wish can't be met by any clip.
    """

    fps: float | None = None  # a frame at start, start + 1/fps, …; never more often than the source
    count: int | None = None  # evenly spread over time, the first and the last frame of the range included
    times_s: tuple[float, ...] | None = None  # the nearest frame to each of these times, in this order
    min_frames: int = 1  # with fps: a clip too short for this many is looked at more densely
    max_frames: int | None = None  # with fps: a clip too long for this many is looked at evenly, as by count
    max_pixels: int | None = None  # height × width of a kept frame at most; larger frames are scaled down

    def __post_init__(self) -> None:
        given = [name for name in ("fps", "count", "times_s") if getattr(self, name) is not None]
        if len(given) != 1:
            raise UserError(f"give exactly one of fps, count and times_s, got {', '.join(given) or 'none'}")
        if self.count is not None and self.count < 1:
            raise UserError(f"count must be at least 1 frame, got {self.count}")
        if self.fps is not None and not (math.isfinite(self.fps) and self.fps > 0):
            raise UserError(f"fps must be a positive number of frames per second, got {self.fps}")
        if self.times_s is not None and not self.times_s:
            raise UserError("times_s must hold at least one time, got none")
        if self.times_s is not None and not all(math.isfinite(t) for t in self.times_s):
            raise UserError(f"times_s must be finite seconds, got {self.times_s}")
        if self.min_frames < 1:
            raise UserError(f"min_frames must be at least 1, got {self.min_frames}")
        if self.max_frames is not None and self.max_frames < self.min_frames:
            raise UserError(f"max_frames must be at least min_frames = {self.min_frames}, got {self.max_frames}")
        if self.max_pixels is not None and self.max_pixels < 1:
            raise UserError(f"max_pixels must be at least 1, got {self.max_pixels}")
        if self.fps is None and (self.min_frames != 1 or self.max_frames is not None):
            raise UserError("min_frames and max_frames bound a rate: give them together with fps, or leave them out")


@dataclass(frozen=True)
class Choice:
    """Frames to decode: `indices_T` into the stamps, and how many were asked for (more than T in a short clip)."""

    indices_T: np.ndarray  # int64, rising unless explicit times were given in another order
    asked: int


def check_range(ref: VideoRef) -> None:
    """Refuse a stretch that no clip can have: UserError on a negative, non-finite or empty one."""
    for name, value in (("start_s", ref.start_s), ("end_s", ref.end_s)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise UserError(f"{ref.path}: {name} must be seconds from 0 on, got {value}")
    if ref.start_s is not None and ref.end_s is not None and ref.end_s < ref.start_s:
        raise UserError(f"{ref.path}: end_s must not lie before start_s = {ref.start_s}, got {ref.end_s}")


def in_range(stamps_s_N: np.ndarray, ref: VideoRef, frame_s: float) -> np.ndarray:
    """Indices of the frames whose stamps lie in start_s..end_s, both included; never empty.

    A stretch between two stamps is answered by the frame on show at its start. `frame_s` is how long the last frame
    stays on show. DataError where the stretch lies outside the clip.
    """
    first_s, shown_until_s = float(stamps_s_N[0]), float(stamps_s_N[-1]) + frame_s
    start_s = first_s if ref.start_s is None else ref.start_s
    end_s = shown_until_s if ref.end_s is None else ref.end_s
    where = f"its pictures run from {first_s:.3f} s to {shown_until_s:.3f} s"
    if start_s >= shown_until_s - 1e-9 and start_s > stamps_s_N[-1] + TICK_S:
        raise DataError(ref.path, f"start_s = {start_s:g} is past the end: {where}; start earlier")
    if end_s < first_s - TICK_S:
        raise DataError(ref.path, f"end_s = {end_s:g} lies before the first picture: {where}; end later")
    inside = np.flatnonzero((stamps_s_N >= start_s - TICK_S) & (stamps_s_N <= end_s + TICK_S))
    if len(inside):
        return inside
    on_show = int(np.searchsorted(stamps_s_N, start_s, side="right")) - 1
    return np.array([max(0, on_show)], dtype=np.int64)


def choose(stamps_s_N: np.ndarray, spec: FrameSpec, ref: VideoRef, frame_s: float) -> Choice:
    """Pick frames from the stamps of all frames (seconds, rising, N ≥ 1); `frame_s` as in `in_range`.

    Nearest stamps, never index over mean rate, so that variable frame rates come out right. A clip shorter than the
    wish gives each of its frames once. Raises DataError as `in_range`, UserError on explicit times outside the range.
    """
    inside = in_range(stamps_s_N, ref, frame_s)
    stamps_s_M = stamps_s_N[inside]
    if spec.times_s is not None:
        chosen = _by_times(stamps_s_M, spec.times_s, ref.path, frame_s)
        return Choice(inside[chosen], len(spec.times_s))
    if spec.count is not None:
        return Choice(inside[_by_count(stamps_s_M, spec.count)], spec.count)
    assert spec.fps is not None, "FrameSpec holds one of fps, count, times_s"
    targets_s = _rate_targets(stamps_s_M, spec.fps, frame_s)
    asked = max(len(targets_s), spec.min_frames)
    if spec.max_frames is not None:
        asked = min(asked, spec.max_frames)
    if asked != len(targets_s):
        return Choice(inside[_by_count(stamps_s_M, asked)], asked)
    return Choice(inside[np.unique(_nearest(stamps_s_M, targets_s))], asked)


def _rate_targets(stamps_s_M: np.ndarray, fps: float, frame_s: float) -> np.ndarray:
    """start, start + 1/fps, … while a frame is on show; one target at least, so sub-second clips are seen at 1 fps."""
    shown_s = float(stamps_s_M[-1] - stamps_s_M[0]) + frame_s
    # A frame is on show until, not at, the end: 1.0 s at 4 fps has 4 frames, 0.97 s at 1 fps has one.
    number = max(1, math.ceil(shown_s * fps - TICK_S * fps))
    return float(stamps_s_M[0]) + np.arange(number) / fps


def _by_count(stamps_s_M: np.ndarray, count: int) -> np.ndarray:
    """`count` distinct frames nearest to evenly spaced times, ends included; all of them where there are no more.

    One frame of many is the middle one: it stands for the clip better than either end.
    """
    available = len(stamps_s_M)
    if count >= available:
        return np.arange(available)
    if count == 1:
        return _nearest(stamps_s_M, np.array([(stamps_s_M[0] + stamps_s_M[-1]) / 2]))
    picked = _nearest(stamps_s_M, np.linspace(stamps_s_M[0], stamps_s_M[-1], count))
    # Where the source is slower than the grid two targets share a frame: push the doubles apart, forwards then back.
    steps = np.arange(count)
    picked = np.maximum.accumulate(picked - steps) + steps
    return np.minimum(picked, available - count + steps)


def _by_times(stamps_s_M: np.ndarray, times_s: tuple[float, ...], path: str, frame_s: float) -> np.ndarray:
    """The nearest frame to each time; UserError for one over half a frame before the first or after the last."""
    wanted = np.asarray(times_s, dtype=np.float64)
    picked = _nearest(stamps_s_M, wanted)
    half_s = frame_s / 2 + TICK_S
    too_early, too_late = wanted < stamps_s_M[0] - half_s, wanted > stamps_s_M[-1] + half_s
    for index in np.flatnonzero(too_early | too_late)[:1]:
        raise UserError(
            f"{path}: wanted a frame at {wanted[index]:.3f} s, the nearest is at {stamps_s_M[picked[index]]:.3f} s, "
            f"more than half a frame ({frame_s / 2:.3f} s) away; "
            f"ask for times from {stamps_s_M[0]:.3f} s to {stamps_s_M[-1]:.3f} s"
        )
    return picked


def _nearest(stamps_s_M: np.ndarray, targets_s: np.ndarray) -> np.ndarray:
    """Index of the stamp nearest to each target; the earlier one of two equally near."""
    right = np.clip(np.searchsorted(stamps_s_M, targets_s), 1, max(1, len(stamps_s_M) - 1))
    if len(stamps_s_M) == 1:
        return np.zeros(len(targets_s), dtype=np.int64)
    left = right - 1
    nearer_right = stamps_s_M[right] - targets_s < targets_s - stamps_s_M[left]
    return np.where(nearer_right, right, left)


def fit(width: int, height: int, max_pixels: int | None) -> tuple[int, int]:
    """(width, height) of the same shape with at most `max_pixels` pixels; unchanged where they fit."""
    if max_pixels is None or width * height <= max_pixels:
        return width, height
    scale = math.sqrt(max_pixels / (width * height))
    fitted_width = min(max(1, int(width * scale)), max_pixels)
    return fitted_width, max(1, min(int(height * scale), max_pixels // fitted_width))


def pad_to_multiple(frames: Frames, multiple: int) -> Frames:
    """Repeat the last frame, stamp included, until T is a multiple (encoders that merge frames in groups need that)."""
    if multiple < 1:
        raise UserError(f"frames are padded to a multiple of at least 1, got {multiple}")
    missing = -len(frames.pixels_THWC) % multiple
    if missing == 0:
        return frames
    return replace(
        frames,
        pixels_THWC=np.concatenate([frames.pixels_THWC, np.repeat(frames.pixels_THWC[-1:], missing, axis=0)]),
        times_s_T=np.concatenate([frames.times_s_T, np.repeat(frames.times_s_T[-1:], missing)]),
    )
