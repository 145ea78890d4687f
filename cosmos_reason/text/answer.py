"""The only parser and scorer: text -> Answer -> Score, and the forms in which questions ask and answers are written.

ask:    `instruction` (question, options, wanted form), `gold_text`, `gold_completion`: what a perfect model writes
parse:  thinking removed -> last <answer> block, else the whole rest -> the value by the sample's kind
score:  in `scoring.py`, imported here

Statuses: `truncated` thinking was never closed; `no_answer` nothing states an answer; `malformed` an answer is stated
that is not of the sample's kind (a letter that is not offered, two letters, a text where a number is wanted) or is
only denied ("the answer cannot be B");
`ok` the rest. Change `PARSER_VERSION` with every change of what is read; it is stored with results.
"""

from __future__ import annotations

import re
from typing import Any

from cosmos_reason.errors import DataError
from cosmos_reason.text import letters, values
from cosmos_reason.text.scoring import score
from cosmos_reason.text.statements import MARKER, affirmed, last_statement, plain
from cosmos_reason.types import LETTERS, Answer, Gold, Sample, Status

__all__ = [
    "PARSER_VERSION",
    "format_ok",
    "gold_completion",
    "gold_text",
    "instruction",
    "parse",
    "score",
]

PARSER_VERSION = "2"
NO_THOUGHT = "I look at the video."  # gold thought of a sample that has none

_TAG = re.compile(r"</?(?:think|answer)>")
_THINK_TAG = re.compile(r"<(/?)think>", re.IGNORECASE)
_ANSWER_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_FORM = re.compile(r"\s*<think>(.*\S.*)</think>\s*<answer>(.*\S.*)</answer>\s*", re.DOTALL)
_FORM_TAGS = ["<think>", "</think>", "<answer>", "</answer>"]


def parse(text: str, sample: Sample, prompt_opened_think: bool = False) -> Answer:
    """Read a completion.

    Args:
        text: what the model wrote, control tokens left out.
        sample: its kind, options and unit decide what is read; its answer never does, except that several right
            options ask for several letters and that the times of a trajectory are given to points without times.
        prompt_opened_think: the prompt ended with "<think>", so the text begins inside the thinking.
    """
    well_formed = format_ok(f"<think>{text}" if prompt_opened_think else text)
    think, rest, closed = split_thinking(text, prompt_opened_think)
    if not closed:
        return Answer(think, "", None, "truncated", None, well_formed)
    final, tagged = final_text(rest)
    if not final:
        return Answer(think, "", None, "no_answer", None, well_formed)
    letter, value = _read(final, sample)
    if letter is not None or value is not None:
        return Answer(think, final, letter, "ok", value, well_formed)
    status: Status = "malformed" if tagged or MARKER.search(plain(final)) else "no_answer"
    return Answer(think, final, None, status, None, well_formed)


def split_thinking(text: str, opened: bool = False) -> tuple[str, str, bool]:
    """Thinking, the rest, and whether the thinking was closed.

    A closing tag without an opening one makes all that stands before it thinking. `opened`: begin inside thinking.
    """
    stretches: list[tuple[bool, str]] = []  # within thinking or not, in the order of the text
    inside, begin = opened, 0
    for tag in _THINK_TAG.finditer(text):
        closing = tag[1] == "/"
        if closing and not inside:
            stretches = [(True, stretch) for _, stretch in stretches]
            inside = True
        elif inside != closing:
            continue  # an opening tag within thinking is part of the thought
        stretches.append((inside, text[begin : tag.start()]))
        inside, begin = not closing, tag.end()
    stretches.append((inside, text[begin:]))
    thought, rest = ("".join(stretch for within, stretch in stretches if within is side) for side in (True, False))
    return thought.strip(), rest.strip(), not inside


def final_text(rest: str) -> tuple[str, bool]:
    """The content of the last answer block, and whether there was one; without a block the whole text.

    An opened block without an end reaches to the end of the text (servers cut at a stop string); a stray closing tag
    ends the answer that stands before it.
    """
    tags = list(_ANSWER_TAG.finditer(rest))
    openings = [tag for tag in tags if not tag[1]]
    if not tags:
        return rest.strip(), False
    begin = openings[-1].end() if openings else 0
    end = next((tag.start() for tag in tags if tag[1] and tag.start() >= begin), len(rest))
    return rest[begin:end].strip(), True


def format_ok(text: str) -> bool:
    """Whether the text is one thought and one answer, each tag once, with any white space around and between."""
    return _TAG.findall(text) == _FORM_TAGS and _FORM.fullmatch(text) is not None


