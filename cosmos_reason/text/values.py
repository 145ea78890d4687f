"""Reads typed values: plain final text -> number, interval, point, box or trajectory, or None when it is not one.

Plain and JSON forms, fenced or not, are read by the same rule: groups of numbers in brackets, else exactly as many
numbers as the kind has. Two different values in the last answer statement are no answer, nor is one that is denied.

Rule of numbers: a comma separates thousands only before groups of three digits, elsewhere ("3,5") the number is not
read; 3e2 and 3 × 10^2 are 300; "about" and a unit are allowed; a known unit is converted to the sample's unit, one
of another dimension makes the answer unreadable, an unknown one is ignored; zero to twelve may be words.
Times are seconds or [hh:]mm:ss[.ff]; coordinates are as written, in 0–1000.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from cosmos_reason.text.statements import FILLER, affirmed, last_statement, plain, stated

T = TypeVar("T", bound=Hashable)

_NUMBER = (
    r"(?<![\w.,])(?<!\d/)(?<!\d:)[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
    r"(?!\d|[,./:]\d)"
)
_UNIT = r"(?:\s*(?P<unit>[A-Za-zµ°%]+(?:/[A-Za-z]+(?:\^?[2²])?)?))?"
_QUANTITY = re.compile(rf"(?P<number>{_NUMBER}){_UNIT}")
_ABOUT = r"(?:(?:about|approximately|approx\.?|around|roughly|nearly|almost|~|≈|=)\s*)*"
_RANGE = re.compile(r"\s*(?:-|to|or|and)\s*[-+]?\.?\d")
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_WORD = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b", re.IGNORECASE)

# unit -> (dimension, size in the dimension's first unit)
_UNITS: dict[str, tuple[str, float]] = {
    **dict.fromkeys(("m", "meter", "meters", "metre", "metres"), ("length", 1.0)),
    **dict.fromkeys(("cm", "centimeter", "centimeters", "centimetre", "centimetres"), ("length", 0.01)),
    **dict.fromkeys(("mm", "millimeter", "millimeters", "millimetre", "millimetres"), ("length", 0.001)),
    **dict.fromkeys(("km", "kilometer", "kilometers", "kilometre", "kilometres"), ("length", 1000.0)),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), ("time", 1.0)),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), ("time", 0.001)),
    **dict.fromkeys(("min", "minute", "minutes"), ("time", 60.0)),
    **dict.fromkeys(("h", "hr", "hour", "hours"), ("time", 3600.0)),
    **dict.fromkeys(("s2", "s^2", "s²"), ("time squared", 1.0)),
    **dict.fromkeys(("kg", "kilogram", "kilograms"), ("mass", 1.0)),
    **dict.fromkeys(("g", "gram", "grams"), ("mass", 0.001)),
    **dict.fromkeys(("°", "deg", "degree", "degrees"), ("angle", 1.0)),
    **dict.fromkeys(("rad", "radian", "radians"), ("angle", 180.0 / math.pi)),
    **dict.fromkeys(("%", "percent"), ("share", 1.0)),
}

_COORDINATE = r"[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_LONE_COORDINATE = re.compile(rf"(?<![\w.]){_COORDINATE}(?![\w.]*\d)")
_TIME = r"(?:(?:\d+:)?\d+:\d{2}(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
_SECONDS = r"(?:\s*(?:s|secs?|seconds?)\b)?"
_START_END = re.compile(
    rf"\bstart(?:_s|_time|_seconds)?\s*[:=]\s*(-?{_TIME}){_SECONDS}[\s,;]*(?:and\s+)?"
    rf"\bend(?:_s|_time|_seconds)?\s*[:=]\s*(-?{_TIME})",
    re.IGNORECASE,
)
_FROM_TO = re.compile(
    rf"(?<![\w.:])(-?{_TIME}){_SECONDS}\s*(?:-+>?|→|to\b|until\b|and\b|[,;]|\.\.+)\s*({_TIME})(?![\d:])", re.IGNORECASE
)
_OBJECT = re.compile(r"\{[^{}]*\}")
_TIME_KEY = re.compile(rf"\b(?:t|t_s|time|time_s|timestamp)\s*[:=]\s*({_TIME})", re.IGNORECASE)


def read_number(text: str, unit: str = "") -> float | None:
    """The number that the text states, in `unit`. Example: ``read_number("about 1,200 cm", "m")`` is 12.0."""
    text = re.sub(r"(?<!\s)\s+per\s+", "/", affirmed(plain(text)))
    start = rf"\s*{FILLER}{_ABOUT}"
    for segment in stated(text):
        offset = re.match(start, segment, re.IGNORECASE)
        match = _QUANTITY.match(segment, offset.end() if offset else 0)
        if match:
            return None if _RANGE.match(segment, match.end()) else _in_unit(match, unit)
    equals = list(re.finditer(rf"=\s*(?=[-+.\d]){_QUANTITY.pattern}", text))
    if equals:
        return _in_unit(equals[-1], unit)
    whole = re.compile(rf"{start}{_QUANTITY.pattern}[.!]?", re.IGNORECASE)
    alone = [match for line in text.splitlines() if (match := whole.fullmatch(line.strip("#>• \t")))]
    if alone:
        return _in_unit(alone[-1], unit)
    return _only(_in_unit(match, unit) for match in _QUANTITY.finditer(text)) if re.search(r"\d", text) else _word(text)


def _in_unit(match: re.Match[str], unit: str) -> float | None:
    """The quantity in the wanted unit; None for another dimension or a number beyond float64."""
    value = float(match["number"].replace(",", ""))
    if not math.isfinite(value):
        return None
    given, wanted = _known_unit(match["unit"] or ""), _known_unit(unit)
    if given is None or wanted is None:
        return value
    if given[0] != wanted[0]:
        return None
    return value if given[1] == wanted[1] else value * given[1] / wanted[1]


def _known_unit(unit: str) -> tuple[str, float] | None:
    """Dimension and size of a unit or of a quotient of two."""
    parts = [_UNITS.get(part.strip()) or _UNITS.get(part.strip().lower()) for part in unit.split("/")]
    if len(parts) == 1:
        return parts[0]
    if len(parts) != 2 or parts[0] is None or parts[1] is None:
        return None
    return f"{parts[0][0]}/{parts[1][0]}", parts[0][1] / parts[1][1]


def _word(text: str) -> float | None:
    """The one number word of the text."""
    return _only(float(_WORDS.index(match[0].lower())) for match in _WORD.finditer(text))


def _only(values: Iterable[T | None]) -> T | None:
    """The value, if all are one and the same."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def read_interval(text: str) -> tuple[float, float] | None:
    """Start and end in seconds. Examples: ``1.25 - 2.50``, ``00:01.25 to 00:02.50``, ``{"start": 1, "end": 2.5}``."""
    text = last_statement(affirmed(plain(text)))
    found = [*_START_END.finditer(text)] or [*_FROM_TO.finditer(text)]
    interval = _only((_seconds(match[1]), _seconds(match[2])) for match in found)
    return interval if interval is not None and interval[0] <= interval[1] < math.inf else None


