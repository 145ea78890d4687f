"""Ramp: an object on a slope moves down or stays; or two objects are let go together and one is down first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cosmos_reason.simulate.bodies import Thing
from cosmos_reason.simulate.families.common import Take, draw_colours, draw_object, draw_side, search
from cosmos_reason.simulate.film import Record, Scene
from cosmos_reason.simulate.look import View, draw_look
from cosmos_reason.types import Fact

OUTCOMES = ("moves or near first", "stays or far first")
VIEW = View(elevation_deg=(18.0, 28.0), height_m=0.7)
HALF_LENGTH_M = 2.0


def shoot(rng: np.random.Generator, outcome: str) -> Take:
    """Half of the clips have two objects, one in a near and one in a far lane."""
    pair, side, colours = rng.random() < 0.5, draw_side(rng), draw_colours(rng, 2)
    shapes = ("ball", "box", "capsule", "cylinder") if pair else ("box", "cylinder", "capsule")
    near, far = (draw_object(rng, colour, shapes, 0.9) for colour in colours)
    while near.shape == far.shape == "ball":  # two balls are down together
        near, far = (draw_object(rng, colour, shapes, 0.9) for colour in colours)

    def propose() -> Scene | None:
        angle, start = math.radians(rng.uniform(14.0, 26.0)), -rng.uniform(1.1, 1.5)
        shade = str(rng.choice(["brown", "light grey"]))
        ramp = Thing(shade, "box", (HALF_LENGTH_M, 1.1, 0.04), (0.0, 0.0, _middle(angle)),
                     role="ramp", label="ramp", fixed=True, tilt_rad=side * angle, friction=0.01)  # fmt: skip
        lanes = ((near, -0.6), (far, 0.6)) if pair else ((near, rng.uniform(-0.4, 0.4)),)
        things = [_on_slope(thing, side, angle, start, y, rng.uniform(0.02, 0.8)) for thing, y in lanes]
        if _predicted([_pull(thing, angle) for thing in things]) != outcome:
            return None  # hopeless, and not worth the time of a simulation
        return Scene(draw_look(rng, VIEW), (*(things[i] for i in rng.permutation(len(things))), ramp))

    def judge(record: Record) -> Mapping[str, Fact] | None:
        if pair:
            return _judge_pair(record, near.name, far.name, side)
        path = record.path(near.name)
        along = side * (path[-1, 0] - path[0, 0])
        if 0.03 < along < 1.2 or along < 0 or _tumbled(record, near.name):
            return None
        return {"outcome": OUTCOMES[0] if along > 1 else OUTCOMES[1], "variant": "single", "mover": near.name}

    return search(propose, judge, {"outcome": outcome})


def _judge_pair(record: Record, near: str, far: str, side: int) -> Mapping[str, Fact] | None:
    """The first one down is well ahead when it gets there."""
    foot = 0.85 * HALF_LENGTH_M
    ways = {name: side * record.path(name)[:, 0] for name in (near, far)}
    times = {name: np.flatnonzero(way > foot) for name, way in ways.items()}
    if _tumbled(record, near) or _tumbled(record, far) or not (len(times[near]) or len(times[far])):
        return None
    first = min(times, key=lambda n: times[n][0] if len(times[n]) else math.inf)
    second = far if first == near else near
    at = int(times[first][0])
    if ways[first][at] - ways[second][at] < 0.6 or record.touching(near, far).any():
        return None
    return {
        "outcome": OUTCOMES[0] if first == near else OUTCOMES[1],
        "variant": "pair",
        "first": first,
        "second": second,
    }


def _pull(thing: Thing, angle: float) -> float:
    """Downhill acceleration in units of gravity, by the textbook."""
    if thing.shape == "ball":
        return math.sin(angle) * 5 / 7
    return max(0.0, math.sin(angle) - thing.friction * math.cos(angle))


def _predicted(pulls: list[float]) -> str:
    """The outcome to expect: of one object, or of the near and the far one."""
    if len(pulls) == 1:
        return OUTCOMES[0] if pulls[0] > 0.08 else OUTCOMES[1] if pulls[0] == 0.0 else ""
    return OUTCOMES[0] if pulls[0] * 0.8 > pulls[1] else OUTCOMES[1] if pulls[1] * 0.8 > pulls[0] else ""


def _middle(angle: float) -> float:
    """Height of the ramp's centre when its lower end touches the floor."""
    return HALF_LENGTH_M * math.sin(angle)


def _on_slope(thing: Thing, side: int, angle: float, along: float, y: float, slip: float) -> Thing:
    """The thing standing on the ramp, `along` metres down from its middle, with the ramp's tilt."""
    up = thing.height_m + 0.042
    x = side * (along * math.cos(angle) + up * math.sin(angle))
    z = _middle(angle) - along * math.sin(angle) + up * math.cos(angle)
    return replace(thing, at_m=(x, y, z), tilt_rad=side * angle, friction=slip, bounce=0.05)


def _tumbled(record: Record, name: str) -> bool:
    """Whether a thing left its lane."""
    path = record.path(name)
    return bool(np.abs(path[:, 1] - path[0, 1]).max() > 0.15)
