"""Scores against values computed by hand."""

from __future__ import annotations

import pytest

from cosmos_reason.text.answer import parse
from cosmos_reason.text.scoring import (
    box_overlap,
    content_words,
    interval_overlap,
    mean_relative_accuracy,
    relative_error,
    score,
    trajectory_distance,
)
from cosmos_reason.types import Answer, Gold, Kind, Sample, Score, VideoRef

CLIP = VideoRef("a.mp4", 0.0, 13.0)


def scored(
    kind: Kind, gold: Gold, text: str, video: VideoRef = CLIP, options: tuple[str, ...] = (), unit: str = ""
) -> Score:
    sample = Sample("s", kind, "?", gold, video, options, unit)
    return score(parse(text, sample), sample)


@pytest.mark.parametrize(
    ("kind", "gold", "text", "correct", "dense"),
    [
        ("number", 100.0, "100", 1.0, 1.0),
        ("number", 100.0, "105", 1.0, 1.0),
        ("number", 100.0, "106", 0.0, 0.9),  # 0.05 is exceeded, the nine others are not
        ("number", 10.0, "9", 0.0, 0.9),
        ("number", 10.0, "5", 0.0, 0.1),
        ("number", 10.0, "-10", 0.0, 0.0),
        ("number", 0.0, "0", 1.0, 1.0),
        ("number", 0.0, "0.1", 0.0, 0.0),
        ("interval", (1.0, 3.0), "2 - 4", 0.0, 1 / 3),
        ("interval", (1.0, 3.0), "1 - 2", 1.0, 0.5),
        ("interval", (1.0, 3.0), "5 - 6", 0.0, 0.0),
        ("box", (0.0, 0.0, 100.0, 100.0), "[0, 0, 100, 50]", 1.0, 0.5),
        ("box", (0.0, 0.0, 100.0, 100.0), "[50, 50, 150, 150]", 0.0, 1 / 7),
        ("point", (500.0, 500.0), "[530, 540]", 1.0, 0.8),
        ("point", (500.0, 500.0), "[560, 580]", 0.0, 0.6),
        ("point", (500.0, 500.0), "[900, 500]", 0.0, 0.0),
        ("trajectory", ((0.0, 0.0, 0.0), (2.0, 100.0, 0.0)), "[[0, 0, 0], [2, 100, 50]]", 1.0, 0.9),
        ("trajectory", ((0.0, 0.0, 0.0), (2.0, 100.0, 0.0)), "[[0, 0, 200], [2, 100, 0]]", 0.0, 0.6),
        ("text", "the red ball", "A red ball.", 1.0, 1.0),
        ("text", "the red ball", "red box", 0.0, 0.5),
        ("text", "the red ball", "red red box", 0.0, 0.4),  # one of 3 words, one of 2
        ("text", "the red ball", "a blue box", 0.0, 0.0),
    ],
)
def test_correct_and_dense(kind: Kind, gold: Gold, text: str, correct: float, dense: float) -> None:
    got = scored(kind, gold, text)
    assert (got.value, got.parts["correct"]) == (correct, correct)
    assert got.parts["dense"] == pytest.approx(dense)
    assert got.reason.startswith("right: " if correct else "wrong: ")


def test_several_letters_share_their_credit() -> None:
    options = ("w", "x", "y", "z")
    assert scored("choice", ("A", "C"), "A, B", options=options).parts["dense"] == pytest.approx(1 / 3)
    assert scored("choice", ("A", "C"), "C", options=options).parts["dense"] == 0.5
    assert scored("choice", ("A", "C"), "C", options=options).value == 0.0
    assert scored("choice", ("A", "C"), "CA", options=options).value == 1.0


def test_wrong_answers_earn_nothing_and_say_why() -> None:
    assert scored("binary", "yes", "No") == Score(0.0, {"correct": 0.0, "format": 0.0}, "wrong: no, the truth is yes")
    wrong = scored("choice", "A", "<think>x</think><answer>B</answer>", options=("left", "right"))
    assert wrong == Score(0.0, {"correct": 0.0, "format": 1.0}, "wrong: B, the truth is A")


