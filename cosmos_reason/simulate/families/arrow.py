"""Arrow of time: a clip with a clear direction of time, shown forward or backward.

The pictures of a backward clip are those of a forward clip in the opposite order, so no picture tells which it is;
what tells is a bounce that loses height, blocks that fall apart, or a slide that slows down.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cosmos_reason.simulate.events import FLUTTER_M, RISE_M, rebounds
from cosmos_reason.simulate.families.common import (
    Take,
    at_rest_from,
    draw_colours,
    draw_object,
    draw_side,
    leans,
    moved_m,
    placed,
    search,
)  # fmt: skip
from cosmos_reason.simulate.film import Record, Scene
from cosmos_reason.simulate.look import View, draw_look
from cosmos_reason.types import Fact

OUTCOMES = ("forward", "backward")
KINDS = ("bounce", "tower", "scatter", "slide")
_BOUNCE = View(elevation_deg=(8.0, 18.0), height_m=1.3)
_FLOOR = View(elevation_deg=(20.0, 32.0), height_m=0.4)


def shoot(rng: np.random.Generator, outcome: str) -> Take:
    """A forward take; the registry turns it around when its outcome is "backward"."""
    kind = str(rng.choice(KINDS))
    take = {"bounce": _bounce, "tower": _tower, "scatter": _scatter, "slide": _slide}[kind](rng)
    return Take(take.record, {"mover": take.facts["mover"], "kind": kind, "outcome": outcome})


def _bounce(rng: np.random.Generator) -> Take:
    side, colour = draw_side(rng), draw_colours(rng, 1)[0]
    ball = draw_object(rng, colour, ("ball",))

    def propose() -> Scene:
        velocity = (side * rng.uniform(0.6, 1.4), 0.0, rng.uniform(-1.5, 1.0))
        start = placed(ball, -side * rng.uniform(1.1, 1.7), 0.0, rng.uniform(0.9, 1.8), velocity_m_s=velocity,
                       bounce=rng.uniform(0.3, 0.8))  # fmt: skip
        return Scene(draw_look(rng, _BOUNCE), (start,))

    def judge(record: Record) -> Mapping[str, Fact] | None:
        rises = [rise for _, rise in rebounds(record, ball.name)]
        tall = [rise for rise in rises if rise >= RISE_M]
        clear = not any(FLUTTER_M < r < RISE_M for r in rises) and len(tall) >= 1 and tall[0] < 0.7 * ball_top(record)
        return {"mover": ball.name, "clear": True} if clear else None

    def ball_top(record: Record) -> float:
        z = record.path(ball.name)[:, 2]
        return float(z.max() - z.min())

    return search(propose, judge, {"clear": True})


def _tower(rng: np.random.Generator) -> Take:
    count = int(rng.integers(3, 5))
    blocks = [draw_object(rng, c, ("box",), 0.85) for c in draw_colours(rng, count)]

    def propose() -> Scene:
        x, height, things = rng.uniform(-0.4, 0.4), 0.0, []
        lean = leans(rng, count)
        for block in blocks:
            things.append(placed(block, x, 0.0, height, friction=0.6, bounce=0.1))
            x += lean[len(things) - 1] if len(things) < count else 0.0
            height += 2 * block.height_m
        return Scene(draw_look(rng, View(elevation_deg=(8.0, 20.0), height_m=1.1)), tuple(things))

    def judge(record: Record) -> Mapping[str, Fact] | None:
        top = record.path(blocks[-1].name)
        return {"mover": blocks[-1].name, "clear": True} if top[0, 2] - top[-1, 2] > 0.8 else None

    return search(propose, judge, {"clear": True})


def _scatter(rng: np.random.Generator) -> Take:
    """A ball runs into a row of boxes, which move apart."""
    side, colours = draw_side(rng), draw_colours(rng, 4)
    ball = draw_object(rng, colours[0], ("ball",))
    boxes = [draw_object(rng, c, ("box", "cylinder"), 0.72) for c in colours[1 : 1 + int(rng.integers(2, 4))]]

    def propose() -> Scene:
        velocity = (side * rng.uniform(2.6, 3.8), rng.uniform(-0.2, 0.2), 0.0)
        things = [placed(ball, -side * rng.uniform(1.4, 1.8), 0.0, velocity_m_s=velocity, bounce=0.4)]
        widths = [2 * box.size_m[0] + 0.04 for box in boxes]
        y = -sum(widths) / 2
        for box, width in zip(boxes, widths, strict=True):
            x = side * rng.uniform(-0.2, 0.1)
            things.append(placed(box, x, y + width / 2, friction=rng.uniform(0.2, 0.35), bounce=0.4))
            y += width
        return Scene(draw_look(rng, _FLOOR), tuple(things))

    def judge(record: Record) -> Mapping[str, Fact] | None:
        ways = [moved_m(record, box.name) for box in boxes]
        clear = sum(way > 0.3 for way in ways) >= 2 and max(ways) < 2.5
        return {"mover": ball.name, "clear": True} if clear else None

    return search(propose, judge, {"clear": True})


def _slide(rng: np.random.Generator) -> Take:
    side, colour = draw_side(rng), draw_colours(rng, 1)[0]
    slider = draw_object(rng, colour, ("box", "cylinder", "capsule"))

    def propose() -> Scene:
        start = placed(slider, -side * rng.uniform(1.0, 1.9), rng.uniform(-0.4, 0.6),
                       velocity_m_s=(side * rng.uniform(2.6, 4.2), 0, 0), friction=rng.uniform(0.2, 0.4))  # fmt: skip
        return Scene(draw_look(rng, _FLOOR), (start,))

    def judge(record: Record) -> Mapping[str, Fact] | None:
        path = record.path(slider.name)
        clear = moved_m(record, slider.name) > 1.3 and at_rest_from(record, slider.name, 0.3) and path[:, 2].max() < 0.7
        return {"mover": slider.name, "clear": True} if clear else None

    return search(propose, judge, {"clear": True})
