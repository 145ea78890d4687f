"""Tower: a stack of two to four blocks, set down askew; it stands or falls, to the left or to the right."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cosmos_reason.simulate.families.common import Take, draw_colours, draw_object, leans, placed, search
from cosmos_reason.simulate.film import Record, Scene
from cosmos_reason.simulate.look import View, draw_look
from cosmos_reason.types import Fact

OUTCOMES = ("falls", "stands")
VIEW = View(elevation_deg=(8.0, 20.0), height_m=1.1)


def shoot(rng: np.random.Generator, outcome: str) -> Take:
    """At least half of the blocks come down and nothing is left half-fallen, or no block moves."""
    count, extra = int(rng.integers(2, 5)), rng.random() < 0.4
    colours = draw_colours(rng, count + 1)
    scale = 0.92 if count < 4 else 0.82
    blocks = [draw_object(rng, colour, ("box",), scale) for colour in colours[:count]]
    bystander = draw_object(rng, colours[-1], ("box",), scale)
    away = float(rng.choice([-1, 1]) * rng.uniform(1.6, 1.9))
    falls_to = int(rng.choice([-1, 1]))

    def propose() -> Scene | None:
        x, height, things = rng.uniform(-0.5, 0.5), 0.0, []
        lean = leans(rng, count)
        if outcome == "falls" and np.abs(lean).max() < 0.85 * blocks[0].size_m[0]:
            return None
        for block in blocks:
            things.append(placed(block, x, 0.0, height, friction=0.7, bounce=0.05))
            x += lean[len(things) - 1] if len(things) < count else 0.0
            height += 2 * block.height_m
        if extra:
            things.append(placed(bystander, away, rng.uniform(1.2, 1.8)))
        return Scene(draw_look(rng, VIEW), tuple(things[i] for i in rng.permutation(len(things))))

    def judge(record: Record) -> Mapping[str, Fact] | None:
        paths = [record.path(block.name) for block in blocks]
        drops = [float(p[0, 2] - p[-1, 2]) for p in paths]
        facts: dict[str, Fact] = {"top": blocks[-1].name, "bottom": blocks[0].name, "blocks": float(count)}
        if max(float(np.abs(p - p[0]).max()) for p in paths) < 0.05:
            return {**facts, "outcome": "stands", "direction": "none", "falls_to": falls_to}
        shift = float(paths[-1][-1, 0] - paths[-1][0, 0])
        half_fallen = any(0.05 < drop < 0.4 for drop in drops)
        if drops[-1] < 0.5 or half_fallen or 2 * sum(drop >= 0.4 for drop in drops) < count or abs(shift) < 0.25:
            return None
        direction = "right" if shift > 0 else "left"
        return {**facts, "outcome": "falls", "direction": direction, "falls_to": 1 if shift > 0 else -1}

    take = search(propose, judge, {"outcome": outcome, "falls_to": falls_to})
    return Take(take.record, {key: value for key, value in take.facts.items() if key != "falls_to"})