def _read(final: str, sample: Sample) -> tuple[str | None, Gold | None]:
    """Letter (one right option) or typed value (all other kinds) of a final text."""
    match sample.kind:
        case "choice" if isinstance(sample.answer, tuple):
            return None, letters.read_letters(final, sample.options)
        case "choice":
            return letters.read_letter(final, sample.options), None
        case "binary":
            return None, letters.read_yes_no(final)
        case "number":
            return None, values.read_number(final, sample.unit)
        case "interval":
            return None, values.read_interval(final)
        case "point":
            return None, values.read_point(final)
        case "box":
            return None, values.read_box(final)
        case "trajectory":
            path: Any = sample.answer  # its type is fixed by the kind
            return None, values.read_trajectory(final, [point[0] for point in path])
        case "text":
            return None, last_statement(affirmed(plain(final), in_words=True)).strip() or None


def instruction(sample: Sample) -> str:
    """The question, its options one a line, and the form of the answer, as the prompt asks for it."""
    form = {
        "binary": "Yes or No",
        "choice": "letters, such as A, C" if isinstance(sample.answer, tuple) else "letter",
        "text": "a few words",
        "number": f"number in {sample.unit}" if sample.unit else "number",
        "interval": "start - end in seconds",
        "point": "[x, y] in 0-1000",
        "box": "[x1, y1, x2, y2] in 0-1000",
        "trajectory": "[[seconds, x, y], ...] with x, y in 0-1000",
    }[sample.kind]
    options = [f"({letter}) {text}" for letter, text in zip(_offered(sample), sample.options, strict=True)]
    return "\n".join([sample.question, *options, f"<think>reasoning</think><answer>{form}</answer>"])


def _offered(sample: Sample) -> str:
    """The letters of the sample's options. DataError when a choice has no 2 to 10 options."""
    if sample.kind == "choice" and not 2 <= len(sample.options) <= len(LETTERS):
        raise DataError(sample.id, f"a choice needs 2 to {len(LETTERS)} options, this one has {len(sample.options)}")
    return LETTERS[: len(sample.options)]


def gold_completion(sample: Sample) -> str:
    """What a perfect model writes: the sample's oracle thought and its answer, in the tags that the prompt asks for.

    The thought of a choice ends with the words and the letter of the right option: "... and it is red. So: red B".
    """
    if _TAG.search(sample.think):
        raise DataError(sample.id, "its oracle thought holds a think or answer tag; remove the tag")
    thought, answer = sample.think or NO_THOUGHT, gold_text(sample)
    if sample.think and isinstance(sample.answer, str) and sample.kind == "choice":
        thought += f" So: {sample.options[LETTERS.index(answer)]} {answer}"
    return f"<think>{thought}</think><answer>{answer}</answer>"


def gold_text(sample: Sample) -> str:
    """The sample's answer in the canonical written form. DataError when the answer is not of the sample's kind.

    "Yes" · "B" · "A, C" · "red ball" · "3.5" (in the sample's unit) · "1.25 - 2.50" · "[512, 300]" ·
    "[100, 50, 400, 300]" · "[[0.25, 512, 300], [0.5, 520, 310]]"
    """
    gold: Any = sample.answer  # every case checks the type that its kind needs
    match sample.kind, gold:
        case "binary", "yes" | "no":
            return str(gold).capitalize()
        case "choice", str() if gold in tuple(_offered(sample)):
            return gold
        case "choice", (str(), *_) if set(gold) <= set(_offered(sample)):
            return ", ".join(sorted(str(letter) for letter in gold))
        case "text", str() if gold.strip():
            return gold.strip()
        case "number", int() | float():
            return _written(gold)
        case "interval", (int() | float() as start, int() | float() as end) if start <= end:
            return _written_interval(start, end)
        case ("point", (_, _)) | ("box", (_, _, _, _)):
            return f"[{', '.join(_written(number) for number in gold)}]"
        case "trajectory", ((_, _, _), *_):
            points = [f"[{', '.join(_written(number) for number in point)}]" for point in gold]
            return f"[{', '.join(points)}]"
        case _:
            raise DataError(sample.id, f"the answer {gold!r} is not that of a question of kind {sample.kind}")


def _written(number: float) -> str:
    """A number with at most 6 digits that count, without an exponent where it can be."""
    value = float(number)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def _written_interval(start_s: float, end_s: float) -> str:
    """Hundredths of a second, unless the interval is too short for them."""
    if end_s - start_s < 0.1:
        return f"{float(start_s)!r} - {float(end_s)!r}"
    return f"{start_s:.2f} - {end_s:.2f}"
