"""Clips of the robot arm: pure in (task, seed), balanced, and true to the state they were made from."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

pytest.importorskip("cosmos_reason.simulate.manipulation", reason="robot clips need the `sim` extra")

from cosmos_reason.errors import UserError
from cosmos_reason.simulate import manipulation as m
from cosmos_reason.simulate.manipulation_questions import questions
from cosmos_reason.simulate.manipulation_scene import COLOURS, stage
from cosmos_reason.simulate.manipulation_tasks import SPECS
from cosmos_reason.types import Clip, ObjectTrack

clip = cache(m.make_clip)


def named(made: Clip, name: str) -> ObjectTrack:
    return next(track for track in made.timeline.objects if track.name == name)


def seed_of(task: str, success: bool) -> int:
    return next(seed for seed in range(2) if m.succeeds(task, seed) == success)


@pytest.mark.parametrize("task", m.TASKS)
def test_outcomes_are_even_and_do_not_follow_the_seed(task: str) -> None:
    outcomes = [m.succeeds(task, seed) for seed in range(80)]
    assert sum(outcomes) == 40
    assert all(a != b for a, b in zip(outcomes[::2], outcomes[1::2], strict=True))
    assert 8 <= sum(outcomes[::2]) <= 32, "even seeds hold both outcomes"


@pytest.mark.parametrize("task", m.TASKS)
def test_each_kind_of_failure_is_as_frequent_as_the_others(task: str) -> None:
    kinds = [m.draw_failure(task, seed) for seed in range(400)]
    share = 400 / len(SPECS[task].failures)
    assert all(0.7 * share < kinds.count(kind) < 1.3 * share for kind in SPECS[task].failures)


def test_success_and_failure_take_as_many_draws() -> None:
    after = []
    for kind in (None, *SPECS["push"].failures):
        rng = np.random.default_rng(3)
        m.draw_fault(SPECS["push"], kind, rng)
        after.append(rng.random())
    assert len(set(after)) == 1


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(UserError, match=r"no manipulation task 'juggle'.*drawer_close"):
        m.make_clip("juggle", 0)


def test_a_clip_has_sixteen_frames_whatever_the_outcome() -> None:
    for seed in (0, 1):
        made = clip("button_press_topdown", seed)
        assert made.frames.pixels_THWC.shape == (16, 128, 128, 3) and made.frames.pixels_THWC.dtype == np.uint8
        np.testing.assert_array_equal(made.frames.times_s_T, np.arange(16) / 8)
        assert all(0 <= event.start_s <= event.end_s <= 15 / 8 for event in made.timeline.events)
        assert made.timeline.clip_id == f"manipulation_button_press_topdown_{seed}"


def test_a_pressed_button_sank_and_an_unpressed_one_did_not() -> None:
    """From the button's height alone: its travel is 9 cm."""
    for success in (True, False):
        made = clip("button_press_topdown", seed_of("button_press_topdown", success))
        facts = made.timeline.facts
        height_m_T = named(made, str(facts["object"])).position_m_T3[:, 2]
        assert (height_m_T[0] - height_m_T[-1] > 0.06) == success
        assert facts["outcome"] == ("success" if success else "failure")
        assert (facts["failure"] == "none") == success


def test_the_gripper_ends_at_the_ball_when_it_reached_it() -> None:
    for success in (True, False):
        made = clip("reach", seed_of("reach", success))
        ball = str(made.timeline.facts["goal"])
        apart_m = np.linalg.norm(named(made, "gripper").position_m_T3[-1] - named(made, ball).position_m_T3[-1])
        assert (apart_m < 0.06) == success


