"""Typed values in the forms that models write them."""

from __future__ import annotations

import pytest

from cosmos_reason.text.answer import parse
from cosmos_reason.text.values import read_box, read_interval, read_number, read_point, read_trajectory
from cosmos_reason.types import Sample, VideoRef


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("about 3", "", 3.0),
        ("1,200 cm", "", 1200.0),
        ("1,200 cm", "m", 12.0),
        ("3m", "", 3.0),
        ("3e2", "", 300.0),
        ("42.0", "", 42.0),
        ("1,000", "", 1000.0),
        ("1,234,567.5", "", 1234567.5),
        ("-0.5", "m", -0.5),
        ("−0.5", "m", -0.5),
        ("+3", "", 3.0),
        (".5", "", 0.5),
        ("3.", "", 3.0),
        ("3 × 10^2", "", 300.0),
        (r"$3 \times 10^{-2}$", "", 0.03),
        ("**3.5** m/s", "m/s", 3.5),
        ("3.5 meters per second", "m/s", 3.5),
        ("36 km/h", "m/s", 10.0),
        ("9.8 m/s^2", "m/s^2", 9.8),
        ("90°", "deg", 90.0),
        ("50%", "%", 50.0),
        ("500 ms", "s", 0.5),
        ("3 balls", "m", 3.0),
        ("3 kg", "m", None),
        ("3 m", "m/s", None),
        ("The speed is v = 6/2 = 3 m/s", "m/s", 3.0),
        ("It moved 6 m in 2 s.\nThe answer is 3 m/s", "m/s", 3.0),
        ("It moved 6 m in 2 s.\n3 m/s", "m/s", 3.0),
        ("Answer: 4\nAnswer: 5", "", 5.0),
        (r"\boxed{7} … \boxed{7}", "", 7.0),
        ("The answer is 3 m. It was 2 m before.", "m", 3.0),
        ('{"answer": 3.5}', "", 3.5),
        ("Two", "", 2.0),
        ("I count two balls, two.", "", 2.0),
        ("The answer cannot be 3.", "", None),
        ("The answer is not 3.", "", None),
        ("The answer should not be 1,200", "", None),
        ("The wrong answer is 3", "", None),
        ("I don't think the answer is 3.5.", "", None),
        ("The answer cannot be 3, since 3 is too large.", "", None),
        ("The answer cannot be 3. It is 4.", "", 4.0),
        ("The answer is not 3 but 4", "", 4.0),
        ("The answer is not exact, about 3", "", 3.0),
        ("3,5", "", None),
        ("1,2000", "", None),
        ("3 to 4", "", None),
        ("Answer: 3-4", "", None),
        ("3/4", "", None),
        ("1:30", "", None),
        ("1.2.3", "", None),
        ("It moved 6 m in 2 s.", "", None),
        ("1e999", "", None),
        ("nan", "", None),
        ("several", "", None),
        ("", "", None),
    ],
)
def test_number(text: str, unit: str, number: float | None) -> None:
    assert read_number(text, unit) == (number if number is None else pytest.approx(number, rel=1e-12))


