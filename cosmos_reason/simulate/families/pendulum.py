"""Pendulum: a bob on a rod swings; it hits an object on the floor or swings clear of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cosmos_reason.simulate.bodies import Thing
from cosmos_reason.simulate.families.common import (
    Take,
    draw_colours,
    draw_object,
    draw_side,
    moved_m,
    placed,
    search,
)
from cosmos_reason.simulate.film import Record, Scene
from cosmos_reason.simulate.look import View, draw_look
from cosmos_reason.types import Fact

OUTCOMES = ("hit", "miss")
VIEW = View(elevation_deg=(10.0, 22.0), height_m=1.2)


def shoot(rng: np.random.Generator, outcome: str) -> Take:
    """Without a hit, the bob's passes of its lowest point can be counted: one to three in a clip."""
    side, colours = draw_side(rng), draw_colours(rng, 2)
    bob = replace(draw_object(rng, colours[0], ("ball", "box"), 0.9), density=1500.0)
    target = draw_object(rng, colours[1], ("ball", "box"), 0.95)

    def propose() -> Scene:
        length, angle = rng.uniform(1.0, 2.0), side * math.radians(rng.uniform(35.0, 65.0))
        pivot = (rng.uniform(-0.4, 0.4), 0.0, length + bob.height_m + 0.1)
        at = (pivot[0] - length * math.sin(angle), 0.0, pivot[2] - length * math.cos(angle))
        swung = replace(bob, at_m=at, hinge_m=pivot, tilt_rad=angle)
        bar = Thing("dark grey", "box", (0.5, 0.08, 0.06), (pivot[0], 0.0, pivot[2] + 0.05),
                    role="support", label="bar", fixed=True)  # fmt: skip
        spot = pivot[0] + rng.choice([-1, 1], p=[0.3, 0.7]) * side * rng.uniform(0.2, 1.6)
        return Scene(
            draw_look(rng, VIEW),
            (
                swung,
                placed(target, spot, rng.choice([0.0, 0.0, 0.9, 1.2]) * rng.uniform(0.9, 1.1), rolling_m=0.02),
                bar,
            ),
        )

    def judge(record: Record) -> Mapping[str, Fact] | None:
        touch = np.flatnonzero(record.touching(bob.name, target.name))
        x = record.path(bob.name)[:, 0] - record.scene.things[2].at_m[0]
        if len(touch):
            if not (0.2 < record.times_s_S[touch[0]] < 1.4 and moved_m(record, target.name) > 0.3):
                return None
            return {"outcome": "hit", "mover": bob.name, "target": target.name}
        crossings = np.flatnonzero(np.diff(np.sign(x)))
        in_plane = abs(record.path(target.name)[0, 1]) < 0.1
        if in_plane and _least_gap(record, bob.name, target.name) < 0.15:
            return None
        if not len(crossings) or record.times_s_S[crossings[-1]] > 1.7:
            return None
        return {"outcome": "miss", "mover": bob.name, "target": target.name, "passes": float(len(crossings))}

    return search(propose, judge, {"outcome": outcome})


def _least_gap(record: Record, first: str, second: str) -> float:
    """Least distance between the surfaces of two things, taken as balls."""
    radius = sum(max(t.size_m) for t in record.scene.things if t.name in (first, second))
    return float(np.linalg.norm(record.path(first) - record.path(second), axis=1).min()) - radius
