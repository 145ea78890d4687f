"""Even answers, counted by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cosmos_reason.simulate.balance import balance
from cosmos_reason.types import LETTERS, Sample, VideoRef

CLIP = VideoRef("a.mp4")


def binary(i: int, answer: str, template: str = "hit", family: str = "collision") -> Sample:
    return Sample(f"{i}/{template}", "binary", "Does it?", answer, CLIP, family=family, template=template)


def choice(i: int, right: str, options: tuple[str, ...], template: str = "end") -> Sample:
    letter = LETTERS[options.index(right)]
    return Sample(f"{i}/{template}", "choice", "Which?", letter, CLIP, options, family="tower", template=template)


def right(sample: Sample) -> str:
    return sample.options[LETTERS.index(str(sample.answer))]


def test_surplus_of_yes_is_dropped_within_each_family_and_template() -> None:
    samples = [binary(i, "yes") for i in range(7)] + [binary(i, "no") for i in range(7, 10)]
    samples += [binary(i, "no", "falls", "tower") for i in range(10, 14)]
    kept = balance(samples, 0)
    assert Counter((s.template, s.answer) for s in kept) == {("hit", "yes"): 3, ("hit", "no"): 3}


def test_texts_and_letters_of_a_choice_are_even() -> None:
    options = ("it falls", "it stands")
    samples = [choice(i, "it falls", options) for i in range(9)] + [
        choice(i, "it stands", options) for i in range(9, 13)
    ]
    kept = balance(samples, 0)
    assert Counter(right(s) for s in kept) == {"it falls": 4, "it stands": 4}
    assert Counter(s.answer for s in kept) == {"A": 4, "B": 4}


def test_names_count_as_one_text_and_letters_are_spread_over_them() -> None:
    samples = [choice(i, "the red ball", ("the red ball", "the blue box", "the white ball")) for i in range(7)]
    kept = balance(samples, 0)
    assert Counter(s.answer for s in kept) == {"A": 2, "B": 2, "C": 2}
    assert {right(s) for s in kept} == {"the red ball"}
    assert all(sorted(s.options) == ["the blue box", "the red ball", "the white ball"] for s in kept)


def test_an_option_that_is_never_right_takes_its_questions_along() -> None:
    samples = [choice(i, "box", ("box", "ball"), "shape") for i in range(5)]
    assert balance(samples, 0) == []


def test_other_kinds_and_the_order_stay() -> None:
    text = Sample("1/caption", "text", "Describe.", "A ball.", CLIP, family="tower", template="caption")
    samples = [binary(0, "yes"), text, binary(2, "no"), binary(3, "yes")]
    kept = balance(samples, 0)
    assert text in kept
    assert [s.id for s in kept] == sorted(s.id for s in kept)
    assert kept == balance(samples, 0)


def test_the_length_of_what_is_shown_does_not_tell_the_answer() -> None:
    def cut(i: int, answer: str, end_s: float) -> Sample:
        return replace(binary(i, answer), video=VideoRef("a.mp4", None, end_s))

    short = [cut(i, "yes", 0.5) for i in range(8)] + [cut(i, "no", 0.5) for i in range(8, 10)]
    long = [cut(i, "yes", 1.5) for i in range(10, 13)] + [cut(i, "no", 1.5) for i in range(13, 20)]
    kept = balance(short + long, 0)
    expected = {(0.5, "yes"): 2, (0.5, "no"): 2, (1.5, "yes"): 3, (1.5, "no"): 3}
    assert Counter((s.video.end_s, s.answer) for s in kept) == expected
