"""Levitate: an object falls, or goes up and comes down; or, against gravity, it hangs in the air or keeps rising."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cosmos_reason.simulate.families.common import Take, draw_colours, draw_object, placed, search
from cosmos_reason.simulate.film import Record, Scene
from cosmos_reason.simulate.look import View, draw_look
from cosmos_reason.types import Fact

OUTCOMES = ("possible", "impossible")
VIEW = View(elevation_deg=(8.0, 18.0), height_m=1.35)
MOTIONS = {"possible": ("falls", "rises and falls"), "impossible": ("hangs", "rises")}


def shoot(rng: np.random.Generator, outcome: str) -> Take:
    """One of two motions for each outcome; another object may stand on the floor."""
    motion, extra, colours = str(rng.choice(MOTIONS[outcome])), rng.random() < 0.6, draw_colours(rng, 2)
    flyer = draw_object(rng, colours[0], ("ball", "box", "cylinder", "capsule"))
    bystander = draw_object(rng, colours[1], ("ball", "box", "cylinder", "capsule"))
    aside = float(rng.choice([-1, 1]))

    def propose() -> Scene:
        x, drift = rng.uniform(-0.9, 0.9), rng.uniform(-0.4, 0.4)
        above = rng.uniform(0.2, 0.6) if motion.startswith("rises") else rng.uniform(0.9, 1.8)
        lift = {"falls": 0.0, "hangs": 0.0, "rises": rng.uniform(0.5, 0.9), "rises and falls": rng.uniform(3.2, 4.6)}[
            motion
        ]
        still = motion == "hangs"
        start = placed(flyer, x, 0.0, above, velocity_m_s=(0.0 if still else drift, 0.0, lift),
                       weightless=outcome == "impossible", bounce=0.05)  # fmt: skip
        things = (start, placed(bystander, -np.sign(x) * rng.uniform(0.3, 0.8) + aside * 0.4, rng.uniform(1.0, 1.8)))
        return Scene(draw_look(rng, VIEW), things if extra else things[:1])

    def judge(record: Record) -> Mapping[str, Fact] | None:
        z = record.path(flyer.name)[:, 2]
        rise, drop = float(z.max() - z[0]), float(z.max() - z[-1])
        seen = {
            "falls": rise < 0.05 and drop > 0.7,
            "hangs": rise < 0.02 and drop < 0.02,
            "rises": rise > 0.8 and drop < 0.02,
            "rises and falls": rise > 0.4 and drop > 0.6,
        }
        matching = [name for name, holds in seen.items() if holds]
        if len(matching) != 1 or z.max() > 3.1:
            return None
        return {"outcome": outcome, "motion": matching[0], "mover": flyer.name}

    return search(propose, judge, {"outcome": outcome, "motion": motion})
