"""What may be said about a timeline: small readings of its tracks and events, and the words for them.

A reading is None where the pictures leave it open (an object that drifts a few pixels neither moves nor rests).
Picture coordinates run 0–1000; a pixel of a 64×64 picture is 16 wide.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from cosmos_reason.types import Event, ObjectTrack, Timeline

MOVED_XY = 70.0  # at least four pixels of 64×64
RESTED_XY = 16.0  # at most one
NUMBER_WORDS = ("no", "one", "two", "three", "four", "five")


class Told:
    """A timeline with its readings."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.objects = [o for o in timeline.objects if o.role == "object"]

    def fact(self, key: str) -> str:
        """A fact that is a word or a name."""
        return str(self.timeline.facts[key])

    def number(self, key: str) -> float:
        """A fact that is a number."""
        return float(self.timeline.facts[key])

    def has(self, key: str) -> bool:
        return key in self.timeline.facts

    def track(self, name: str) -> ObjectTrack:
        return next(o for o in self.timeline.objects if o.name == name)

    def events(self, kind: str, who: str) -> list[Event]:
        """Events of one kind in which `who` takes part."""
        return [e for e in self.timeline.events if e.kind == kind and who in e.who]

    def moving(self, name: str) -> bool | None:
        """Whether the object visibly changes its place."""
        extent = float(np.ptp(self._seen(name), axis=0).max())
        return True if extent >= MOVED_XY else False if extent <= RESTED_XY else None

    def direction(self, name: str) -> str | None:
        """ "left" or "right", as the camera sees it, for an object that moves sideways only one way."""
        x = self._seen(name)[:, 0]
        total, back = x[-1] - x[0], np.diff(x)
        if abs(total) < 1.5 * MOVED_XY or np.abs(back[back * total < 0]).sum() > 0.15 * abs(total):
            return None
        return "right" if total > 0 else "left"

    def still(self) -> list[str]:
        """Names of the objects that rest."""
        return [o.name for o in self.objects if self.moving(o.name) is False]

    def clear_motion(self) -> bool:
        """Whether it can be said of every object that it moves or rests."""
        return all(self.moving(o.name) is not None for o in self.objects)

    def ordered_at(self, frame: int, apart: float = 60.0) -> list[str] | None:
        """Objects from left to right in a frame; None where one is out of sight or two are too near to tell."""
        if not all(o.visible_T[frame] for o in self.objects):
            return None
        at = sorted((float(o.centre_xy_T2[frame, 0]), o.name) for o in self.objects)
        if any(b[0] - a[0] < apart for a, b in itertools.pairwise(at)):
            return None
        return [name for _, name in at]

    def place(self, name: str, frame: int) -> str:
        """Where an object is in a frame, e.g. "on the left"."""
        x = float(self.track(name).centre_xy_T2[frame, 0])
        return "on the left" if x < 400 else "on the right" if x > 600 else "in the middle"

    def _seen(self, name: str) -> np.ndarray:
        """(frames with the object in view, 2) centres; the first frame's if it never is."""
        track = self.track(name)
        seen = track.centre_xy_T2[track.visible_T]
        return seen if len(seen) else track.centre_xy_T2[:1]


def the(name: str) -> str:
    return f"the {name}"


def a(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def listed(parts: Sequence[str]) -> str:
    """ "x", "x and y", "x, y and z"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[0].upper()}{text[1:]}."
