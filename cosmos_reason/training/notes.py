"""Dense supervision of the decoder: what stands where in every frame, in words, read from the simulator's state.

A question gives the decoder one or two facts to find in a clip; a clip's notes give it some sixty. Two kinds of rows,
half of each: a note after every frame ("green capsule left low goes right;" for what is in view), or the frames alone
and then the course of every object, from its first place to its last ("green capsule left low, right low goes right;").
Objects come in random order, so that no note follows from the one before.

T frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerFast

from cosmos_reason.errors import UserError
from cosmos_reason.text.chat import annotated
from cosmos_reason.training.frames import FrameStore, told_clips
from cosmos_reason.types import ObjectTrack, Sample, Timeline, Tokens, VideoRef

STILL_XY = 12.0  # an object that shifts less between two frames stands still; a pixel of 64×64 is 16 wide
_THIRDS = (400.0, 600.0)


@dataclass(frozen=True)
class Course:
    """One object over the frames of a clip, in words; a place is empty out of sight, a motion also at rest."""

    name: str
    places: tuple[str, ...]
    motions: tuple[str, ...]

    def at(self, frame: int) -> str:
        """What the object is, where it is and how it moves in a frame."""
        return f" {self.name} {self.places[frame]}{self.motions[frame]}"

    @property
    def whole(self) -> str:
        """The object's course: where it is first and last seen, and its commonest motion if it moves."""
        seen = [t for t, place in enumerate(self.places) if place]
        moving = [motion for motion in self.motions if motion]
        motion = max(sorted(set(moving)), key=moving.count) if moving else ""
        return f" {self.name} {self.places[seen[0]]}, {self.places[seen[-1]]}{motion};"


def courses(timeline: Timeline, times_s_T: np.ndarray) -> list[Course]:
    """Every object that is seen in one of the frames nearest to these times."""
    found = (course(track, timeline.nearest(times_s_T)) for track in timeline.objects)
    return [seen for seen in found if any(seen.places)]


def course(track: ObjectTrack, at_T: np.ndarray) -> Course:
    """One object at these states of its timeline."""
    seen_T, centre_T2 = track.visible_T[at_T], track.centre_xy_T2[at_T]
    places = tuple(place(*xy) if seen else "" for xy, seen in zip(centre_T2, seen_T, strict=True))
    in_view = zip(np.diff(centre_T2, axis=0), seen_T, seen_T[1:], strict=False)
    return Course(track.name, places, ("", *(_motion(*step) if a and b else "" for step, a, b in in_view)))


def place(x: float, y: float) -> str:
    """Where a point (0–1000) lies, e.g. "left low"."""
    low, high = _THIRDS
    across = "left" if x < low else "right" if x > high else "middle"
    return f"{across} {'high' if y < low else 'low' if y > high else 'centre'}"


def _motion(dx: float, dy: float) -> str:
    if max(abs(dx), abs(dy)) < STILL_XY:
        return ""
    if abs(dx) >= abs(dy):
        return " goes right" if dx > 0 else " goes left"
    return " falls" if dy > 0 else " rises"


class NoteRows:
    """The n-th clip with notes, in an endless seeded order. Clips without a timeline beside them are left out."""

    def __init__(
        self,
        samples: Sequence[Sample],
        store: FrameStore,
        tokenizer: PreTrainedTokenizerFast,
        tokens_per_frame: int,
        seed: int,
    ) -> None:
        told = ((ref, courses(t, store.frames(ref).times_s_T)) for ref, t in told_clips(samples, store))
        self._clips: list[tuple[VideoRef, list[Course]]] = [(ref, seen) for ref, seen in told if seen]
        if not self._clips:
            raise UserError(
                "note_rows: none of the clips has a timeline (timelines/CLIP.json beside videos/); set it to 0"
            )
        self._store, self._tokenizer, self._per_frame, self._seed = store, tokenizer, tokens_per_frame, seed
        self._epoch, self._order = -1, np.zeros(0, dtype=np.int64)

    def row(self, position: int) -> tuple[Tokens, int]:
        """Tokens of the row at this position and its clip's row in the store."""
        epoch, offset = divmod(position, len(self._clips))
        if epoch != self._epoch:
            self._epoch = epoch
            self._order = np.random.default_rng([self._seed, 4, epoch]).permutation(len(self._clips))
        ref, seen = self._clips[self._order[offset]]
        rng = np.random.default_rng([self._seed, 5, position])
        frames = self._store.frames(ref)
        notes, after = [""] * len(frames.times_s_T), ""
        if rng.integers(2):
            after = "".join(seen[i].whole for i in rng.permutation(len(seen)))
        else:
            for t in range(len(notes)):
                notes[t] = "".join(seen[i].at(t) + ";" for i in rng.permutation(len(seen)) if seen[i].places[t])
        return annotated(frames, notes, after, self._tokenizer, self._per_frame), self._store.row(ref)
