"""How much an answer is worth: Answer, Sample -> Score. Benchmark metric and reward are this one function.

`value` and the part `correct` are 1 or 0. The part `format` tells whether the reply had the form that was asked for.
Kinds with a graded truth add `dense` in 0..1, a reward for being near, and those about time or place add `in_range`.
Which parts there are is fixed by the question, whatever was answered; all but `format` are 0 when nothing was parsed.

| kind       | correct                                        | dense                                        |
|------------|------------------------------------------------|----------------------------------------------|
| binary     | the same word                                  |                                              |
| choice     | the same letter, the same set of letters       | several right: letters shared / letters in either |
| text       | equal without case, punctuation and articles   | F1 of the words, counted with repeats        |
| number     | within 5 % of the truth                        | mean relative accuracy                       |
| interval   | overlap / union of the times at least 0.5      | overlap / union                              |
| point      | at most 50 of 1000 away                        | 1 at the truth, falling to 0 at 250          |
| box        | overlap / union of the areas at least 0.5      | overlap / union                              |
| trajectory | mean distance at the true times at most 50     | as for a point, of the mean distance         |
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cosmos_reason.types import Answer, Sample, Score

NUMBER_TOLERANCE = 0.05  # of the truth
MIN_OVERLAP = 0.5  # of the union, for intervals and boxes
NEAR = 50.0  # in 0–1000 coordinates
FAR = 250.0  # in 0–1000 coordinates

# Thresholds of mean relative accuracy, arXiv:2412.14171: 0.50, 0.55 … 0.95; an error of just 1 − threshold counts
# as inside, as in vision-x-nyu/thinking-in-space at 51e089c3.
_MRA_ERRORS = tuple(round(0.5 - 0.05 * i, 2) for i in range(10))


class Graded(NamedTuple):
    """A verdict on a typed value: right or not, `dense` in 0..1, and a measure for the reason."""

    correct: bool
    dense: float
    measure: str


def score(answer: Answer, sample: Sample) -> Score:
    """Score a parsed answer. A status other than `ok` earns 0 and is named by the reason, so that it can be counted."""
    parts = {"correct": 0.0, "format": float(answer.format_ok)}
    parts |= dict.fromkeys(_further_parts(sample), 0.0)
    if answer.status != "ok":
        missing = {"no_answer": "no answer is stated", "truncated": "the thinking never ended"}
        reason = missing.get(answer.status, f"the stated answer is not a {sample.kind}")
        return Score(0.0, parts, f"{answer.status}: {reason}")
    graded = _grade(answer, sample)
    parts["correct"] = float(graded.correct)
    reason = f"{'right' if graded.correct else 'wrong'}: {graded.measure}"
    if "dense" in parts:
        parts["dense"] = graded.dense
    if "in_range" in parts:
        outside = _outside(answer, sample)
        parts["in_range"] = float(not outside)
        reason = f"{reason}; {outside}" if outside else reason
    return Score(parts["correct"], parts, reason)


def _further_parts(sample: Sample) -> list[str]:
    """The parts beside `correct` and `format`: `dense` for a graded truth, `in_range` for times and places."""
    graded = sample.kind not in ("binary", "choice") or isinstance(sample.answer, tuple)
    placed = sample.kind in ("interval", "point", "box", "trajectory")
    return ["dense"] * graded + ["in_range"] * placed


def _grade(answer: Answer, sample: Sample) -> Graded:
    """The verdict of the sample's kind on an answer whose status is ok."""
    value: Any = answer.value  # the types of both are fixed by the kind
    gold: Any = sample.answer
    match sample.kind:
        case "choice" if isinstance(gold, str):
            return _same(answer.letter, gold)
        case "choice":
            return _letters(value, gold)
        case "binary":
            return _same(value, gold)
        case "text":
            return _text(str(value), str(gold))
        case "number":
            return _number(float(value), float(gold))
        case "interval":
            return _overlap(interval_overlap(value, gold), "times")
        case "box":
            return _overlap(box_overlap(value, gold), "areas")
        case "point":
            return _near(math.dist(value, gold))
        case "trajectory":
            return _near(trajectory_distance(value, gold))


def _same(given: object, gold: object) -> Graded:
    return Graded(given == gold, float(given == gold), f"{given}, the truth is {gold}")


def _letters(given: Sequence[str], gold: Sequence[str]) -> Graded:
    shared, either = set(given) & set(gold), set(given) | set(gold)
    measure = f"{', '.join(given)}, the truth is {', '.join(sorted(gold))}"
    return Graded(set(given) == set(gold), len(shared) / len(either), measure)


