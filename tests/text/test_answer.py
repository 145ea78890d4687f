"""The parser against faults that comparable parsers are known for, the written forms, and the format check."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from cosmos_reason.errors import DataError
from cosmos_reason.text.answer import (
    final_text,
    format_ok,
    gold_completion,
    gold_text,
    instruction,
    parse,
    score,
    split_thinking,
)
from cosmos_reason.types import LETTERS, Sample, VideoRef

VIDEO = VideoRef("clip.mp4", 0.0, 8.0)
COLOURS = ("red ball", "blue box", "green cone", "grey floor")


def choice(answer: str | tuple[str, ...], options: tuple[str, ...] = COLOURS) -> Sample:
    return Sample("c", "choice", "Which?", answer, VIDEO, options)


SAMPLES = [
    Sample("binary yes", "binary", "Does it fall?", "yes", VIDEO),
    Sample("binary no", "binary", "Does it fall?", "no", VIDEO),
    choice("C"),
    choice(("A", "C")),
    Sample("text", "text", "What falls?", "the red ball", VIDEO),
    Sample("number", "number", "How fast?", 3.5, VIDEO, unit="m/s"),
    Sample("count", "number", "How many?", 0.0, VIDEO),
    Sample("large", "number", "How many?", 12345678.0, VIDEO),
    Sample("negative", "number", "How far?", -0.0625, VIDEO, unit="m"),
    Sample("interval", "interval", "When?", (1.25, 2.5), VIDEO),
    Sample("short interval", "interval", "When?", (1.2501, 1.2502), VIDEO),
    Sample("instant", "interval", "When?", (3.0, 3.0), VIDEO),
    Sample("point", "point", "Where?", (512.0, 300.5), VIDEO),
    Sample("box", "box", "Where?", (100.0, 50.0, 400.0, 300.0), VIDEO),
    Sample("trajectory", "trajectory", "Where to?", ((0.25, 512.0, 300.0), (0.5, 520.0, 310.0)), VIDEO),
]

# text, options offered (A..), the letter or None
STATED = [
    # a capital or a letter out of a word is no answer
    ("Well. The correct answer is (B).", 4, "B"),
    ("Based on the clip I cannot tell.", 4, None),
    ("Based on the clip I cannot tell.", 10, None),
    ("Answer: $B", 4, "B"),
    ("The answer is clearly red", 4, None),
    ("I cannot see", 4, None),
    ("I cannot see", 10, None),
    ("The answer is a dog.", 4, None),
    ("A dog runs.", 4, None),
    ("A cat, so B", 4, "B"),
    ("A cat", 4, None),
    ("It is a cat. So I cannot tell.", 10, None),
    ("so d", 4, None),
    ("The answer is T.", 4, None),
    ("", 4, None),
    # several letters are no single choice, the last statement counts
    ("ANSWER: AB", 4, None),
    ("Answer: A, B", 4, None),
    ("Answer: A and B", 4, None),
    ("Answer: A or B.", 4, None),
    ("Answer: A/B", 4, None),
    ("ANSWER: A … no, ANSWER: C", 4, "C"),
    ("ANSWER: A\nANSWER: b", 4, "B"),
    ("ANSWER: A\nANSWER: AB", 4, None),
    ("Answer: A. On second thought, the answer is E", 4, None),
    (r"\boxed{B} … \boxed{B}", 4, "B"),
    (r"\boxed{A}, no, \boxed{C}", 4, "C"),
    ("The answer is B. The answer was clear from the start.", 4, "B"),
    # markdown, case, punctuation, brackets, reasons behind the letter
    ("Answer: **D**", 4, "D"),
    ("Answer: d", 4, "D"),
    ("d", 4, "D"),
    ("a", 4, "A"),
    ("A.", 4, "A"),
    ("ANSWER: (B)", 4, "B"),
    ("ANSWER: **B**", 4, "B"),
    ("ANSWER: B because it rolls", 4, "B"),
    ("ANSWER: A because it rolls", 4, "A"),
    (r"\boxed{C}", 4, "C"),
    (r"\(\boxed{\text{C}}\)", 4, "C"),
    (r"The answer is $\boxed{(C)}$.", 4, "C"),
    ("Answer: C", 4, "C"),
    ("(B)", 4, "B"),
    ("**B**", 4, "B"),
    ("B) left", 4, "B"),
    (" B", 4, "B"),
    ("B\nbecause", 4, "B"),
    ("B. the robot", 4, "B"),
    ("A: text", 4, "A"),
    ("**(C)** green", 4, "C"),
    ("`B`", 4, "B"),
    ("（Ｂ）", 4, "B"),
    ("### Answer\nB", 4, "B"),
    ('{"answer": "B"}', 4, "B"),
    ('```json\n{"answer": "B"}\n```', 4, "B"),
    (r"(B) $3.3\mathrm{MeV}$", 4, "B"),
    # a statement outranks letters around it
    ("The answer is B because A is a distractor.", 4, "B"),
    ("The correct answer is B. Dogs are shown", 4, "B"),
    ("Answer B is correct.", 4, "B"),
    ("The answer to the question is therefore option B.", 4, "B"),
    ("A. no\nB. no\nC. yes\nThe answer is C", 4, "C"),
    ("A. red ball\nB. blue box", 4, None),
    ("Let me see. It rolls left.\n(B)", 4, "B"),
    # named in passing: one letter, not denied
    ("The answer is B", 4, "B"),
    ("Option C", 4, "C"),
    ("I think (A)", 4, "A"),
    ("Either option A or option C", 4, None),
    ("Option A is wrong, so I choose C.", 4, "C"),
    ("Option (A) can't be.", 4, None),
    # only letters that the question offers
    ("C", 2, None),
    ("(C) None", 2, None),
    ("The answer is J.", 10, "J"),
    ("I", 10, "I"),
    ("I, for one, saw nothing", 10, None),
    ("B-roll footage", 4, None),
    ("C++", 4, None),
    # the option's text
    ("blue box", 4, "B"),
    ("Blue  Box.", 4, "B"),
    ("The answer is **green cone**.", 4, "C"),
    ("The answer is red ball because it moves", 4, "A"),
    ("The answer is the red ball.", 4, "A"),
    ("The answer is a grey floor.", 4, "D"),
    ("A blue box", 4, "B"),
    ("B blue box", 4, "B"),
    ("A red ball", 4, "A"),
    ("Answer: A (red ball)", 4, "A"),
    ("Answer: A - red ball", 4, "A"),
    ("Answer: B (blue box)", 4, "B"),
    ("Answer:\n- B", 4, "B"),
    ("Therefore, (B) is the correct answer.", 4, "B"),
    ("B is the correct answer.", 4, "B"),
    ("So the answer must be B.", 4, "B"),
    ("The answer is not B", 4, None),
    ("Answer: B. Not A.", 4, "B"),
    ("I'd go with B.", 4, "B"),
    ("B and C", 4, None),
    ("The right option is 'B'.", 4, "B"),
    ("A\nno, rather\nB", 4, "B"),
    ("A. red ball\nC", 4, "C"),
    ("It is not option B.", 4, None),
    ("It isn't (B).", 4, None),
    ("Not option A but (C)", 4, "C"),
    ("It is B.", 4, "B"),
    ("Therefore, C", 4, "C"),
    ("It is not B.", 4, None),
    ("So A moves", 4, None),
    ("I pick a ball.", 4, None),
    ("I watched it closely.\nGrey floor", 4, "D"),
    ("It is not the red ball and not the blue box", 4, None),
    # a letter that is ruled out is no answer, what is concluded after it is one
    ("A is impossible, so it must be C.", 4, "C"),
    ("A is impossible, so it must be the green cone.", 4, None),
    ("A is wrong.\nSo C.", 4, "C"),
    ("A is not the answer. B", 4, "B"),
    ("A is the wrong answer. B", 4, "B"),
    ("A is wrong, B is right.", 4, "B"),
    ("A is wrong. B is wrong. C is wrong. (D)", 4, "D"),
    ("A, B and D are wrong, which leaves C.", 4, "C"),
    ("(A) can be ruled out.\n(C)", 4, "C"),
    ("- A is unlikely\n- B is clearly not it\n- C", 4, "C"),
    ("A cannot be it. Blue box", 4, "B"),
    ("Answer A is wrong, answer D is right.", 4, "D"),
    ("Answer D is right, answer A is wrong.", 4, "D"),
    ("B is wrong.", 4, None),
    ("b is wrong", 4, None),
    ("(B) isn't right", 4, None),
    ("A is wrong, and so is B.", 4, None),
    ("A is wrong, B too.", 4, None),
    ("A is wrong, B is as well.", 4, None),
    ("A is wrong because B is right.", 4, None),
    ("A is right because B is wrong.", 4, "A"),
    ("The wrong option is B.", 4, None),
    ("I don't think it's B.", 4, None),
    # a denied statement states nothing
    ("The answer cannot be B.", 4, None),
    ("The answer can't possibly be B.", 4, None),
    ("The answer should not be B", 4, None),
    ("The answer does not seem to be B", 4, None),
    ("The wrong answer is B", 4, None),
    ("The wrong answer is B and the right answer is C.", 4, "C"),
    ("I don't think the answer is B.", 4, None),
    ("I do not believe that the correct answer is B.", 4, None),
    ("I don't think the answer is B. It is C.", 4, "C"),
    ("I don't think the answer is B, the answer is C", 4, "C"),
    ("The answer is C. The answer cannot be B.", 4, "C"),
    ("The answer is not B but C.", 4, "C"),
    ("The answer cannot be A, B.", 4, None),
    ("I have no doubt the answer is B.", 4, "B"),
    ("If I'm not mistaken the answer is B.", 4, "B"),
    ("It does not fall so the answer is B.", 4, "B"),
    ("The answer to why it does not fall is B.", 4, "B"),
    ("The answer cannot be the blue box.", 4, None),
    ("The answer should not be blue box", 4, None),
    ("The wrong answer is the blue box", 4, None),
    ("I don't think the answer is the blue box.", 4, None),
    # the letter A is read like any other where it is not the article
    *((f"The answer is {letter} and it falls first.", 4, letter) for letter in "ABCD"),
    *((f"Answer: {letter} in the video", 4, letter) for letter in "ABCD"),
    *((f"The answer must be {letter} but not by much.", 4, letter) for letter in "ABCD"),
    *((f"{letter} is wrong.", 4, None) for letter in "ABCD"),
    ("The answer is a and it falls first.", 4, None),
    ("The answer is A red box", 4, None),
    ("The answer is A blue box", 4, "B"),
    ("The answer is A red ball", 4, "A"),
    ("The answer is A by-stander", 4, None),
]


@pytest.mark.parametrize(("text", "offered", "letter"), STATED)
@pytest.mark.parametrize(
    "wrap", ["{}", "<think>so A</think>{}", "<think>x</think>\n<answer>\n{}\n</answer>", "x</think>{}"]
)
def test_stated_letter(text: str, offered: int, letter: str | None, wrap: str) -> None:
    options = (*COLOURS, "five", "six", "seven", "eight", "nine", "ten")[:offered]
    answer = parse(wrap.format(text), choice("B", options))
    assert answer.letter == letter
    assert (answer.status == "ok") == (letter is not None)


@pytest.mark.parametrize(
    ("text", "letter", "status"),
    [
        ("<think>answer is A</think>answer is B", "B", "ok"),
        ("so A</think>B", "B", "ok"),
        ("<think>maybe A", None, "truncated"),
        ("<answer>A</answer><think>or B", None, "truncated"),
        ("<think>maybe <answer>A</answer></think><answer>B</answer>", "B", "ok"),
        ("<think>a <think>b</think>c</think>B", "B", "ok"),
        ("<think>x</think>B<think>y</think>", "B", "ok"),
        ("<think>x</think>", None, "no_answer"),
        ("<think>x</think><answer> \n</answer>", None, "no_answer"),
        ("<answer>A</answer> then <answer>C</answer>", "C", "ok"),
        ("<answer>A</answer></answer>", "A", "ok"),
        ("<think>x</think>C</answer>", "C", "ok"),
        ("<think>x</think><answer>C", "C", "ok"),
        ("<Think>x</THINK><Answer>C</ANSWER>", "C", "ok"),
        ("<answer>B</answer> The answer is A", "B", "ok"),
        ("<answer>I cannot tell</answer>", None, "malformed"),
        ("<answer>E</answer>", None, "malformed"),
        ("ANSWER: AB", None, "malformed"),
        ("The answer cannot be B.", None, "malformed"),
        ("I don't think the answer is B.", None, "malformed"),
        ("<answer>B is wrong.</answer>", None, "malformed"),
        ("B is wrong.", None, "no_answer"),
        ("I cannot see", None, "no_answer"),
        ("", None, "no_answer"),
    ],
)
def test_blocks_and_statuses(text: str, letter: str | None, status: str) -> None:
    answer = parse(text, choice("B"))
    assert (answer.letter, answer.status) == (letter, status)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("<answer>B</answer>", True),
        ("<answer>B. the robot</answer>", True),
        ("<answer>(B)</answer>", True),
        ("<answer>b</answer>", True),
        ("B", True),
        ("<answer>The answer is B</answer>", True),
        ("(A)", False),
        ("A.", False),
        ("<answer>A: text</answer>", False),
        ("a", False),
        ("<answer>\nB\n</answer>", True),
    ],
)
def test_one_verdict_for_benchmark_and_reward(text: str, right: bool) -> None:
    got = score(parse(text, choice("B")), choice("B"))
    assert got.value == got.parts["correct"] == float(right)
    assert got.parts["format"] == 0.0  # no thought


def test_same_text_same_answer_whatever_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    first = parse("I cannot see", choice("B"))
    monkeypatch.setenv("DEBUG_MODE", "true")
    monkeypatch.setenv("LOG_PATH", "somewhere")
    assert parse("I cannot see", choice("B")) == first


def test_options_with_marks_are_matched_as_they_are() -> None:
    options = ("[Fe(CN)6]", "cup, left", "$5 * 3", "(x_1)", "A and B", "B only")
    for letter, option in zip(LETTERS, options, strict=False):
        assert parse(option, choice("A", options)).letter == letter
        assert parse(f"The answer is: {option}.", choice("A", options)).letter == letter
    assert options[0] == "[Fe(CN)6]"
    assert "(A) [Fe(CN)6]\n(B) cup, left\n(C) $5 * 3\n" in instruction(choice("A", options))


def test_options_that_look_alike_are_told_apart_by_exact_text_only() -> None:
    options = ("Left", "left", "left.")
    assert [parse(option, choice("A", options)).letter for option in options] == ["A", "B", "C"]
    assert parse("LEFT", choice("A", options)).letter is None


@pytest.mark.parametrize("form", ["{}", "The answer is {}.", "Answer: {}"])
def test_options_that_deny_something_are_still_options(form: str) -> None:
    options = ("it moves", "not moving", "never moving", "A is not moving")
    for letter, option in zip(LETTERS, options, strict=False):
        assert parse(form.format(option), choice("A", options)).letter == letter
    assert parse(form.format("not moving"), replace(SAMPLES[4], answer="not moving")).final
    assert score(parse(form.format("not moving"), text := replace(SAMPLES[4], answer="not moving")), text).value == 1.0


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("A, C", ("A", "C")),
        ("C and A", ("A", "C")),
        ("AC", ("A", "C")),
        ("<answer>(a), (c)</answer>", ("A", "C")),
        ("The answers are many. The answer is A and C.", ("A", "C")),
        ("A. red ball\nC. green cone", ("A", "C")),
        ("red ball; green cone", ("A", "C")),
        ("- red ball\n- green cone", ("A", "C")),
        (r"\boxed{A, C}", ("A", "C")),
        ("B", ("B",)),
        ("B is wrong. A and C", ("A", "C")),
        ("B and D are wrong.\nA. red ball\nC. green cone", ("A", "C")),
        ("The answer cannot be A, C.", None),
        ("I don't think the answer is A and C.", None),
        ("B is wrong.", None),
        ("A, E", None),
        ("I cannot tell", None),
    ],
)
def test_several_letters(text: str, letters: tuple[str, ...] | None) -> None:
    sample = choice(("A", "C"))
    answer = parse(text, sample)
    assert (answer.value, answer.letter) == (letters, None)
    assert score(answer, sample).value == float(letters == ("A", "C"))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Yes", "yes"),
        ("no.", "no"),
        ("**No**, it stays.", "no"),
        ("Yes it does", "yes"),
        ("No it does not", "no"),
        ("The answer is yes.", "yes"),
        ("Answer: no\nAnswer: Yes", "yes"),
        (r"\boxed{\text{No}}", "no"),
        ("Let me think.\nyes", "yes"),
        ("I would say yes.", "yes"),
        ("(Yes)", "yes"),
        ('{"answer": "no"}', "no"),
        ("The answer cannot be no. Yes", "yes"),
        ("The answer cannot be yes.", None),
        ("The answer is not yes.", None),
        ("The wrong answer is yes", None),
        ("I don't think the answer is yes.", None),
        ("There is no contact", None),
        ("No doubt it falls", None),
        ("The answer is yes or no", None),
        ("First yes, then no.", None),
        ("Nothing moves", None),
        ("yesterday", None),
        ("I do not know", None),
    ],
)
def test_yes_and_no(text: str, word: str | None) -> None:
    assert parse(f"<think>yes no</think>{text}", SAMPLES[0]).value == word


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.id} {sample.answer}")
@pytest.mark.parametrize(
    "form",
    [
        "{}",
        " {} \n",
        "<answer>{}</answer>",
        "<think>It moves.</think>{}",
        "It moves.</think>\n\n{}",
        "<think>It moves.</think>\n\n<answer>\n{}\n</answer>\n",
        "The answer is {}",
        "Answer: {}",
        "**Answer:** {}",
        "```\n{}\n```",
        r"\boxed{{{}}}",
    ],
)
def test_gold_in_every_form_earns_one(sample: Sample, form: str) -> None:
    got = score(parse(form.format(gold_text(sample)), sample), sample)
    assert got.value == got.parts["correct"] == 1.0, got.reason
    assert got.parts.get("dense", 1.0) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.id} {sample.answer}")
def test_gold_completion_has_the_form_that_the_prompt_asks_for(sample: Sample) -> None:
    got = score(parse(gold_completion(sample), sample), sample)
    assert (got.value, got.parts["format"]) == (1.0, 1.0), got.reason
    thought = gold_completion(replace(sample, think="It falls.")).split("</think>")[0]
    letter = sample.answer if sample.kind == "choice" and isinstance(sample.answer, str) else ""
    concluded = f" So: {sample.options['ABCDEFGHIJ'.index(letter)]} {letter}" if letter else ""
    assert thought == f"<think>It falls.{concluded}"  # a choice is led from the words of its option to the letter
    *_, form = instruction(sample).splitlines()
    assert format_ok(form)
    wanted = set(re.findall(r"</?\w+>", form))
    assert wanted == set(re.findall(r"</?\w+>", gold_completion(sample)))


BLANKS = {
    "binary": {"Yes or No": "Yes"},
    "choice": {"letters, such as A, C": "C, A", "letter": "C"},
    "text": {"a few words": "the red ball"},
    "number": {"number": "3.5"},
    "interval": {"start": "1.25", "end": "2.50"},
    "point": {"x": "512", "y": "300.5"},
    "box": {"x1": "100", "y1": "50", "x2": "400", "y2": "300"},
    "trajectory": {"[seconds, x, y], ...": "[0.25, 512, 300], [0.5, 520, 310]"},
}


@pytest.mark.parametrize(
    "sample",
    [
        {sample.id: sample for sample in SAMPLES}[name]
        for name in ("binary yes", "text", "number", "interval", "point", "box", "trajectory")
    ]
    + [choice("C"), choice(("A", "C"))],
    ids=lambda sample: f"{sample.kind} {sample.answer}",
)
def test_the_form_that_the_prompt_prints_scores_one_when_filled_in(sample: Sample) -> None:
    *_, form = instruction(sample).splitlines()
    blank = form.split("<answer>")[1].removesuffix("</answer>")
    filled = blank
    for name, value in BLANKS[sample.kind].items():
        filled = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", value, filled, count=1)
    assert filled != blank
    got = score(parse(form.replace(blank, filled), sample), sample)
    assert (got.value, got.parts["format"]) == (1.0, 1.0), (filled, got.reason)
    assert got.parts.get("dense", 1.0) == pytest.approx(1.0)


def test_gold_is_written_canonically() -> None:
    assert [gold_text(sample) for sample in SAMPLES] == [
        "Yes", "No", "C", "A, C", "the red ball", "3.5", "0", "12345678", "-0.0625", "1.25 - 2.50", "1.2501 - 1.2502",
        "3.0 - 3.0", "[512, 300.5]", "[100, 50, 400, 300]", "[[0.25, 512, 300], [0.5, 520, 310]]",
    ]  # fmt: skip
    assert json.loads(gold_text(SAMPLES[-1])) == [[0.25, 512, 300], [0.5, 520, 310]]


@pytest.mark.parametrize(
    "sample",
    [
        Sample("s", "binary", "?", "maybe", VIDEO),
        Sample("s", "choice", "?", "C", VIDEO, ("x", "y")),
        Sample("s", "choice", "?", "AB", VIDEO, ("x", "y")),
        Sample("s", "choice", "?", "A", VIDEO, ("x",)),
        Sample("s", "choice", "?", "A", VIDEO, tuple("abcdefghijk")),
        Sample("s", "text", "?", " ", VIDEO),
        Sample("s", "number", "?", "3", VIDEO),
        Sample("s", "interval", "?", (3.0, 2.0), VIDEO),
        Sample("s", "point", "?", (3.0, 2.0, 1.0), VIDEO),
    ],
)
def test_gold_of_another_kind_is_a_data_error_that_names_the_sample(sample: Sample) -> None:
    with pytest.raises(DataError, match=r"^s: "):
        gold_text(sample)


def test_a_thought_with_a_tag_is_refused() -> None:
    with pytest.raises(DataError, match="tag"):
        gold_completion(replace(SAMPLES[0], think="so <answer>yes</answer>"))


def test_instruction_shows_the_offered_options_only() -> None:
    text = instruction(choice("A", ("left", "right")))
    assert text == "Which?\n(A) left\n(B) right\n<think>reasoning</think><answer>letter</answer>"
    assert "number in m/s" in instruction(SAMPLES[5])


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("<think>x</think><answer>B</answer>", True),
        ("<think>x</think> <answer>B</answer>", True),
        ("<think>x</think>\n<answer>B</answer>", True),
        ("<think>x</think>\n\n<answer>B</answer>", True),
        (" <think>x</think>\n\n\n<answer>B</answer>\n\n", True),
        ("<think>\nx\ny\n</think>\n<answer>9</answer>", True),
        ("<think>x</think>\n<answer>\nB\n</answer>", True),
        ("<think>x</think><answer>1</answer></answer>", False),
        ("<think>a</think></think>b", False),
        ("<think>maybe <answer>A</answer></think><answer>B</answer>", False),
        ("<think>x</think>so <answer>B</answer>", False),
        ("<think>x</think><answer>B</answer> indeed", False),
        ("<answer>B</answer><think>x</think>", False),
        ("<think>x<answer>B</answer></think>", False),
        ("<answer>B</answer>", False),
        ("<think></think><answer>B</answer>", False),
        ("<think>x</think><answer> </answer>", False),
        ("<THINK>x</THINK><answer>B</answer>", False),
        ("x</think><answer>B</answer>", False),
        ("B", False),
    ],
)
def test_format(text: str, good: bool) -> None:
    assert format_ok(text) is good
    assert parse(text, choice("B")).format_ok is good


def test_thinking_opened_by_the_prompt() -> None:
    answer = parse("x</think><answer>B</answer>", choice("B"), prompt_opened_think=True)
    assert (answer.think, answer.letter, answer.format_ok) == ("x", "B", True)
    assert parse("B", choice("B"), prompt_opened_think=True).status == "truncated"
    assert parse("<think>x</think>B", choice("B"), prompt_opened_think=True).letter == "B"


def test_split_thinking_and_final_text() -> None:
    assert split_thinking("<think>a</think></think>b") == ("a", "b", True)
    assert split_thinking("a</think>b") == ("a", "b", True)
    assert split_thinking("x<think>a</think>b</think>c") == ("xab", "c", True)
    assert split_thinking("<think>a") == ("a", "", False)
    assert split_thinking("<think>a</think>b<think>c</think>d") == ("ac", "bd", True)
    assert final_text("say <answer>1</answer> or <answer>2</answer>.") == ("2", True)
    assert final_text("plain") == ("plain", False)


def test_each_sample_of_a_batch_is_read_by_its_own_kind() -> None:
    samples = [choice("B"), SAMPLES[5]]
    answers = [parse(text, sample) for text, sample in zip(["B", "3.5"], samples, strict=True)]
    assert [score(a, s).value for a, s in zip(answers, samples, strict=True)] == [1.0, 1.0]


def test_final_text_is_kept_as_it_was_written() -> None:
    assert parse("<answer> **[Fe(CN)6]** </answer>", choice("A", ("[Fe(CN)6]", "x"))).final == "**[Fe(CN)6]**"


MORE_HOSTILE = [
    "- " * 9000,
    "yes or " * 4000,
    "(A) (B) " * 4000,
    " \n" * 9000,
    "{t:1," * 4000,
    "option " * 4000,
    "A, " * 6000,
    "I do not " * 3000,
    "the answer cannot " * 2000,
    "A is wrong " * 2000,
    "A is " + "very " * 4000,
    "A is wrong" + " " * 20000 + "x",
    "0:" * 9000,
]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
@pytest.mark.parametrize(
    "text", ["[" * 20000, "answer " * 5000, "a" * 20000, "\\boxed{" * 3000, "1," * 9000, *MORE_HOSTILE]
)
def test_hostile_text_is_read_in_no_time(sample: Sample, text: str) -> None:
    assert score(parse(text, sample), sample).value == 0.0
