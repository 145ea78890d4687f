"""Projection and visibility against hand-made scenes: a camera that looks along y at a point 1 m above the floor."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cosmos_reason.simulate.bodies import Thing
from cosmos_reason.simulate.film import Record, Scene, film, run
from cosmos_reason.simulate.lens import Lens, tracks
from cosmos_reason.simulate.look import Look, View, draw_look

LOOK: Look = replace(
    draw_look(np.random.default_rng(0), View()),
    azimuth_rad=0.0,
    elevation_rad=0.0,
    distance_m=10.0,
    fovy_deg=math.degrees(2 * math.atan(0.25)),  # 5 m wide at the point looked at
    height_m=1.0,
)


def still(*things: Thing, **more: object) -> Record:
    return run(Scene(LOOK, tuple(replace(t, weightless=not t.fixed) for t in things), **more))  # type: ignore[arg-type]


def test_world_points_land_where_geometry_says() -> None:
    lens = Lens(still(Thing("red", "ball", (0.4,), (0.0, 0.0, 1.0))))
    points = np.array([[0.0, 0.0, 1.0], [2.5, 0.0, 1.0], [0.0, 0.0, 3.5], [-1.0, 0.0, 0.0], [1.0, 10.0, 1.0]])
    expected = [[500, 500], [1000, 500], [500, 0], [300, 700], [600, 500]]
    assert lens.project(points) == pytest.approx(np.array(expected))


def test_boxes_fit_ball_and_box_and_are_cut_at_the_picture() -> None:
    ball, box = Thing("red", "ball", (0.5,), (1.0, 0.0, 1.0)), Thing("blue", "box", (0.4, 0.4, 0.4), (-2.4, 0.0, 1.0))
    red, blue = tracks(still(ball, box))
    assert red.box_T4[0] == pytest.approx([600, 400, 800, 600], abs=2)
    assert red.centre_xy_T2[0] == pytest.approx([700, 500])
    near = 9.6  # distance of the box's front face, at which it is drawn widest
    assert blue.box_T4[0] == pytest.approx(
        [0, 500 - 2000 * 0.4 / near, 500 - 2000 * 2.0 / 10.4, 500 + 2000 * 0.4 / near], abs=1
    )
    assert blue.visible_T.all()


def test_an_object_behind_another_or_out_of_the_picture_is_not_visible() -> None:
    hidden = Thing("red", "ball", (0.3,), (0.0, 1.0, 1.0))
    screen = Thing("brown", "box", (0.6, 0.05, 0.6), (0.0, -1.0, 1.0), role="occluder", label="screen", fixed=True)
    half = Thing("green", "ball", (0.3,), (0.75, 1.0, 1.0))
    away = Thing("blue", "ball", (0.3,), (4.0, 0.0, 1.0))
    red, _, green, blue = tracks(still(hidden, screen, half, away))
    assert not red.visible_T.any()
    assert green.visible_T.all()
    assert not blue.visible_T.any()


def test_a_lifted_screen_gives_the_view_free_and_a_removed_ball_is_gone() -> None:
    ball = Thing("red", "ball", (0.3,), (0.0, 1.0, 1.0))
    screen = Thing("brown", "box", (0.6, 0.05, 0.6), (0.0, -1.0, 1.0), role="occluder", label="screen", fixed=True)
    found = still(ball, screen, lifts={"screen": 1.26})
    assert tracks(found)[0].visible_T.tolist() == [False] * 12 + [True] * 4
    gone = still(ball, screen, lifts={"screen": 1.26}, removes={"red ball": 1.2})
    assert not tracks(gone)[0].visible_T.any()
    red = (film(found).pixels_THWC[-1].astype(int) @ [1, -1, -1] > 40).sum()
    assert red > 100
    assert (film(gone).pixels_THWC[-1].astype(int) @ [1, -1, -1] > 40).sum() == 0


def test_the_picture_agrees_with_the_box() -> None:
    record = still(Thing("red", "ball", (0.5,), (1.0, 0.0, 1.5)))
    red = film(record).pixels_THWC[0].astype(int) @ [1, -1, -1] > 40
    rows, columns = np.flatnonzero(red.any(1)), np.flatnonzero(red.any(0))
    drawn = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) / 0.128
    assert tracks(record)[0].box_T4[0] == pytest.approx(drawn, abs=16)  # two pixels
