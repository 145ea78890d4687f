"""What families share: drawing objects, and the search for a scene that shows the wanted outcome.

`shoot(rng, outcome)` draws a look and a proposal after the other until the physics shows the outcome clearly. The
proposals must not depend on the outcome more than they need to: the better they overlap, the less one frame tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from cosmos_reason.simulate.bodies import COLOURS, Thing
from cosmos_reason.simulate.film import Record, Scene, run
from cosmos_reason.types import Fact

TRIES = 600


class Take(NamedTuple):
    """A scene that shows what was wanted, and what is true in it."""

    record: Record
    facts: Mapping[str, Fact]


def search(
    propose: Callable[[], Scene | None],
    judge: Callable[[Record], Mapping[str, Fact] | None],
    wanted: Mapping[str, Fact],
) -> Take:
    """The first proposal whose facts, where `judge` finds the scene clear enough to state them, hold all of `wanted`.

    A proposal may be None where a line of textbook physics shows that the simulation would be wasted.
    """
    for _ in range(TRIES):
        scene = propose()
        if scene is None:
            continue
        record = run(scene)
        facts = judge(record) if np.isfinite(record.pos_m_SN3).all() else None
        if facts is not None and all(facts[key] == value for key, value in wanted.items()):
            return Take(record, facts)
    raise RuntimeError(f"no scene with {dict(wanted)} in {TRIES} tries; the ranges of its family do not reach it")


def draw_colours(rng: np.random.Generator, count: int) -> list[str]:
    """Different colours, so that a colour names one object of a clip."""
    return [str(c) for c in rng.choice(list(COLOURS), count, replace=False)]


def draw_side(rng: np.random.Generator) -> int:
    """+1: moves to the right, −1: to the left."""
    return int(rng.choice([-1, 1]))


def draw_object(
    rng: np.random.Generator, colour: str, shapes: tuple[str, ...], scale: float = 1.0
) -> Thing:  # fmt: skip
    """An object on the floor at the origin, 0.7–0.9 m across at scale 1."""
    shape, r = str(rng.choice(shapes)), scale * rng.uniform(0.37, 0.45)
    sizes = {"ball": (r,), "box": (0.88 * r,) * 3, "cylinder": (0.68 * r, 1.05 * r), "capsule": (0.72 * r, 0.5 * r)}
    thing = Thing(colour, shape, sizes[shape], (0.0, 0.0, 0.0))
    return placed(thing, 0.0, 0.0)


def placed(thing: Thing, x: float, y: float, above: float = 0.0, **changes: object) -> Thing:
    """The thing with its lowest point `above` the floor, and other fields changed."""
    from dataclasses import replace

    return replace(thing, at_m=(float(x), float(y), thing.height_m + above), **changes)  # type: ignore[arg-type]


def leans(rng: np.random.Generator, blocks: int) -> np.ndarray:
    """(blocks − 1,) sideways offsets of each block of a stack to the one below; one of them is likely to be too far."""
    offsets = rng.normal(0.0, 0.09, blocks - 1)
    offsets[rng.integers(blocks - 1)] = rng.uniform(-0.5, 0.5)
    return offsets


def gap_m(record: Record, first: str, second: str) -> float:
    """Least distance over the clip between the circles around two things, seen from above; negative if they overlap."""
    things = {t.name: t for t in record.scene.things}
    between = np.linalg.norm((record.path(first) - record.path(second))[:, :2], axis=1)
    return float(between.min()) - things[first].reach_m - things[second].reach_m


def moved_m(record: Record, name: str) -> float:
    """Distance between the first and the last position."""
    path = record.path(name)
    return float(np.linalg.norm(path[-1] - path[0]))


def at_rest_from(record: Record, name: str, seconds: float) -> bool:
    """Whether a thing hardly moves during the last `seconds`."""
    path = record.path(name)[-round(seconds / 0.0125) :]
    return bool(np.abs(path - path[-1]).max() < 0.04)