def _text(given: str, gold: str) -> Graded:
    words, gold_words = content_words(given), content_words(gold)
    shared = sum((Counter(words) & Counter(gold_words)).values())
    f1 = 2 * shared / (len(words) + len(gold_words)) if shared else 0.0
    equal = words == gold_words if gold_words else given.strip() == gold.strip()
    return Graded(equal, 1.0 if equal else f1, f"{given!r}, the truth is {gold!r}")


def content_words(text: str) -> list[str]:
    """Words and numbers in lower case, without punctuation and articles."""
    words = re.findall(r"\d+(?:[.,]\d+)*|[^\W\d_]+", text.casefold())
    return [word for word in words if word not in ("a", "an", "the")]


def _number(given: float, gold: float) -> Graded:
    error = relative_error(given, gold)
    return Graded(
        error <= NUMBER_TOLERANCE + 1e-9, mean_relative_accuracy(error), f"{given:.6g}, the truth is {gold:.6g}"
    )


def relative_error(given: float, gold: float) -> float:
    """|given − gold| / |gold|; where the truth is 0, 0.0 if given is 0 too and infinity otherwise."""
    if gold == 0.0:
        return 0.0 if given == 0.0 else math.inf
    return abs(given - gold) / abs(gold)


def mean_relative_accuracy(error: float) -> float:
    """Share of the ten allowed errors 0.50, 0.45 … 0.05 that this relative error does not exceed.

    An error equal to an allowed one counts as inside: 0.10 earns 0.9, 0.5 earns 0.1.
    """
    return sum(error <= allowed + 1e-9 for allowed in _MRA_ERRORS) / len(_MRA_ERRORS)


def interval_overlap(given: Sequence[float], gold: Sequence[float]) -> float:
    """Temporal IoU of two intervals (start_s, end_s); 1.0 for two equal instants."""
    if tuple(given) == tuple(gold):
        return 1.0
    shared = max(0.0, min(given[1], gold[1]) - max(given[0], gold[0]))
    union = (given[1] - given[0]) + (gold[1] - gold[0]) - shared
    return shared / union if union > 0 else 0.0


def box_overlap(given: Sequence[float], gold: Sequence[float]) -> float:
    """IoU of two boxes (x1, y1, x2, y2); 1.0 for two equal ones without area."""
    if tuple(given) == tuple(gold):
        return 1.0
    width = max(0.0, min(given[2], gold[2]) - max(given[0], gold[0]))
    height = max(0.0, min(given[3], gold[3]) - max(given[1], gold[1]))
    area, gold_area = ((box[2] - box[0]) * (box[3] - box[1]) for box in (given, gold))
    union = area + gold_area - width * height
    return width * height / union if union > 0 else 0.0


def trajectory_distance(given: Sequence[Sequence[float]], gold: Sequence[Sequence[float]]) -> float:
    """Mean distance at the true times, in 0–1000 coordinates; between its points the given path is straight.

    Before its first and after its last point the given path stands still. Both are (t_s, x, y), given in time order.
    """
    given_P3, gold_Q3 = np.array(given, dtype=float), np.array(gold, dtype=float)
    at_Q2 = np.stack([np.interp(gold_Q3[:, 0], given_P3[:, 0], given_P3[:, axis]) for axis in (1, 2)], axis=1)
    return float(np.linalg.norm(at_Q2 - gold_Q3[:, 1:], axis=1).mean())


def _overlap(share: float, what: str) -> Graded:
    return Graded(share >= MIN_OVERLAP, share, f"the {what} overlap by {share:.2f} of their union")


def _near(distance: float) -> Graded:
    return Graded(distance <= NEAR, max(0.0, 1.0 - distance / FAR), f"{distance:.0f} of 1000 away from the truth")


def _outside(answer: Answer, sample: Sample) -> str:
    """What lies beyond the clip or the picture, "" if nothing does."""
    value: Any = answer.value
    times: list[float] = []
    places: list[float] = []
    match sample.kind:
        case "interval":
            times = list(value)
        case "point" | "box":
            places = list(value)
        case "trajectory":
            times = [point[0] for point in value]
            places = [number for point in value for number in point[1:]]
    start_s, end_s = sample.video.start_s or 0.0, sample.video.end_s
    late = [t for t in times if t < start_s or (end_s is not None and t > end_s)]
    if late:
        end = "its end" if end_s is None else f"{end_s:.2f} s"
        return f"{late[-1]:.2f} s is beyond the clip, which is {start_s:.2f} s to {end}"
    if any(not 0 <= number <= 1000 for number in places):
        return "a coordinate is beyond the picture, which is 0 to 1000"
    return ""
