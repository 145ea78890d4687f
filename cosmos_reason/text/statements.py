"""Where a reply states its answer: final text -> plain text -> what is not denied -> segments after "the answer is".

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

# A denial reaches to the end of its clause; the contrast that follows ("…, but") belongs to it.
_END = r"[.;:!?](?=\s|$)|\b(?:but|rather|instead|so(?!\s+(?:is|are|was)\b))\b|\banswer\s*(?::|=|(?:is|was|must)\b)"
_ALIKE = r"\s+(?:like|(?:and\s+)?(?:(?:so|nor|neither)\s+(?:is|are|was)|\(?[A-Z]\)?\s+(?:is\s+)?(?:too|as\s+well))\b)"


def clause(comma: str) -> str:
    """Pattern of the rest of a clause; `comma`: what follows a comma that ends it. A reason or "so is B" goes on."""
    end = rf"{_END}|,(?={comma})(?!{BECAUSE}|{_ALIKE})"
    return rf"(?:(?!{end}).)*[.;:!?,]?(?:\s*(?:but|rather|instead)\b)?"


_ANSWER = r"(?:answers?|(?:correct|right|best)\s+(?:option|choice|letter))"
_LED_BY = (
    r"(?:\b(?:i|we|you|do|does|did|would|can|could|it|is|so|thus|therefore|that|the|my|correct|right|best)\s+){0,5}"
)
_ON_TO = r"(?:\s+(?!(?:is|be|was)\b)\w{2,}){0,4}?"
_NOT = (
    r"(?:cannot|(?:can|could|should|would|will|must|may|might|do|does|did)\s+(?:\w+ly\s+)?(?:not|never)"
    r"|(?:ca|could|should|would|wo|must|might|do|does|did)n't)"
)
_OPINION = (
    r"(?:(?:\b\w*n't|\b(?:not|never|cannot))\s+(?:really\s+|actually\s+)?"
    r"(?:think|believe|say|agree|conclude|suppose|feel|mean|claim|true|likely|possible|the\s+case)|\bi\s+doubt)\s+(?:that\s+)?"
)
_DENIED = (
    r"\b(?:wrong|incorrect|false|worst|least\s+likely)\s+(?:answer|option|choice|letter|one)s?"
    rf"{_ON_TO}\s*(?::|=|\b(?:is|are|be|was)\b)"
    rf"|{_OPINION}(?:(?:the|my|correct|right|best)\s+){{0,2}}{_ANSWER}\b"
    rf"|\b{_ANSWER}{_ON_TO}\s+{_NOT}\s+(?:\w+\s+){{0,2}}?be\b"
)
# Only where an answer is never made of words: "the answer is not moving" may well answer in words.
_NEGATED = (
    rf"\b{_ANSWER}{_ON_TO}\s+(?:is|was)(?:n't|\s+(?:\w+ly\s+)?(?:not|never|unlikely))\b"
    r"|" + _OPINION + r"(?:it\s+is|it's|option|choice)\b"
)
_REST = clause(r"\s+[a-z]{2}")
_DENIAL_IN_WORDS = re.compile(rf"{_LED_BY}(?:{_DENIED}){_REST}", re.IGNORECASE)
_DENIAL = re.compile(rf"{_LED_BY}(?:{_DENIED}|{_NEGATED}){_REST}", re.IGNORECASE)


def plain(text: str) -> str:
    r"""The text without markdown, quotes and LaTeX dress; ``\boxed{x}`` becomes the statement "answer: x"."""
    text = _FENCE.sub("\n", text.translate(_CHARACTERS))
    text = _POWER_OF_TEN.sub(r"e\1", text)
    text = _LATEX_TEXT.sub(r"\1", text)
    text = _BOXED.sub(lambda match: f" answer: {match[1]}\n", text)
    return _MARKUP.sub("", text).strip()


def affirmed(text: str, in_words: bool = False) -> str:
    """The text without what it says the answer is not: "The answer cannot be B. It is C." keeps "It is C.".

    `in_words`: keep "the answer is not …", which may be an answer in words. `text` is plain.
    """
    return (_DENIAL_IN_WORDS if in_words else _DENIAL).sub("\n", text)


def stated(text: str) -> Iterator[str]:
    """What follows each answer marker, the last marker first. `text` is plain and affirmed.

    A few markers and a few lines behind each, so that a text of nothing but markers costs no more than another.
    """
    for match in reversed(list(MARKER.finditer(text))[-MOST_MARKERS:]):
        yield text[match.end() : match.end() + LONGEST_STATEMENT]


def last_statement(text: str) -> str:
    """What follows the last answer marker; the whole text when there is none. `text` is plain and affirmed."""
    return next(stated(text), text)


def lines(text: str) -> list[str]:
    """Non-empty lines without bullets, headings and quote marks."""
    return [line for raw in text.splitlines() if (line := raw.lstrip("#>-• \t").strip())]
