"""Throw: a ball is thrown and bounces up to three times or lies where it lands; or it flies over a wall or hits it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cosmos_reason.simulate.bodies import Thing
from cosmos_reason.simulate.events import FLUTTER_M, RISE_M, rebounds
from cosmos_reason.simulate.families.common import Take, draw_colours, draw_object, draw_side, placed, search
from cosmos_reason.simulate.film import Record, Scene
from cosmos_reason.simulate.look import View, draw_look
from cosmos_reason.types import Fact

OUTCOMES = ("bounces or clears", "rests or is stopped")
VIEW = View(elevation_deg=(8.0, 18.0), height_m=1.35)


def shoot(rng: np.random.Generator, outcome: str) -> Take:
    """Half of the clips have a wall."""
    return _over_wall(rng, outcome) if rng.random() < 0.5 else _bouncing(rng, outcome)


def _bouncing(rng: np.random.Generator, outcome: str) -> Take:
    side, colour = draw_side(rng), draw_colours(rng, 2)
    bounces = int(rng.integers(1, 4)) if outcome == OUTCOMES[0] else 0
    ball = draw_object(rng, colour[0], ("ball",))
    extra = placed(draw_object(rng, colour[1], ("ball",)), rng.uniform(-1.6, 1.6), rng.uniform(1.3, 2.2))
    with_extra = rng.random() < 0.5

    def propose() -> Scene:
        kept = rng.uniform(0.01, 0.1) if bounces == 0 else rng.uniform(0.35, 0.99)
        velocity = (side * rng.uniform(0.7, 1.5), 0.0, rng.uniform(-2.0, 1.2))
        start = placed(
            ball, -side * rng.uniform(1.2, 1.8), 0.0, rng.uniform(0.5, 1.8), velocity_m_s=velocity, bounce=kept
        )
        return Scene(draw_look(rng, VIEW), (start, extra) if with_extra else (start,))

    def judge(record: Record) -> Mapping[str, Fact] | None:
        rises = [rise for _, rise in rebounds(record, ball.name)]
        if not rises or any(FLUTTER_M < rise < RISE_M for rise in rises) or record.path(ball.name)[:, 2].max() > 3.2:
            return None
        count = sum(rise >= RISE_M for rise in rises)
        result = OUTCOMES[0] if count else OUTCOMES[1]
        return {"outcome": result, "variant": "bounce", "mover": ball.name, "bounces": float(count)}

    return search(propose, judge, {"outcome": outcome, "bounces": float(bounces)})


def _over_wall(rng: np.random.Generator, outcome: str) -> Take:
    side, colour = draw_side(rng), draw_colours(rng, 1)[0]
    thrown = draw_object(rng, colour, ("ball", "box", "capsule"), 0.9)

    def propose() -> Scene | None:
        height, x = rng.uniform(0.35, 0.65), side * rng.uniform(0.1, 0.6)
        wall = Thing("brown", "box", (0.1, 0.9, height), (x, 0.0, height), role="wall", label="wall", fixed=True)
        velocity = (side * rng.uniform(1.5, 3.0), 0.0, rng.uniform(1.0, 5.0))
        start = placed(
            thrown, -side * rng.uniform(1.5, 1.9), 0.0, rng.uniform(0.1, 0.8), velocity_m_s=velocity, friction=0.2
        )
        time_s = abs(x - start.at_m[0]) / abs(velocity[0])
        above = start.at_m[2] + (velocity[2] - 4.905 * time_s) * time_s - 2 * height
        if (above > 0.0) != (outcome == OUTCOMES[0]):
            return None
        return Scene(draw_look(rng, VIEW), (start, wall))

    def judge(record: Record) -> Mapping[str, Fact] | None:
        wall_x = side * record.path("wall")[0, 0]
        x, z = side * record.path(thrown.name)[:, 0], record.path(thrown.name)[:, 2]
        touch = np.flatnonzero(record.touching(thrown.name, "wall"))
        if z.max() > 3.0:
            return None
        if not len(touch) and x[-1] > wall_x + 0.6:
            result = OUTCOMES[0]
        elif len(touch) and x.max() < wall_x and 0.3 < record.times_s_S[touch[0]] < 1.4:
            result = OUTCOMES[1]
        else:
            return None
        return {"outcome": result, "variant": "wall", "mover": thrown.name, "wall": "wall"}

    return search(propose, judge, {"outcome": outcome})
