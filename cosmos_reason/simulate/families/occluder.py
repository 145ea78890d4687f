"""Occluder: a ball rolls behind a screen and comes out or stays; or the screen is pulled up, and it is there or gone.

A ball that is gone when the screen rises is the impossible ending: it was removed while nobody could see it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cosmos_reason.simulate.bodies import Thing
from cosmos_reason.simulate.families.common import Take, draw_colours, draw_object, draw_side, placed, search
from cosmos_reason.simulate.film import STEPS_PER_FRAME, Record, Scene
from cosmos_reason.simulate.look import View, draw_look
from cosmos_reason.types import Fact

OUTCOMES = ("seen again", "not seen again")
VIEW = View(elevation_deg=(7.0, 13.0), height_m=0.75, azimuth_deg=12.0)
LIFT_S = 1.26  # just after a frame, so that the screen is either down or well up in every frame


def shoot(rng: np.random.Generator, outcome: str) -> Take:
    """The ball is out of sight for at least two frames; half of the clips lift the screen."""
    side, lifted, extra = draw_side(rng), rng.random() < 0.5, rng.random() < 0.4
    colours = draw_colours(rng, 2)
    ball = draw_object(rng, colours[0], ("ball",), 0.9)
    bystander = draw_object(rng, colours[1], ("ball",), 0.9)
    aside = float(rng.choice([-1, 1]))
    ends_behind = lifted or outcome == OUTCOMES[1]

    def propose() -> Scene:
        half, height, screen_x = rng.uniform(0.7, 0.95), rng.uniform(0.6, 0.75), rng.uniform(-0.3, 0.3)
        shade = str(rng.choice(["light grey", "dark grey", "brown"]))
        screen = Thing(shade, "box", (half, 0.05, height), (screen_x, -0.5, height),
                       role="occluder", label="screen", fixed=True)  # fmt: skip
        drag = rng.uniform(0.02, 0.12) if ends_behind else rng.uniform(0.0, 0.04)
        velocity = (side * rng.uniform(1.8, 3.2), 0.0, 0.0)
        start = placed(ball, screen_x - side * rng.uniform(1.5, 1.9), 0.2, velocity_m_s=velocity, rolling_m=drag)
        things = (start, screen, placed(bystander, screen_x + aside * rng.uniform(1.5, 1.8), rng.uniform(1.0, 1.6)))
        lifts = {"screen": LIFT_S} if lifted else {}
        removes = {ball.name: 1.2} if lifted and outcome == OUTCOMES[1] else {}
        return Scene(draw_look(rng, VIEW), things if extra else things[:2], lifts, removes)

    def judge(record: Record) -> Mapping[str, Fact] | None:
        screen = record.scene.things[1]
        past_T = (side * (record.path(ball.name)[:, 0] - screen.at_m[0]))[::STEPS_PER_FRAME]
        cover = screen.size_m[0] - ball.size_m[0] - 0.05  # the ball is wholly behind within this distance
        behind = np.flatnonzero(np.abs(past_T) < cover)
        if (
            len(behind) < 2
            or past_T[0] > -screen.size_m[0] - 0.2
            or (extra and record.touching(ball.name, bystander.name).any())
        ):
            return None
        if abs(past_T[-1]) < cover - 0.05:
            ending = ("gone" if record.scene.removes else "found") if lifted else "behind"
            if lifted and behind[0] > 8:
                return None
        elif past_T[-1] > screen.size_m[0] + 0.5:
            ending = "out"
        else:
            return None
        result = OUTCOMES[0] if ending in ("out", "found") else OUTCOMES[1]
        return {"outcome": result, "ending": ending, "mover": ball.name, "screen": "screen"}

    ending = (
        ("found" if outcome == OUTCOMES[0] else "gone") if lifted else ("out" if outcome == OUTCOMES[0] else "behind")
    )
    return search(propose, judge, {"outcome": outcome, "ending": ending})
