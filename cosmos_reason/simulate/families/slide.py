"""Slide: an object slides along the floor and is slowed by friction; it stops before the line or passes it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cosmos_reason.simulate.bodies import Thing
from cosmos_reason.simulate.families.common import (
    Take,
    at_rest_from,
    draw_colours,
    draw_object,
    draw_side,
    moved_m,
    placed,
    search,
)  # fmt: skip
from cosmos_reason.simulate.film import Record, Scene
from cosmos_reason.simulate.look import View, draw_look
from cosmos_reason.types import Fact

OUTCOMES = ("stops", "passes")
VIEW = View(elevation_deg=(20.0, 32.0), height_m=0.4)


def shoot(rng: np.random.Generator, outcome: str) -> Take:
    """Stopped well before the line for at least a quarter of a second, or wholly beyond it at the end."""
    side, colours, extra = draw_side(rng), draw_colours(rng, 2), rng.random() < 0.5
    slider = draw_object(rng, colours[0], ("box", "cylinder", "capsule"))
    bystander = placed(
        draw_object(rng, colours[1], ("box", "cylinder", "capsule")), rng.uniform(-1.6, 1.6), rng.uniform(1.5, 2)
    )
    half_width = slider.size_m[0] + (slider.size_m[1] if slider.shape == "capsule" else 0.0)

    def propose() -> Scene | None:
        line = Thing("light grey" if rng.random() < 0.5 else "dark grey", "box", (0.08, 1.2, 0.004),
                     (side * rng.uniform(0.1, 1.0), 0.0, 0.004), role="goal", label="line", fixed=True)  # fmt: skip
        speed, slip = rng.uniform(1.5, 3.8), rng.uniform(0.08, 0.45)
        start = placed(
            slider,
            -side * rng.uniform(1.4, 1.9),
            rng.uniform(-0.3, 0.3),
            velocity_m_s=(side * speed, 0, 0),
            friction=slip,
        )
        pull = 9.81 * slip
        time_s = min(speed / pull, 1.875)
        left_m = abs(line.at_m[0] - start.at_m[0]) - (speed - pull * time_s / 2) * time_s
        if (left_m > 0) == (outcome == "passes"):
            return None
        return Scene(draw_look(rng, VIEW), (start, line, bystander) if extra else (start, line))

    def judge(record: Record) -> Mapping[str, Fact] | None:
        line_x, end_x = side * record.path("line")[0, 0], side * record.path(slider.name)[-1, 0]
        if moved_m(record, slider.name) < 0.7 or record.path(slider.name)[:, 2].max() > 0.7:
            return None
        if end_x + half_width < line_x - 0.1 and at_rest_from(record, slider.name, 0.25):
            result = "stops"
        elif end_x - half_width > line_x + 0.1:
            result = "passes"
        else:
            return None
        return {"outcome": result, "mover": slider.name}

    return search(propose, judge, {"outcome": outcome})
