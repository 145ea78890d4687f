"""Collision: one object moves towards another, which rests or comes the other way; they hit or pass each other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cosmos_reason.simulate.families.common import (
    Take,
    draw_colours,
    draw_object,
    draw_side,
    gap_m,
    moved_m,
    placed,
    search,
)  # fmt: skip
from cosmos_reason.simulate.film import Record, Scene
from cosmos_reason.simulate.look import View, draw_look
from cosmos_reason.types import Fact

OUTCOMES = ("hit", "miss")
VIEW = View(elevation_deg=(22.0, 34.0), height_m=0.4)
SHAPES = ("ball", "box", "cylinder", "capsule")


def shoot(rng: np.random.Generator, outcome: str) -> Take:
    """A clear hit (the target is knocked away) or a clear miss (they pass with a gap)."""
    side, oncoming, extra = draw_side(rng), rng.random() < 0.4, rng.random() < 0.5
    colours = draw_colours(rng, 3)
    mover = draw_object(rng, colours[0], SHAPES)
    target = draw_object(rng, colours[1], SHAPES)
    bystander = draw_object(rng, colours[2], SHAPES)

    def propose() -> Scene | None:
        lane, slip = rng.uniform(-0.5, 0.5), rng.uniform(0.02, 0.1)
        speed, back = rng.uniform(2.0, 3.4), rng.uniform(0.8, 1.8) if oncoming else 0.0
        spot = side * (rng.uniform(1.2, 1.9) if oncoming else rng.uniform(0.0, 0.9))
        things = [
            placed(mover, -side * rng.uniform(1.6, 2.0), lane, velocity_m_s=(side * speed, 0, 0), friction=slip),
            placed(target, spot, lane + rng.uniform(-1.5, 1.5), velocity_m_s=(-side * back, 0, 0), friction=slip),
        ]
        near = mover.reach_m + target.reach_m
        if (abs(things[1].at_m[1] - lane) > near) == (outcome == "hit") or abs(things[1].at_m[1]) > 1.5:
            return None
        if extra:
            beside = (rng.uniform(-1.7, 1.7), rng.uniform(-1.3, 1.8))
            if min(abs(beside[1] - t.at_m[1]) for t in things) < bystander.reach_m + mover.reach_m:
                return None
            things.append(placed(bystander, *beside))
        return Scene(draw_look(rng, VIEW), tuple(things[i] for i in rng.permutation(len(things))))

    def judge(record: Record) -> Mapping[str, Fact] | None:
        if extra and (moved_m(record, bystander.name) > 0.02 or gap_m(record, bystander.name, mover.name) < 0.15):
            return None
        touch = np.flatnonzero(record.touching(mover.name, target.name))
        x, other = (side * record.path(n.name)[:, 0] for n in (mover, target))
        if len(touch):
            knocked = float(np.linalg.norm(record.path(target.name)[-1] - record.path(target.name)[touch[0]]))
            clear, result = 0.3 < record.times_s_S[touch[0]] < 1.4 and knocked > 0.3, "hit"
        else:
            clear, result = gap_m(record, mover.name, target.name) > 0.12 and x[-1] - other[-1] > 0.4, "miss"
        facts: dict[str, Fact] = {"outcome": result, "mover": mover.name, "target": target.name, "oncoming": oncoming}
        return facts if clear else None

    return search(propose, judge, {"outcome": outcome})