def test_number_after_thinking() -> None:
    sample = Sample("s", "number", "?", 3.0, VideoRef("a.mp4"))
    assert parse("<think>x 7</think>3", sample).value == 3.0
    assert parse("<think>7", sample).status == "truncated"


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("1.25 - 2.50", (1.25, 2.5)),
        ("1.25-2.50", (1.25, 2.5)),
        ("1.25 – 2.50 s", (1.25, 2.5)),
        ("1.25 s to 2.5 s", (1.25, 2.5)),
        ("from 1.25s until 2.5 seconds", (1.25, 2.5)),
        ("between 1.25 and 2.5 seconds", (1.25, 2.5)),
        ("[1.25, 2.5]", (1.25, 2.5)),
        ("<1.25, 2.5>", (1.25, 2.5)),
        ("1.25 -> 2.5", (1.25, 2.5)),
        ('{"start": 1.25, "end": 2.5}', (1.25, 2.5)),
        ('```json\n{"start_s": 1.25,\n "end_s": 2.5}\n```', (1.25, 2.5)),
        ('{"start": "00:01.25", "end": "00:02.50", "caption": "falls"}', (1.25, 2.5)),
        ("00:01.25 - 00:02.50", (1.25, 2.5)),
        ("01:02:03 - 01:02:04.5", (3723.0, 3724.5)),
        ("start: 1 s, end: 2 s", (1.0, 2.0)),
        ("3 - 3", (3.0, 3.0)),
        ("-1 - 2", (-1.0, 2.0)),
        ("It could be 1 - 2. The answer is 3 - 4.", (3.0, 4.0)),
        ("The answer cannot be 1 - 2.", None),
        ("The wrong answer is 1 - 2, the answer is 3 - 4", (3.0, 4.0)),
        ("2.5 - 1.25", None),
        ("1 - 2, or else 3 - 4", None),
        ("at 2.5", None),
        ("early", None),
    ],
)
def test_interval(text: str, interval: tuple[float, float] | None) -> None:
    assert read_interval(text) == interval


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("[512, 300]", (512.0, 300.0)),
        ("(512,300)", (512.0, 300.0)),
        ("[[512, 300.5]]", (512.0, 300.5)),
        ("512, 300", (512.0, 300.0)),
        ("x=512, y=300", (512.0, 300.0)),
        ('{"x": 512, "y": 300}', (512.0, 300.0)),
        ('```json\n[{"point_2d": [512, 300], "label": "ball 2"}]\n```', (512.0, 300.0)),
        ("The answer is (512, 300), near [500, 300]? No: the answer is (512, 300).", (512.0, 300.0)),
        ("I don't think the answer is [512, 300].", None),
        ("The answer is not [1, 2] but [512, 300]", (512.0, 300.0)),
        ("[-3, 1200]", (-3.0, 1200.0)),
        ("[1, 2, 3]", None),
        ("[1, 2] or [3, 4]", None),
        ("[1e999, 3]", None),
        ("512", None),
        ("the middle", None),
    ],
)
def test_point(text: str, point: tuple[float, float] | None) -> None:
    assert read_point(text) == point


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("[100, 50, 400, 300]", (100.0, 50.0, 400.0, 300.0)),
        ("(100, 50), (400, 300)", (100.0, 50.0, 400.0, 300.0)),
        ("100 50 400 300", (100.0, 50.0, 400.0, 300.0)),
        ('{"x1": 100, "y1": 50, "x2": 400, "y2": 300}', (100.0, 50.0, 400.0, 300.0)),
        ('```json\n{"box_2d": [100, 50, 400, 300,]}\n```', (100.0, 50.0, 400.0, 300.0)),
        ("The answer should not be [100, 50, 400, 300]", None),
        ("[400, 50, 100, 300]", None),
        ("[100, 50, 400]", None),
        ("[0, 0, 1, 1] [0, 0, 2, 2]", None),
    ],
)
def test_box(text: str, box: tuple[float, ...] | None) -> None:
    assert read_box(text) == box


PATH = ((0.5, 512.0, 300.0), (1.0, 520.0, 310.0))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[[0.5, 512, 300], [1.0, 520, 310]]", PATH),
        ("[[1.0, 520, 310], [0.5, 512, 300]]", PATH),
        ('[{"t": 0.5, "x": 512, "y": 300}, {"t": 1, "x": 520, "y": 310}]', PATH),
        ('[{"point_2d": [512, 300], "time_s": 0.5}, {"point_2d": [520, 310], "time_s": 1.0}]', PATH),
        ('[{"point_2d": [512, 300], "label": "a"}, {"point_2d": [520, 310], "label": "a"}]', PATH),
        ("0.5s: (512, 300)\n1.0s: (520, 310)", PATH),
        ("```json\n[[512, 300], [520, 310]]\n```", PATH),
        ("[[0.5, 512, 300]]", PATH[:1]),
        ("The wrong answer is [[0.5, 512, 300]]", None),
        ("[[512, 300]]", None),
        ("[[0.5, 512, 300], [0.5, 520, 310]]", None),
        ("[[0.5, 512, 300], [1.0, 520,", None),
        ("it falls", None),
    ],
)
def test_trajectory(text: str, path: tuple[tuple[float, float, float], ...] | None) -> None:
    assert read_trajectory(text, [0.5, 1.0]) == path
