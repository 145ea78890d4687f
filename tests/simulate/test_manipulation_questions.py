"""Answers against timelines written by hand: no simulator, every value is known before the question is asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cosmos_reason import ontology
from cosmos_reason.simulate.manipulation_questions import CLEAR_S, questions
from cosmos_reason.simulate.manipulation_tasks import story
from cosmos_reason.types import LETTERS, Event, Fact, ObjectTrack, Sample, Timeline


def track(name: str, role: str, last_xy: tuple[float, float], rise_m: float = 0.0) -> ObjectTrack:
    path_m = np.zeros((16, 3))
    path_m[5:, 2] = rise_m
    centre = np.tile(np.array(last_xy), (16, 1))
    box = np.concatenate((centre - 40, centre + 40), axis=1)
    return ObjectTrack(name, "red", role, role, path_m, centre, box, np.ones(16, dtype=bool))


def timeline(seed: int = 0, **changes: Fact) -> Timeline:
    """A red drawer is touched at 0.8 s, moves to the right from 0.85 s to 1.2 s, and is closed at 1.1 s."""
    facts: dict[str, Fact] = {
        "task": "drawer_close", "outcome": "success", "failure": "none", "object": "red drawer", "goal": "",
        "contact": True, "moved": True, "direction": "right", "progress": 0.9, "instruction": "close the red drawer",
    }  # fmt: skip
    facts.update(changes)
    events = [
        Event("reach", 0.0, 0.8, ("gripper", "red drawer")),
        Event("contact", 0.8, 1.875, ("gripper", "red drawer")),
    ]
    events += [Event("move", 0.85, 1.2, ("red drawer",)), Event("success", 1.1, 1.875, ("red drawer",))]
    objects = (track("gripper", "gripper", (612.4, 300.0)), track("red drawer", "object", (700.6, 512.0)))
    family = f"manipulation_{facts['task']}"
    return Timeline(
        f"{family}_{seed}", family, seed, 8.0, np.arange(16) / 8, objects, tuple(events), facts, story(facts)
    )


def failed(kind: str = "missed", seed: int = 0) -> Timeline:
    """The same drawer, not touched; the gripper ends far from it."""
    made = timeline(seed, outcome="failure", failure=kind, contact=False, moved=False, direction="")
    return replace(made, events=(), objects=(track("gripper", "gripper", (200.0, 300.0)), made.objects[1]))


def ask(made: Timeline) -> dict[str, Sample]:
    return {sample.template: sample for sample in questions(made, "a.mp4")}


def text_of(sample: Sample) -> str:
    assert isinstance(sample.answer, str)
    return sample.options[LETTERS.index(sample.answer)]


def test_a_success_is_told_from_a_failure() -> None:
    done, missed = ask(timeline()), ask(failed())
    expected = {"verification": "yes", "affordance": "yes", "moved": "yes", "touched": "yes"}
    assert {name: done[name].answer for name in expected} == expected
    assert {name: missed[name].answer for name in expected} == dict.fromkeys(expected, "no")
    assert done["verification"].question == "Did the arm close the red drawer?"
    assert done["instruction"].answer == "close the red drawer" and "instruction" not in missed


def test_times_and_points_are_those_of_the_timeline() -> None:
    samples = ask(timeline())
    assert samples["contact_time"].answer == (0.8, 1.88)
    assert samples["motion_time"].answer == (0.85, 1.2)
    assert samples["gripper_point"].answer == (612.0, 300.0)
    assert samples["object_point"].answer == (701.0, 512.0)
    assert "upper right" in samples["gripper_point"].think and "lower right" in samples["object_point"].think
    assert not {"contact_time", "motion_time"} & set(ask(failed()))


@pytest.mark.parametrize(
    ("kind", "wording"),
    [
        ("missed", "the gripper missed the red drawer"),
        ("stopped", "the gripper stopped too early"),
        ("turned_back", "the gripper turned back"),
    ],
)
def test_what_went_wrong_is_the_injected_fault(kind: str, wording: str) -> None:
    sample = ask(failed(kind))["what_went_wrong"]
    assert text_of(sample) == wording and len(sample.options) == 3
    assert "what_went_wrong" not in ask(timeline())


def test_direction_is_asked_for_left_and_right_only() -> None:
    assert text_of(ask(timeline())["direction"]) == "right"
    assert set(ask(timeline())["direction"].options) == {"left", "right"}
    assert "direction" not in ask(timeline(direction="down"))
    assert "direction" not in ask(failed())


def test_what_is_done_is_offered_against_its_opposite() -> None:
    sample = ask(timeline())["action"]
    assert text_of(sample) == "close it" and sample.family == "manipulation_drawer"
    opened = ask(timeline(task="drawer_open"))["action"]
    assert text_of(opened) == "open it" and opened.family == sample.family


def test_a_puck_that_hardly_rose_is_not_asked_whether_it_was_picked_up() -> None:
    made = timeline(task="pick_place", object="red puck", goal="blue ball", instruction="pick up the red puck")
    gripper = made.objects[0]
    for rise_m, asked in ((0.02, False), (0.09, True)):
        lifted = replace(made, objects=(gripper, track("red puck", "object", (500.0, 500.0), rise_m)))
        assert ("action" in ask(lifted)) == asked


def test_what_comes_next_depends_on_the_cut() -> None:
    """0.8 s contact and 1.1 s success: before, between and after have one answer each, near them none."""
    seen = set()
    for seed in range(40):
        sample = ask(timeline(seed)).get("next_action")
        if sample is None:
            continue
        end_s = sample.video.end_s
        assert end_s is not None and min(abs(end_s - 0.8), abs(end_s - 1.1)) >= CLEAR_S
        wanted = "touch the red drawer" if end_s < 0.8 else "move the red drawer" if end_s < 1.1 else "stay where it is"
        assert text_of(sample) == wanted
        seen.add(wanted)
    assert seen == {"touch the red drawer", "stay where it is"}


def test_an_arm_that_goes_on_is_not_said_to_stay() -> None:
    made = timeline()
    gripper = made.objects[0]
    away = gripper.position_m_T3 + np.linspace(0, 0.2, 16)[:, None]
    moving = replace(made, objects=(replace(gripper, position_m_T3=away), made.objects[1]))
    said = {text_of(s) for n in range(40) if (s := ask(replace(moving, clip_id=f"c_{n}")).get("next_action"))}
    assert said == {"touch the red drawer"}  # the cut at 0.875 s is too near the touch, the one at 1.25 s after the end


def test_whether_the_gripper_can_act_is_not_asked_when_it_hides_the_gap() -> None:
    made = failed()
    near = replace(made, objects=(track("gripper", "gripper", (690.0, 500.0)), made.objects[1]))
    assert "affordance" in ask(made) and "affordance" not in ask(near)


@pytest.mark.parametrize("made", [timeline(), failed("stopped"), failed("turned_back")])
def test_samples_are_well_formed(made: Timeline) -> None:
    known = ontology.ids()
    samples = questions(made, "clips/a.mp4")
    assert len({sample.id for sample in samples}) == len(samples)
    for sample in samples:
        assert sample.id == f"{made.clip_id}/{sample.template}" and sample.video.path == "clips/a.mp4"
        assert sample.ontology in known
        assert sample.think.endswith(".") and not any(c.isdigit() for c in sample.think)
        assert (sample.kind == "choice") == bool(sample.options)
        assert len(set(sample.options)) == len(sample.options)
        assert "{" not in sample.question + sample.think


def test_letters_carry_no_information() -> None:
    letters = [ask(failed("missed", seed))["what_went_wrong"].answer for seed in range(120)]
    counts = [letters.count(letter) for letter in "ABC"]
    assert sum(counts) == 120 and min(counts) >= 25
