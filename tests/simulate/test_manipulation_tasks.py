"""The wording of tasks and failures: complete sentences for everything that can happen, and nothing left unfilled."""

from __future__ import annotations

from itertools import product

import pytest

from cosmos_reason.simulate.manipulation_tasks import SPECS, TASKS, WRONG, motion, story, words
from cosmos_reason.types import Fact


def facts(task: str, failure: str, contact: bool, moved: bool) -> dict[str, Fact]:
    spec = SPECS[task]
    return {
        "task": task, "outcome": "success" if failure == "none" else "failure", "failure": failure,
        "object": "gripper" if task == "reach" else f"red {spec.noun}", "goal": "blue ball" if spec.goal else "",
        "contact": contact, "moved": moved, "direction": "left",
    }  # fmt: skip


def possible(task: str) -> list[dict[str, Fact]]:
    cases = [facts(task, "none", task != "reach", True)]
    for failure in SPECS[task].failures:
        if task == "reach":
            cases.append(facts(task, failure, False, True))
        if task != "reach" and failure in ("missed", "stopped", "turned_back"):
            cases.append(facts(task, failure, False, False))
        if task != "reach" and failure in ("stopped", "dropped", "wrong_place"):
            cases.append(facts(task, failure, True, True))
    return cases


@pytest.mark.parametrize("task", TASKS)
def test_every_story_is_three_filled_sentences(task: str) -> None:
    stories = [story(case) for case in possible(task)]
    for text in stories:
        assert "{" not in text and "  " not in text
        assert text.count(".") == 3 and text.endswith(".")
    assert len(set(stories)) == len(stories), "each way to end reads differently"


@pytest.mark.parametrize("task", TASKS)
def test_wording_names_the_goal_only_where_there_is_one(task: str) -> None:
    spec = SPECS[task]
    for text in (spec.instruction, spec.question, spec.done, spec.undone):
        assert spec.goal or "{g}" not in text
        assert "{" not in words(text, facts(task, "none", True, True))
    assert set(spec.failures) <= set(WRONG) and len(set(spec.failures)) == len(spec.failures)


def test_cameras_stand_on_mirrored_sides() -> None:
    """Mirrored in the plane through the robot and the table, azimuths a and 180 - a: left and right trade places."""
    for task, spec in SPECS.items():
        first, second = spec.azimuths_deg
        assert (first + second) % 360 == 180, task


def test_direction_is_said_only_when_known() -> None:
    known = facts("drawer_close", "none", True, True)
    assert motion(known) == "The red drawer moves left with the gripper."
    assert motion({**known, "direction": ""}) == "The red drawer moves with the gripper."


def test_tasks_come_in_the_order_of_their_table() -> None:
    assert tuple(SPECS) == TASKS
    assert all(a < b for a, b in (spec.early for spec in SPECS.values()))
    pairs = product(TASKS, ("none",))
    assert {SPECS[task].noun for task, _ in pairs} == {"drawer", "door", "button", "puck", "gripper"}
