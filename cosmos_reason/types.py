"""The nouns of the walk: VideoRef → Frames → Prompt → Tokens → Completion → Answer → Score, all frozen.

Shape suffixes: T frames, H height, W width, C channels (RGB), L tokens, N vision slots, K options, 2/3/4 coordinates.
Units: seconds (`_s`), metres (`_m`), image coordinates 0–1000 per axis with the origin at the top left (`_xy`, `_box`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

Kind = Literal["binary", "choice", "text", "number", "interval", "point", "box", "trajectory"]
Status = Literal["ok", "no_answer", "truncated", "malformed"]
FinishReason = Literal["stop", "length", "cancelled"]
Gold = str | float | tuple[str, ...] | tuple[float, ...] | tuple[tuple[float, float, float], ...]
Fact = str | float | bool

LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True)
class VideoRef:
    """A stretch of a video file. Example: ``VideoRef("a.mp4", 2.0, 5.0)``; None means from the start / to the end."""

    path: str
    start_s: float | None = None
    end_s: float | None = None


@dataclass(frozen=True)
class Frames:
    """Decoded pictures. Example: 8 frames at 4 Hz from 2.0 s on, decoded by decord."""

    pixels_THWC: np.ndarray  # uint8, RGB, upright (rotation metadata applied)
    times_s_T: np.ndarray  # float64, presentation stamps of exactly these frames, seconds from the container's zero
    source_fps: float  # mean rate of the source stream, frames per second (0.0 for a single picture)
    source_frames: int  # pictures that the source stream can show, or -1 where they were not counted
    backend: str  # "decord", "pyav" or "torchcodec": what decoded this file, with its version
    asked: int = -1  # frames that were asked for; more than len(pixels) when the clip has fewer

    @property
    def sampled_fps(self) -> float:
        """The rate of the frames that were really kept, (T − 1) / (last − first); 0.0 for one frame."""
        if len(self.times_s_T) < 2 or self.times_s_T[-1] <= self.times_s_T[0]:
            return 0.0
        return float((len(self.times_s_T) - 1) / (self.times_s_T[-1] - self.times_s_T[0]))


@dataclass(frozen=True)
class Sample:
    """One question about one video, with its truth.

    `answer` by kind: binary "yes" | "no"; choice a letter "B" or several ("A", "C"); text a string; number a float
    (in `unit`); interval (start_s, end_s); point (x, y); box (x1, y1, x2, y2), all 0–1000; trajectory ((t_s, x, y), …).
    """

    id: str
    kind: Kind
    question: str
    answer: Gold
    video: VideoRef
    options: tuple[str, ...] = ()  # K option texts, letters A.. by position; empty unless kind is "choice"
    unit: str = ""  # of a number, e.g. "m/s"
    think: str = ""  # oracle reasoning that mentions only what can be seen; empty where there is none
    ontology: str = ""  # e.g. "common_sense.time.order"
    family: str = ""  # scene family or dataset name
    template: str = ""  # question template: answers are balanced within one


@dataclass(frozen=True)
class Part:
    """A piece of a message's content: text, or a reference to the prompt's n-th video or image."""

    kind: Literal["text", "video", "image"]
    text: str = ""
    index: int = 0  # into Prompt.media for video and image


@dataclass(frozen=True)
class Message:
    """One turn. Example: ``Message("user", (Part("video"), Part("text", "What happens?")))``."""

    role: Literal["system", "user", "assistant"]
    content: tuple[Part, ...]


@dataclass(frozen=True)
class Prompt:
    """A conversation and its pictures, ready to become ids."""

    messages: tuple[Message, ...]
    media: tuple[Frames, ...] = ()


@dataclass(frozen=True)
class VisionSlots:
    """Where the features of one medium go: `count` placeholder ids at `positions_N` of the sequence, in frame order."""

    medium: int
    positions_N: np.ndarray  # int64


@dataclass(frozen=True)
class Tokens:
    """A rendered conversation. The loss mask is True on assistant text and its end token only."""

    ids_L: np.ndarray  # int64
    loss_mask_L: np.ndarray  # bool; True where this id is to be predicted
    slots: tuple[VisionSlots, ...] = ()


@dataclass(frozen=True)
class Completion:
    """What a model produced for one prompt, token for token."""

    text: str
    ids_L: np.ndarray  # int64, with the end token when there was one
    logprobs_L: np.ndarray  # float32, natural log, of each id under the sampling distribution
    finish_reason: FinishReason


@dataclass(frozen=True)
class Answer:
    """A parsed completion. `letter` is set for choices with one right option, else `value` holds the answer."""

    think: str
    final: str
    letter: str | None
    status: Status
    value: Gold | None = None
    format_ok: bool = False  # the text had exactly the form that the prompt asks for


@dataclass(frozen=True)
class Score:
    """Benchmark metric and reward at once: `value` in 0..1, `parts` has at least `correct` and `format`."""

    value: float
    parts: Mapping[str, float]
    reason: str


@dataclass(frozen=True)
class ObjectTrack:
    """One object over the frames of a simulated clip."""

    name: str  # unique in the clip and used in its questions, e.g. "red ball"
    colour: str
    shape: str
    role: str  # "object", "occluder", "floor", "gripper", "goal" …
    position_m_T3: np.ndarray  # world coordinates of the centre
    centre_xy_T2: np.ndarray  # projected centre, 0–1000 (may lie outside when the object leaves the picture)
    box_T4: np.ndarray  # projected bounding box x1, y1, x2, y2, 0–1000
    visible_T: np.ndarray  # bool: at least a tenth of the object's own pixels are unoccluded and inside the picture


@dataclass(frozen=True)
class Event:
    """Something that happened, e.g. ``Event("contact", 0.75, 0.80, ("red ball", "blue box"))``."""

    kind: str
    start_s: float
    end_s: float
    who: tuple[str, ...] = ()


@dataclass(frozen=True)
class Timeline:
    """The known truth of a simulated clip: what a question writer may use, never the pixels."""

    clip_id: str
    family: str
    seed: int
    fps: float
    times_s_T: np.ndarray
    objects: tuple[ObjectTrack, ...]
    events: tuple[Event, ...] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)  # e.g. {"outcome": "falls", "reversed": False}
    caption: str = ""  # dense description made from state

    def nearest(self, times_s_T: np.ndarray) -> np.ndarray:
        """Indices (T,) of the states nearest to these times."""
        return np.abs(self.times_s_T[None, :] - times_s_T[:, None]).argmin(axis=1)


@dataclass(frozen=True)
class Clip:
    """A simulated clip in memory: pictures and truth."""

    frames: Frames
    timeline: Timeline