def test_the_object_is_where_its_box_says() -> None:
    """The first picture: the button's colour fills its box and occurs nowhere else."""
    made = clip("button_press_topdown", 0)
    button = named(made, str(made.timeline.facts["object"]))
    hue_HW3 = made.frames.pixels_THWC[0] / made.frames.pixels_THWC[0].max(axis=2, keepdims=True).clip(1)
    colour = np.array(COLOURS[button.colour])
    coloured_HW = np.linalg.norm(hue_HW3 - colour / colour.max(), axis=2) < 0.25
    x1, y1, x2, y2 = (round(float(v) * 128 / 1000) for v in button.box_T4[0])
    inside = coloured_HW[y1 - 1 : y2 + 2, x1 - 1 : x2 + 2].sum()
    assert inside > 40 and inside >= 0.9 * coloured_HW.sum()
    x, y = button.centre_xy_T2[0] * 128 / 1000
    rows, columns = np.nonzero(coloured_HW)
    assert abs(columns.mean() - x) < 3 and abs(rows.mean() - y) < 4


def test_a_clip_does_not_depend_on_the_clips_before_it() -> None:
    """Another seed and another task in between, so that looks, places and the drawing context have all changed."""
    first = clip("reach", 1)
    m.make_clip("reach", 2)
    m.make_clip("button_press_topdown", 0)
    again = m.make_clip("reach", 1)
    np.testing.assert_array_equal(first.frames.pixels_THWC, again.frames.pixels_THWC)
    for before, after in zip(first.timeline.objects, again.timeline.objects, strict=True):
        assert before.name == after.name
        np.testing.assert_array_equal(before.position_m_T3, after.position_m_T3)
        np.testing.assert_array_equal(before.box_T4, after.box_T4)
    assert first.timeline.facts == again.timeline.facts and first.timeline.events == again.timeline.events


def test_projection_is_that_of_a_pinhole() -> None:
    """By hand: 10 cm above and 10 cm to the camera's right of the point looked at, at distance d and elevation e."""
    setting = stage("reach")
    setting.draw()
    camera, middle_m = setting.camera, np.array(setting.camera.lookat)
    azimuth, elevation = np.deg2rad(camera.azimuth), np.deg2rad(camera.elevation)
    scale = 500 / np.tan(np.deg2rad(45 / 2))
    above_y = 500 - scale * 0.1 * np.cos(elevation) / (camera.distance + 0.1 * np.sin(elevation))
    beside_x = 500 + scale * 0.1 / camera.distance
    beside_m = 0.1 * np.array([np.sin(azimuth), -np.cos(azimuth), 0.0])
    points_m = middle_m + np.stack((np.zeros(3), np.array([0.0, 0.0, 0.1]), beside_m))
    expected = [[500, 500], [500, above_y], [beside_x, 500]]
    np.testing.assert_allclose(setting.project(points_m), expected, atol=0.01)


def test_reset_takes_away_what_another_clip_changed() -> None:
    setting = stage("reach")
    setting.reset(5, np.zeros(3))
    clean = setting.model.light_diffuse.copy(), setting.model.geom_size.copy()
    setting.model.light_diffuse[:], setting.model.geom_size[:] = 0.123, 0.456
    setting.reset(5, np.zeros(3))
    np.testing.assert_array_equal(setting.model.light_diffuse, clean[0])
    np.testing.assert_array_equal(setting.model.geom_size, clean[1])


@pytest.mark.slow
@pytest.mark.parametrize("task", m.TASKS)
def test_every_task_shows_both_outcomes(task: str) -> None:
    """Contact, motion and progress agree with the outcome, and each clip has questions of several kinds."""
    for seed in range(4):
        made = m.make_clip(task, seed)
        facts, kinds = made.timeline.facts, {event.kind for event in made.timeline.events}
        assert (facts["outcome"] == "success") == m.succeeds(task, seed) == ("success" in kinds)
        assert facts["progress"] >= m.DONE if facts["outcome"] == "success" else facts["progress"] <= m.UNDONE
        assert ("contact" in kinds) == facts["contact"] and ("move" in kinds) == facts["moved"]
        assert {"binary", "point", "text"} <= {sample.kind for sample in questions(made.timeline, "a.mp4")}
