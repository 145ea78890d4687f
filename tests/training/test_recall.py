"""Drills from thought to answer: every answer follows from the text before it, and only answers are learned."""

import re

import pytest

from cosmos_reason.errors import UserError
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.training.recall import TOKENS, RecallRows
from cosmos_reason.types import Sample, VideoRef

CLIP = VideoRef("a.mp4")
CHOICE = Sample("c/1", "choice", "Which?", "B", CLIP, ("red", "blue", "dark green"), think="It is blue.")
SIDES = [
    Sample(
        f"c/{i}", "binary", "Left?", answer, CLIP, think=f"Seen. So: to the {a}. Asked: to the {b} {answer}",
        template="side",
    )
    for i, (a, b, answer) in enumerate([("left", "left", "yes"), ("left", "right", "no"), ("right", "left", "no")])
]  # fmt: skip
PLAIN = Sample("c/9", "binary", "Is it?", "yes", CLIP, think="It is.")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizers.train(["So: to the left. Asked: to the right red blue dark green"] * 3, 300, folder)
    return tokenizers.load(folder)


def text_of(rows, position, tokenizer):
    """The row's text, and what is learned of it."""
    tokens, clip = rows.row(position)
    assert clip == -1 and len(tokens.ids_L) <= TOKENS
    return tokenizer.decode(tokens.ids_L), tokenizer.decode(tokens.ids_L[tokens.loss_mask_L]).split()


def test_letters_are_those_of_the_options(tokenizer):
    rows = RecallRows([CHOICE, PLAIN], tokenizer, seed=0)
    orders = set()
    for position in range(12):
        text, answers = text_of(rows, position, tokenizer)
        options = dict(re.findall(r"\((\w)\) (.+)\n", text))
        assert sorted(options.values()) == sorted(CHOICE.options)
        looks = re.findall(r" So: ([a-z ]+) ([A-C])", text)
        assert len(looks) >= 3 and all(options[letter] == option for option, letter in looks)
        assert answers == [letter for _, letter in looks]
        orders.add(tuple(options.values()))
    assert len(orders) > 2


def test_yes_where_the_phrases_agree(tokenizer):
    rows = RecallRows([*SIDES, PLAIN], tokenizer, seed=0)
    for position in range(6):
        text, answers = text_of(rows, position, tokenizer)
        looks = re.findall(r" So: to the (\w+). Asked: to the (\w+) (yes|no)", text)
        assert len(looks) >= 3 and answers == [answer for *_, answer in looks]
        assert all((seen == asked) == (answer == "yes") for seen, asked, answer in looks)


def test_both_kinds_take_turns_and_rows_depend_on_position_alone(tokenizer):
    rows = RecallRows([CHOICE, *SIDES], tokenizer, seed=3)
    kinds = ["Asked" in text_of(rows, position, tokenizer)[0] for position in range(6)]
    assert kinds == [False, True] * 3
    again = RecallRows([CHOICE, *SIDES], tokenizer, seed=3)
    assert (again.row(5)[0].ids_L == rows.row(5)[0].ids_L).all()


def test_a_set_without_such_questions_is_refused(tokenizer):
    with pytest.raises(UserError, match="recall_rows: the sets have no choice question"):
        RecallRows([PLAIN], tokenizer, seed=0)
