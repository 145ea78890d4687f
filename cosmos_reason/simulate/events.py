"""What happened and when, read from states alone: Record, tracks -> Event.

move      (object,)         from the first to the last step faster than a slow creep
contact   (object, object)  two objects, or an object and a wall, touch
bounce    (object,)         it touches the floor between a fall and a visible rise
hidden    (object,)         it cannot be seen, between two times at which frames were taken
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cosmos_reason.simulate.film import FPS, STEP_S, Record
from cosmos_reason.types import Event, ObjectTrack

STILL_M_S = 0.15  # slower than this counts as at rest: a third of a pixel between frames of 64×64
SHORTEST_MOVE_S = 0.2
GAP_S = 0.2  # shorter pauses do not split a movement, nor do shorter gaps split a contact
RISE_M = 0.2  # least height of a bounce that counts; heights from FLUTTER_M to RISE_M are neither yes nor no
FLUTTER_M = 0.08
FALL_M = 0.02  # least descent over the 0.05 s before a landing


def find_events(record: Record, tracks: Sequence[ObjectTrack]) -> tuple[Event, ...]:
    """All events of a record in order of their start."""
    things = record.scene.things
    objects = [t.name for t in things if t.role == "object"]
    solid = [t.name for t in things if t.role in ("object", "wall")]
    events: list[Event] = []
    for name in objects:
        events += [Event("move", *span, (name,)) for span in moves(record, name)]
        events += [Event("bounce", at, at, (name,)) for at in bounce_times(record, name)]
    for i, first in enumerate(solid):
        for second in solid[i + 1 :]:
            if first in objects or second in objects:
                events += [Event("contact", *span, (first, second)) for span in contacts(record, first, second)]
    for track in tracks:
        if track.role == "object":
            events += [Event("hidden", *span, (track.name,)) for span in hidden_spans(track)]
    return tuple(sorted(events, key=lambda e: (e.start_s, e.end_s, e.kind, e.who)))


def moves(record: Record, name: str) -> list[tuple[float, float]]:
    """(start, end) seconds of each movement."""
    speed_S = np.linalg.norm(np.gradient(record.path(name), STEP_S, axis=0), axis=1)
    return [s for s in spans(speed_S > STILL_M_S) if s[1] - s[0] >= SHORTEST_MOVE_S]


def contacts(record: Record, first: str, second: str) -> list[tuple[float, float]]:
    """(start, end) seconds of each contact."""
    return spans(record.touching(first, second))


def bounce_times(record: Record, name: str) -> list[float]:
    """Seconds at which a fall ends in a rise of at least RISE_M."""
    return [at for at, rise in rebounds(record, name) if rise >= RISE_M]


def rebounds(record: Record, name: str) -> list[tuple[float, float]]:
    """(seconds, metres of the rise that follows within the clip) for each landing on the floor."""
    z = record.path(name)[:, 2]
    landings = [round(start / STEP_S) for start, _ in spans(record.touching(name, "floor"), gap_s=0.0)]
    landings = [step for step in landings if step > 0 and z[max(0, step - 4) : step].max() - z[step] > FALL_M]
    ends = [*landings, len(z)][1:]
    return [(a * STEP_S, float(z[a:b].max() - z[a])) for a, b in zip(landings, ends, strict=True)]


def hidden_spans(track: ObjectTrack) -> list[tuple[float, float]]:
    """(first, last) frame times of each stretch of at least two frames without sight of the object."""
    found, start = [], None
    for frame, visible in enumerate([*track.visible_T, True]):
        if not visible and start is None:
            start = frame
        elif visible and start is not None:
            if frame - start >= 2:
                found.append((start / FPS, (frame - 1) / FPS))
            start = None
    return found


def spans(on_S: np.ndarray, gap_s: float = GAP_S) -> list[tuple[float, float]]:
    """(start, end) seconds of the stretches of True; gaps of at most `gap_s` are bridged."""
    steps = np.flatnonzero(on_S)
    if not len(steps):
        return []
    breaks = np.flatnonzero(np.diff(steps) * STEP_S > gap_s + STEP_S)
    starts, ends = steps[[0, *(breaks + 1)]], steps[[*breaks, len(steps) - 1]]
    return [(float(a * STEP_S), float(b * STEP_S)) for a, b in zip(starts, ends, strict=True)]