def _seconds(text: str) -> float:
    """Seconds of ``ss.ff``, ``mm:ss.ff`` or ``hh:mm:ss.ff``."""
    sign = -1.0 if text.startswith("-") else 1.0
    total = 0.0
    for part in text.lstrip("-").split(":"):
        total = total * 60 + float(part)
    return sign * total


def read_point(text: str) -> tuple[float, float] | None:
    """x, y. Examples: ``[512, 300]``, ``(512, 300)``, ``x=512, y=300``, ``{"point_2d": [512, 300]}``."""
    text = last_statement(affirmed(plain(text)))
    point = _only(_groups(text, 2) or _exactly(text, 2))
    return (point[0], point[1]) if point is not None else None


def read_box(text: str) -> tuple[float, float, float, float] | None:
    """x1, y1, x2, y2, ordered. Examples: ``[1, 2, 3, 4]``, ``(1, 2), (3, 4)``, ``{"box_2d": [1, 2, 3, 4]}``."""
    text = last_statement(affirmed(plain(text)))
    corners = _groups(text, 2)
    joined = [corners[0] + corners[1]] if len(corners) == 2 else []
    box = _only(_groups(text, 4) or joined or _exactly(text, 4))
    if box is None or box[0] > box[2] or box[1] > box[3]:
        return None
    return (box[0], box[1], box[2], box[3])


def read_trajectory(text: str, times_s: Sequence[float]) -> tuple[tuple[float, float, float], ...] | None:
    """(t, x, y) in the order of time. Points without times take `times_s` in order if they are as many.

    Examples: ``[[0.5, 512, 300], [1.0, 520, 310]]``, ``{"time_s": 0.5, "point_2d": [512, 300]}`` a point,
    ``0.5s: (512, 300)`` a line.
    """
    text = last_statement(affirmed(plain(text)))
    if any(text.count(left) != text.count(right) for left, right in ("[]", "{}", "()")):
        return None  # cut in the middle
    timed = _groups(text, 3) or _timed_objects(text) or _timed_lines(text)
    if not timed:
        untimed = _groups(text, 2) or [pair for group in _OBJECT.findall(text) for pair in _exactly(group, 2)]
        if len(untimed) != len(times_s):
            return None
        timed = [(t, x, y) for t, (x, y) in zip(times_s, untimed, strict=True)]
    times = [point[0] for point in timed]
    if not timed or len(set(times)) != len(times):
        return None
    return tuple((t, x, y) for t, x, y in sorted(timed))


def _groups(text: str, size: int) -> list[tuple[float, ...]]:
    """All brackets that hold exactly `size` finite numbers."""
    number = rf"\s*({_COORDINATE})\s*(?:s\b)?\s*"
    pattern = rf"[\[(<]{','.join([number] * size)},?\s*[\])>]"
    return _finite([match.groups() for match in re.finditer(pattern, text)])


def _exactly(text: str, size: int) -> list[tuple[float, ...]]:
    """All numbers of the text as one group, if there are exactly `size`."""
    numbers = _LONE_COORDINATE.findall(text)
    return _finite([tuple(numbers)]) if len(numbers) == size else []


def _finite(groups: Iterable[tuple[str, ...]]) -> list[tuple[float, ...]]:
    """Groups of text as groups of numbers, without those beyond float64."""
    values = [tuple(float(number) for number in group) for group in groups]
    return [group for group in values if all(math.isfinite(number) for number in group)]


def _timed_objects(text: str) -> list[tuple[float, ...]]:
    """Points of ``{"t": 0.5, "x": 512, "y": 300}`` and ``{"point_2d": [512, 300], "time_s": 0.5}``."""
    points: list[tuple[float, ...]] = []
    for group in _OBJECT.findall(text):
        time = _TIME_KEY.search(group)
        rest = _groups(group, 2) or _exactly(_TIME_KEY.sub("", group), 2)
        if time and rest:
            points.append((_seconds(time[1]), *rest[0]))
    return points


def _timed_lines(text: str) -> list[tuple[float, ...]]:
    """One point a line: three numbers, the time first."""
    points = [_exactly(re.sub(r"(?<=\d)\s*s\b", " ", line), 3) for line in text.splitlines() if line.strip()]
    return [point[0] for point in points] if points and all(points) else []
