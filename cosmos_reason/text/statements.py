"""Where a reply states its answer: final text -> plain text -> the segments after "the answer is".

Shared by the readers of letters and of values. Nothing here decides what an answer is worth.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Full-width forms, the many dashes and minus signs, and invisible characters, as ASCII.
_CHARACTERS = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_CHARACTERS |= dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2212), ord("-"))
_CHARACTERS |= {0x2019: ord("'"), 0x00A0: ord(" "), 0x202F: ord(" "), 0x200B: None, 0xFEFF: None}  # type: ignore[dict-item]

_POWER_OF_TEN = re.compile(r"(?<=\d)\s*(?:×|x|\*|\\times)\s*10\s*\^?\s*\{?([-+]?\d+)\}?")
_FENCE = re.compile(r"```\w*")
_LATEX_TEXT = re.compile(r"\\(?:text|mathrm|mathbf|textbf)\s*\{([^{}]*)\}")
_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_MARKUP = re.compile(r"\\[()\[\]]|[`$\"“”]|(?<!\d)\*|\*(?!\s*\d)|(?<![A-Za-z0-9])_+|_+(?![A-Za-z0-9])")

# "answer", then at most six plain words, then a colon, an equals sign or a verb; or "answer" and directly the answer.
MARKER = re.compile(
    r"\b(?:answer|(?:correct|right|best)\s+(?:option|choice|letter))\b"
    r"(?:(?:\s+(?:(?-i:a)|\w{2,})){0,6}?\s*(?::|=|\b(?:is|be|was)\b)[\s:]*|\s+)",
    re.IGNORECASE,
)
MOST_MARKERS = 20
LONGEST_STATEMENT = 1000  # characters
FILLER = (
    r"(?:(?:therefore|thus|hence|clearly|probably|most|likely|definitely|simply|just|the|option|choice|letter)"
    r"\b[\s,:]*)*"
)
BECAUSE = r"\s+(?:because|since|as|due|given|for)\b"


def plain(text: str) -> str:
    r"""The text without markdown, quotes and LaTeX dress; ``\boxed{x}`` becomes the statement "answer: x"."""
    text = _FENCE.sub("\n", text.translate(_CHARACTERS))
    text = _POWER_OF_TEN.sub(r"e\1", text)
    text = _LATEX_TEXT.sub(r"\1", text)
    text = _BOXED.sub(lambda match: f" answer: {match[1]}\n", text)
    return _MARKUP.sub("", text).strip()


def stated(text: str) -> Iterator[str]:
    """What follows each answer marker, the last marker first. `text` is plain.

    A few markers and a few lines behind each, so that a text of nothing but markers costs no more than another.
    """
    for match in reversed(list(MARKER.finditer(text))[-MOST_MARKERS:]):
        yield text[match.end() : match.end() + LONGEST_STATEMENT]


def last_statement(text: str) -> str:
    """What follows the last answer marker; the whole text when there is none. `text` is plain."""
    return next(stated(text), text)


def lines(text: str) -> list[str]:
    """Non-empty lines without bullets, headings and quote marks."""
    return [line for raw in text.splitlines() if (line := raw.lstrip("#>-• \t").strip())]
