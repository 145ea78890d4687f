"""Conclusions: what of a completion the question and the thought tell, by hand, and rows made of that."""

from dataclasses import replace

import numpy as np
import pytest

from cosmos_reason.errors import UserError
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.text.answer import gold_completion, instruction
from cosmos_reason.text.chat import statements
from cosmos_reason.training.conclusions import QUESTIONS, ConclusionRows, told
from cosmos_reason.types import Sample, VideoRef

CLIP = VideoRef("a.mp4")
SIDE = Sample(
    "c/1", "binary", "Does the red box move to the left?", "no", CLIP,
    think="The red box goes to the right. So: to the right. Asked: to the left no",
)  # fmt: skip
MOVES = Sample("c/2", "binary", "Does it move?", "yes", CLIP, think="The red box changes its place.")
FIRST = Sample("c/3", "choice", "Which is first?", "B", CLIP, ("the box", "the ball"), think="It is the ball")


@pytest.mark.parametrize(
    ("sample", "learned"),
    [
        (SIDE, [" red box", " So: to the right. Asked: to the left no</think><answer>No</answer>"]),
        (MOVES, [".</think><answer>Yes</answer>"]),  # the question names no box
        (FIRST, [" So: the ball B</think><answer>B</answer>"]),
    ],
)
def test_what_follows_from_the_text_before_it(sample, learned):
    parts = told(sample)
    assert [text for text, learns in parts if learns] == learned
    assert "".join(text for text, _ in parts) == gold_completion(sample)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizers.train([f"{instruction(s)}\n{gold_completion(s)}" for s in (SIDE, MOVES, FIRST)] * 3, 400, folder)
    return tokenizers.load(folder)


@pytest.mark.parametrize("sample", [SIDE, MOVES, FIRST])
def test_stretches_are_cut_where_the_tokenizer_cuts(sample, tokenizer):
    whole = tokenizer(gold_completion(sample), add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert statements(told(sample), tokenizer).ids_L.tolist() == whole


def test_rows_learn_what_is_told(tokenizer):
    rows = ConclusionRows([SIDE, MOVES, FIRST, replace(FIRST, think="")], tokenizer, seed=0)
    seen = set()
    for position in range(12):
        tokens, clip = rows.row(position)
        text = tokenizer.decode(tokens.ids_L)
        assert clip == -1 and text.count("<answer>") == 2 * QUESTIONS  # the form asked for, and the answer
        seen.update(tokenizer.decode(tokens.ids_L[tokens.loss_mask_L]).split("</answer>"))
    assert " red box So: to the right. Asked: to the left no</think><answer>No" in seen
    assert {" So: the ball B</think><answer>B", " So: the ball A</think><answer>A"} <= seen  # options change places
    again = ConclusionRows([SIDE, MOVES, FIRST], tokenizer, seed=0)
    assert np.array_equal(again.row(7)[0].ids_L, rows.row(7)[0].ids_L)


def test_sets_without_thoughts_are_refused(tokenizer):
    with pytest.raises(UserError, match="conclusion_rows: the sets have no yes/no or choice question with a thought"):
        ConclusionRows([replace(MOVES, think="")], tokenizer, seed=0)
