"""Bodies: what the physics makes of their fields."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cosmos_reason.simulate.bodies import COLOURS, Thing, surface_points
from cosmos_reason.simulate.film import STEP_S, Scene, run
from cosmos_reason.simulate.look import View, draw_look

LOOK = draw_look(np.random.default_rng(0), View())


def path(thing: Thing) -> np.ndarray:
    return run(Scene(LOOK, (thing,))).pos_m_SN3[:, 0]


def test_a_falling_body_obeys_gravity_and_a_weightless_one_does_not() -> None:
    ball = Thing("red", "ball", (0.4,), (0.0, 0.0, 2.4), bounce=0.05)
    z, t = path(ball)[:, 2], 0.4
    assert z[round(t / STEP_S)] == pytest.approx(2.4 - 9.81 * t**2 / 2, abs=0.02)
    assert z[-1] == pytest.approx(0.4, abs=0.02)
    assert path(replace(ball, weightless=True))[:, 2] == pytest.approx(2.4)


def test_friction_stops_a_slide_where_the_textbook_says() -> None:
    box = Thing("red", "box", (0.35, 0.35, 0.35), (-1.0, 0.0, 0.35), velocity_m_s=(2.0, 0.0, 0.0), friction=0.3)
    assert path(box)[-1, 0] - path(box)[0, 0] == pytest.approx(2.0**2 / (2 * 0.3 * 9.81), rel=0.15)


def test_a_ball_rolls_and_starts_late_when_told_to() -> None:
    ball = Thing("red", "ball", (0.4,), (-1.0, 0.0, 0.4), velocity_m_s=(1.0, 0.0, 0.0), rolling_m=0.0, start_s=0.5)
    x = path(ball)[:, 0]
    assert x[round(0.45 / STEP_S)] == pytest.approx(-1.0, abs=0.001)
    assert x[-1] == pytest.approx(-1.0 + 1.375, abs=0.05)  # no speed is lost to slipping


def test_a_bouncier_ball_rises_higher() -> None:
    tops = []
    for bounce in (0.05, 0.5, 0.9):
        z = path(Thing("red", "ball", (0.4,), (0.0, 0.0, 1.4), bounce=bounce))[:, 2]
        tops.append(z[round(0.5 / STEP_S) :].max())
    assert tops[0] < 0.5 < tops[1] < tops[2] < 1.4


def test_a_hanging_bob_keeps_its_distance_to_the_hinge() -> None:
    bob = Thing("red", "ball", (0.3,), (-1.0, 0.0, 1.5), hinge_m=(0.0, 0.0, 2.5))
    places = path(bob)
    assert np.linalg.norm(places - (0.0, 0.0, 2.5), axis=1) == pytest.approx(np.sqrt(2))
    assert places[:, 0].max() == pytest.approx(1.0, abs=0.1)  # as far on the other side
    assert np.abs(places[:, 1]).max() < 1e-6


def test_surface_points_span_the_body() -> None:
    towards = np.array([0.0, 1.0, 0.0])
    box = surface_points(Thing("red", "box", (0.1, 0.2, 0.3), (0.0, 0.0, 0.0)), towards)
    assert np.ptp(box, axis=0) == pytest.approx([0.2, 0.4, 0.6])
    disc = surface_points(Thing("red", "ball", (0.5,), (0.0, 0.0, 0.0)), towards)
    assert np.linalg.norm(disc, axis=1) == pytest.approx(0.5)
    assert disc @ towards == pytest.approx(0.0, abs=1e-9)
    pill = surface_points(Thing("red", "capsule", (0.2, 0.3), (0.0, 0.0, 0.0)), towards)
    assert np.ptp(pill[:, 2]) == pytest.approx(2 * (0.3 + 0.2))


def test_names_tell_colour_and_shape() -> None:
    assert Thing("red", "ball", (0.4,), (0.0, 0.0, 0.4)).name == "red ball"
    assert Thing("brown", "box", (1.0, 0.1, 1.0), (0.0, 0.0, 1.0), label="screen").name == "screen"
    assert len(COLOURS) == 8
