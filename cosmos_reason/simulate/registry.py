"""Every family by its name: (family, seed) -> Clip, and Timeline -> Samples.

A clip is a pure function of its family and seed. The main outcome of the clips 2k and 2k + 1 differs, in an order drawn
from k, so outcomes are balanced exactly and the seed in a clip's name does not tell them.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from types import ModuleType

import numpy as np

from cosmos_reason.errors import UserError
from cosmos_reason.simulate.events import find_events
from cosmos_reason.simulate.families import (
    arrow,
    collision,
    count,
    levitate,
    occluder,
    pendulum,
    ramp,
    slide,
    throw,
    tower,
)  # fmt: skip
from cosmos_reason.simulate.film import FPS, FRAMES, film
from cosmos_reason.simulate.lens import tracks
from cosmos_reason.simulate.questions import questions as ask_physics
from cosmos_reason.simulate.stories import caption
from cosmos_reason.simulate.told import Told
from cosmos_reason.types import Clip, Event, Sample, Timeline

_MODULES: dict[str, ModuleType] = {
    "collision": collision, "throw": throw, "slide": slide, "tower": tower, "occluder": occluder, "ramp": ramp,
    "pendulum": pendulum, "arrow": arrow, "count": count, "levitate": levitate,
}  # fmt: skip
FAMILIES: tuple[str, ...] = tuple(_MODULES)
_ROBOT = "manipulation_"


def outcomes(family: str) -> tuple[str, str]:
    """The two main outcomes of a physics family, as they stand in `facts["outcome"]`."""
    return _module(family).OUTCOMES


def make_clip(family: str, seed: int) -> Clip:
    """Simulate and film a clip. `family` is one of FAMILIES or "manipulation_<task>"."""
    if family.startswith(_ROBOT):
        from cosmos_reason.simulate import manipulation  # Meta-World is heavy and only wanted here

        return manipulation.make_clip(family.removeprefix(_ROBOT), seed)
    module = _module(family)
    name = zlib.crc32(family.encode())
    swap = int(np.random.default_rng([name, 0, seed // 2]).integers(2))
    outcome = module.OUTCOMES[(seed + swap) % 2]
    record, facts = module.shoot(np.random.default_rng([name, 1, seed]), outcome)
    seen = tracks(record)
    listed = np.random.default_rng([name, 2, seed]).permutation(len(seen))  # the order tells nothing of the roles
    frames = film(record)
    timeline = Timeline(
        f"{family}_{seed}",
        family,
        seed,
        FPS,
        frames.times_s_T,
        tuple(seen[i] for i in listed),
        find_events(record, seen),
        dict(facts),
    )
    clip = Clip(frames, timeline)
    if facts["outcome"] == "backward":
        clip = reverse(clip)
    return Clip(clip.frames, replace(clip.timeline, caption=caption(Told(clip.timeline))))


def questions(timeline: Timeline, video_path: str) -> list[Sample]:
    """All samples about a clip; their videos are `video_path`, as it is given."""
    if timeline.family.startswith(_ROBOT):
        from cosmos_reason.simulate import manipulation_questions

        return manipulation_questions.questions(timeline, video_path)
    _module(timeline.family)
    return ask_physics(timeline, video_path)


def reverse(clip: Clip) -> Clip:
    """The clip backward: pictures, tracks and events; its facts stay as they are."""
    end = (FRAMES - 1) / FPS
    timeline = clip.timeline
    objects = tuple(
        replace(
            track, position_m_T3=track.position_m_T3[::-1], centre_xy_T2=track.centre_xy_T2[::-1],
            box_T4=track.box_T4[::-1], visible_T=track.visible_T[::-1],
        )
        for track in timeline.objects
    )  # fmt: skip
    mirrored = [Event(e.kind, end - e.end_s, end - e.start_s, e.who) for e in timeline.events]
    events = tuple(sorted(mirrored, key=lambda e: (e.start_s, e.end_s, e.kind, e.who)))
    frames = replace(clip.frames, pixels_THWC=clip.frames.pixels_THWC[::-1])
    return Clip(frames, replace(timeline, objects=objects, events=events))


def _module(family: str) -> ModuleType:
    if family not in _MODULES:
        raise UserError(f"no family {family!r}; there are {', '.join(FAMILIES)} and manipulation_<task>")
    return _MODULES[family]