@pytest.mark.parametrize(
    ("kind", "gold", "right", "wrong", "further"),
    [
        ("binary", "yes", "Yes", "No", []),
        ("choice", "A", "A", "B", []),
        ("choice", ("A", "B"), "A, B", "A", ["dense"]),
        ("text", "red ball", "red ball", "blue box", ["dense"]),
        ("number", 3.0, "3", "8", ["dense"]),
        ("interval", (3.0, 4.0), "3 - 4", "5 - 6", ["dense", "in_range"]),
        ("point", (5.0, 5.0), "[5, 5]", "[900, 5]", ["dense", "in_range"]),
        ("box", (0.0, 0.0, 9.0, 9.0), "[0, 0, 9, 9]", "[50, 50, 90, 90]", ["dense", "in_range"]),
        ("trajectory", ((1.0, 5.0, 5.0),), "[[1, 5, 5]]", "[[1, 900, 5]]", ["dense", "in_range"]),
    ],
)
def test_parts_have_the_same_names_whatever_was_answered(
    kind: Kind, gold: Gold, right: str, wrong: str, further: list[str]
) -> None:
    options = ("left", "right") if kind == "choice" else ()
    texts = [right, wrong, "<think>x", "", "<answer>E, ?</answer>" if kind != "text" else "<answer> </answer>"]
    scores = [scored(kind, gold, text, options=options) for text in texts]
    assert [list(got.parts) for got in scores] == [["correct", "format", *further]] * len(texts)
    assert [got.parts["correct"] for got in scores] == [1.0, 0.0, 0.0, 0.0, 0.0]
    for got in scores[2:]:
        assert got.parts == dict.fromkeys(got.parts, 0.0)
    assert scores[4].reason.startswith("no_answer" if kind == "text" else "malformed")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<think>x", "truncated: the thinking never ended"),
        ("I cannot see", "no_answer: no answer is stated"),
        ("<answer>far</answer>", "malformed: the stated answer is not a number"),
    ],
)
def test_a_status_is_named_so_that_it_can_be_counted(text: str, reason: str) -> None:
    got = scored("number", 3.0, text)
    assert (got.value, got.reason) == (0.0, reason)


@pytest.mark.parametrize(
    ("kind", "gold", "text", "reason"),
    [
        ("interval", (11.0, 13.0), "11 - 20", "20.00 s is beyond the clip, which is 0.00 s to 13.00 s"),
        ("interval", (11.0, 13.0), "-1 - 13", "-1.00 s is beyond the clip"),
        ("trajectory", ((1.0, 5.0, 5.0),), "[[14, 5, 5]]", "14.00 s is beyond the clip"),
        ("trajectory", ((1.0, 5.0, 5.0),), "[[1, 5, 1005]]", "a coordinate is beyond the picture"),
        ("point", (990.0, 5.0), "[1005, 5]", "a coordinate is beyond the picture"),
        ("box", (0.0, 0.0, 9.0, 9.0), "[-1, 0, 9, 9]", "a coordinate is beyond the picture"),
    ],
)
def test_times_and_places_beyond_the_clip_are_counted(kind: Kind, gold: Gold, text: str, reason: str) -> None:
    got = scored(kind, gold, text)
    assert got.parts["in_range"] == 0.0
    assert reason in got.reason


def test_range_starts_and_ends_with_the_clip() -> None:
    inside = scored("interval", (3.0, 4.0), "3 - 4", VideoRef("a.mp4", 2.0, 5.0))
    assert (inside.parts["in_range"], inside.reason) == (1.0, "right: the times overlap by 1.00 of their union")
    early = scored("interval", (3.0, 4.0), "1 - 4", VideoRef("a.mp4", 2.0, None))
    assert (early.parts["in_range"], "2.00 s to its end" in early.reason) == (0.0, True)
    assert scored("interval", (3.0, 4.0), "3 - 400", VideoRef("a.mp4")).parts["in_range"] == 1.0
    assert "in_range" not in scored("binary", "yes", "yes").parts


def test_units_are_converted() -> None:
    assert scored("number", 3.5, "350 cm", unit="m").value == 1.0
    assert scored("number", 3.5, "350", unit="m").value == 0.0
    assert scored("number", 3.5, "<answer>3.5 kg</answer>", unit="m").reason.startswith("malformed")


def test_borders_of_mean_relative_accuracy() -> None:
    assert mean_relative_accuracy(relative_error(0.9, 1.0)) == 0.9
    assert mean_relative_accuracy(relative_error(1.1, 1.0)) == 0.9
    assert mean_relative_accuracy(relative_error(0.5, 1.0)) == 0.1
    assert mean_relative_accuracy(0.5001) == 0.0
    assert mean_relative_accuracy(0.0501) == 0.9


def test_overlaps_without_extent() -> None:
    assert interval_overlap((2.0, 2.0), (2.0, 2.0)) == 1.0
    assert interval_overlap((2.0, 2.0), (3.0, 3.0)) == 0.0
    assert interval_overlap((1.0, 1.5), (1.2, 1.2)) == 0.0
    assert box_overlap((1, 1, 1, 1), (1, 1, 1, 1)) == 1.0
    assert box_overlap((1, 1, 1, 1), (2, 2, 2, 2)) == 0.0


def test_path_is_straight_between_points_and_rests_outside() -> None:
    given = ((1.0, 0.0, 0.0), (3.0, 100.0, 0.0))
    assert trajectory_distance(given, ((2.0, 50.0, 0.0),)) == 0.0
    assert trajectory_distance(given, ((0.0, 0.0, 30.0), (9.0, 100.0, 10.0))) == 20.0


def test_content_words() -> None:
    assert content_words("The ball's 3.5 kg, an Apple!") == ["ball", "s", "3.5", "kg", "apple"]


def test_a_bug_is_not_a_score() -> None:
    sample = Sample("s", "point", "?", (1.0, 2.0), CLIP)
    with pytest.raises(TypeError):
        score(Answer("", "x", None, "ok", None), sample)
