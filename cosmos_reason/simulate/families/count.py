"""Count: two to four objects stand about; all of them start to move, one after the other, or only some do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cosmos_reason.simulate.bodies import Thing
from cosmos_reason.simulate.families.common import Take, draw_colours, draw_object, moved_m, placed, search
from cosmos_reason.simulate.film import Record, Scene
from cosmos_reason.simulate.look import View, draw_look
from cosmos_reason.types import Fact

OUTCOMES = ("all", "some")
VIEW = View(elevation_deg=(26.0, 36.0), height_m=0.3)
LEAST_APART_S = 0.3  # between two starts, so that their order can be seen


def shoot(rng: np.random.Generator, outcome: str) -> Take:
    """Every object has a lane of its own; starts are LEAST_APART_S apart."""
    count = int(rng.integers(2, 5))
    movers = count if outcome == "all" else int(rng.integers(1, count))
    objects = [draw_object(rng, c, ("ball", "box", "cylinder", "capsule"), 0.95) for c in draw_colours(rng, count)]
    moving = [objects[i] for i in rng.permutation(count)[:movers]]

    def propose() -> Scene:
        lanes = (np.arange(count) - (count - 1) / 2) * (3.0 / count) + 0.2
        slack = 1.3 - LEAST_APART_S * (movers - 1)
        starts = np.sort(rng.uniform(0.0, slack, movers)) + LEAST_APART_S * np.arange(movers)
        xs = rng.permutation(np.linspace(-1.5, 1.5, count) + rng.uniform(-0.25, 0.25, count))
        things: list[Thing] = []
        for thing, lane in zip(objects, rng.permutation(lanes), strict=True):
            x, side = xs[len(things)], int(rng.choice([-1, 1]))
            side = int(-np.sign(x)) if abs(x) > 0.7 else side
            speed, start = 0.0, 0.0
            if thing in moving:
                speed, start = side * rng.uniform(1.5, 2.4), float(starts[moving.index(thing)])
            things.append(
                placed(thing, x, lane, velocity_m_s=(speed, 0, 0), friction=0.12, rolling_m=0.03, start_s=start)
            )
        return Scene(draw_look(rng, VIEW), tuple(things))

    def judge(record: Record) -> Mapping[str, Fact] | None:
        going = [t.name for t in moving]
        if record.touch_SNN[:, :count, :count].any():
            return None
        if any((moved_m(record, t.name) > 0.5) != (t.name in going) for t in objects):
            return None
        return {
            "outcome": outcome,
            "objects": float(count),
            "movers": float(movers),
            "first": going[0],
            "last": going[-1],
        }

    return search(propose, judge, {"outcome": outcome})
