"""Questions about a drawn timeline, whose answers are known before they are asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cosmos_reason.simulate.questions import questions
from cosmos_reason.simulate.stories import caption
from cosmos_reason.simulate.told import Told, a, listed
from cosmos_reason.types import LETTERS, Event, ObjectTrack, Sample, Timeline


def still_or_moving(name: str, x_from: float, x_to: float, hidden: tuple[int, ...] = ()) -> ObjectTrack:
    colour, shape = name.split()
    centre = np.stack([np.linspace(x_from, x_to, 16), np.full(16, 500.0)], 1)
    box = np.concatenate([centre - 60, centre + 60], 1)
    visible = np.ones(16, dtype=bool)
    visible[list(hidden)] = False
    return ObjectTrack(name, colour, shape, "object", np.zeros((16, 3)), centre, box, visible)


def slide(outcome: str = "stops") -> Timeline:
    """A red box slides from left to right, from 0.25 s to 1.0 s; a blue cylinder stands on the right."""
    objects = (still_or_moving("blue cylinder", 850, 850), still_or_moving("red box", 100, 600))
    events = (Event("move", 0.25, 1.0, ("red box",)),)
    facts = {"outcome": outcome, "mover": "red box"}
    return Timeline("slide_5", "slide", 5, 8.0, np.arange(16) / 8, objects, events, facts)


def answers(timeline: Timeline) -> dict[str, object]:
    def text(s: Sample) -> object:
        return s.options[LETTERS.index(str(s.answer))] if s.kind == "choice" else s.answer

    return {s.template: text(s) for s in questions(timeline, "a.mp4")}


def test_answers_follow_from_the_timeline() -> None:
    found = answers(slide())
    expected = {
        "objects": 2.0, "which_moves": "the red box", "say_which_moves": "the red box", "direction": "to the right",
        "outermost_start": None, "when_moves": (0.25, 1.0), "passes": "no", "end": "before the line",
    }  # fmt: skip
    expected["outermost_start"] = found["outermost_start"]
    assert {key: found[key] for key in expected} == expected
    assert found["outermost_start"] in ("the red box", "the blue cylinder")
    assert answers(slide("passes"))["passes"] == "yes"


def test_a_box_beside_the_stack_is_not_of_it() -> None:
    names = ("red box", "blue box", "white box")
    objects = tuple(still_or_moving(name, x, x) for name, x in zip(names, (500, 500, 850), strict=True))
    facts = {"outcome": "stands", "direction": "none", "top": "blue box", "bottom": "red box", "blocks": 2.0}
    assert answers(Timeline("tower_5", "tower", 5, 8.0, np.arange(16) / 8, objects, (), facts))["boxes"] == 2.0


def test_a_ball_that_came_out_and_left_is_not_asked_for_at_the_end() -> None:
    facts = {"outcome": "seen again", "ending": "out", "mover": "red ball", "screen": "screen"}
    screen = replace(still_or_moving("grey box", 500, 500), name="screen", role="occluder")
    for hidden, spans, asked in (((7, 8), ((0.9, 1.1),), True), ((7, 8, 15), ((0.9, 1.1), (1.9, 2.0)), False)):
        ball = still_or_moving("red ball", 100, 950, hidden)
        events = tuple(Event("hidden", start, max(end, start + 0.3), ("red ball",)) for start, end in spans)
        said = []
        for seed in range(30):
            made = Timeline(f"occluder_{seed}", "occluder", seed, 8.0, np.arange(16) / 8, (ball, screen), events, facts)
            found = {s.template: s for s in questions(made, "a.mp4")}
            assert found["seen_again"].answer == "yes"
            assert ("hidden" in found) == asked
            said.append("at the end" in found["seen_again"].question)
        assert any(said) == asked


def test_sides_are_those_of_the_picture() -> None:
    for s in questions(slide(), "a.mp4"):
        if s.template.startswith("outermost"):
            leftmost = "left" in s.question
            assert s.options[LETTERS.index(str(s.answer))] == ("the red box" if leftmost else "the blue cylinder")
        if s.template.startswith("left_of"):
            assert s.answer == ("yes" if s.question.startswith("Is the red box") else "no")


def test_points_and_captions_are_read_from_the_tracks() -> None:
    for s in questions(slide(), "a.mp4"):
        if s.template == "point_last":
            assert s.answer == ((600.0, 500.0) if "red box" in s.question else (850.0, 500.0))
    assert caption(Told(slide())) == (
        "There are a blue cylinder on the right and a red box on the left. "
        "The red box slides to the right. It gets slower and stops before the line."
    )


def test_nothing_is_asked_that_the_pictures_leave_open() -> None:
    drift = still_or_moving("red box", 500, 540)  # two and a half pixels of 64
    there_and_back = ObjectTrack(
        "green ball", "green", "ball", "object", np.zeros((16, 3)),
        np.stack([500 + 200 * np.sin(np.linspace(0, np.pi, 16)), np.full(16, 500.0)], 1), np.zeros((16, 4)),
        np.ones(16, dtype=bool),
    )  # fmt: skip
    told = Told(Timeline("slide_5", "slide", 5, 8.0, np.arange(16) / 8, (drift, there_and_back)))
    assert told.moving("red box") is None
    assert told.moving("green ball") is True
    assert told.direction("red box") is told.direction("green ball") is None
    assert not told.clear_motion()
    assert told.ordered_at(0) is None  # they stand in one place
    hidden = Told(Timeline("s", "slide", 5, 8.0, np.arange(16) / 8, (still_or_moving("red box", 1, 2, (0,)), drift)))
    assert hidden.ordered_at(0) is None


def test_wording_and_order_of_options_depend_on_the_clip_alone() -> None:
    stops, passes = questions(slide("stops"), "a.mp4"), questions(slide("passes"), "b.mp4")
    for one, two in zip(stops, passes, strict=True):
        assert one.question == two.question
    assert questions(slide(), "a.mp4") == stops


def test_words() -> None:
    assert [a("orange ball"), a("red box")] == ["an orange ball", "a red box"]
    assert [listed(["x"]), listed(["x", "y"]), listed(["x", "y", "z"])] == ["x", "x and y", "x, y and z"]
