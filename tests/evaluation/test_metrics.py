"""Accuracy with clustered intervals, against hand-computed values."""

import math

import pytest

from cosmos_reason.evaluation.metrics import Scored, accuracy, by_group, chance_of
from cosmos_reason.types import Sample, VideoRef


def test_interval_treats_the_clip_as_the_unit():
    # Eight clips of two alike questions, half right: residuals ±1, variance = 8/7 * 8 / 256.
    rows = [Scored(str(clip), "g", clip % 2, 0.5) for clip in range(8) for _ in range(2)]
    result = accuracy(rows)
    assert (result.mean, result.count, result.chance) == (0.5, 16, 0.5)
    assert result.high == pytest.approx(0.5 + 1.96 * math.sqrt(8 / 7 * 8 / 256))
    # The same answers over sixteen clips: residuals ±0.5, variance = 16/15 * 4 / 256.
    spread = accuracy([Scored(str(i), "g", r.value, 0.5) for i, r in enumerate(rows)])
    assert spread.low == pytest.approx(0.5 - 1.96 * math.sqrt(16 / 15 * 4 / 256))


def test_one_clip_says_nothing_about_others():
    result = accuracy([Scored("a", "g", 1, 0.5)] * 5)
    assert (result.low, result.high) == (0.0, 1.0)


@pytest.mark.parametrize(("value", "low", "high"), [(1.0, 4 / (4 + 1.96**2), 1.0), (0.0, 0.0, 1 - 4 / (4 + 1.96**2))])
def test_all_right_is_no_proof_of_always_right(value, low, high):
    result = accuracy([Scored(f"clip{i % 4}", "g", value, 0.5) for i in range(40)])
    assert result.mean == value
    # four clips are little, however often they are asked about
    assert (result.low, result.high) == (pytest.approx(low), pytest.approx(high))


def test_no_question_gives_no_number():
    assert math.isnan(accuracy([]).mean)


def test_groups_come_from_the_data():
    groups = by_group([Scored("a", "x", 1, 0.5), Scored("b", "y", 0, 0.25)])
    assert list(groups) == ["x", "y"]
    assert groups["y"].chance == 0.25


@pytest.mark.parametrize(
    ("kind", "options", "chance"),
    [("binary", (), 0.5), ("choice", ("a", "b", "c", "d"), 0.25), ("choice", ("a", "b"), 0.5), ("text", (), 0.0)],
)
def test_chance(kind, options, chance):
    assert chance_of(Sample("i", kind, "q", "A", VideoRef("v"), options)) == chance
