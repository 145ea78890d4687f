"""The projector's words: what covers a place of the grid, and their loss, by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cosmos_reason.errors import UserError
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.training.words import WORDS, places_of, word_loss
from cosmos_reason.types import ObjectTrack, Timeline


def track(name, boxes, visible=(1, 1), role="object"):
    boxes = np.array(boxes, float)
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    colour, shape = name.split()
    return ObjectTrack(name, colour, shape, role, np.zeros((2, 3)), centres, boxes, np.array(visible, bool))


BALL = track("red ball", [[0, 0, 500, 500], [500, 500, 1000, 1000]])
BOX = track("blue box", [[400, 400, 700, 1000]] * 2, visible=(1, 0))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizers.train([" red ball left high middle low right blue box goes falls"] * 3, 320, folder)
    return tokenizers.load(folder)


@pytest.fixture
def timeline():
    return Timeline("c_0", "slide", 0, 4.0, np.array([0.0, 0.25]), (BALL, BOX), (), {}, "Two.")


def texts(ids_SW, tokenizer):
    return [tokenizer.decode([i for i in place if i >= 0]) for place in ids_SW]


def test_a_place_has_the_words_of_what_covers_most_of_it(timeline, tokenizer):
    ids = places_of(timeline, np.array([0.0, 0.25]), tokenizer, 4, {})
    assert ids.shape == (2, 4, WORDS)
    ball, box = " red ball left high", " blue box middle low"
    assert texts(ids[0], tokenizer) == [ball, box, box, box]  # of the first place the box has 1/25
    assert texts(ids[1], tokenizer) == ["", "", "", " red ball right low goes right"]  # the box is out of sight


def test_an_object_takes_its_place_from_what_it_stands_on(timeline, tokenizer):
    ramp = track("blue box", [[0, 0, 1000, 1000]] * 2, role="ramp")
    ids = places_of(replace(timeline, objects=(BALL, ramp)), np.array([0.0]), tokenizer, 4, {})
    assert [" red" in text for text in texts(ids[0], tokenizer)] == [True, False, False, False]
    assert all(texts(ids[0], tokenizer))


def test_words_written_in_the_table_are_found():
    table = torch.randn(50, 64, generator=torch.Generator().manual_seed(0))
    ids = torch.full((2, WORDS), -1)
    ids[0, :2] = torch.tensor([7, 9])
    right = torch.stack([table[7] + table[9], table[5]])
    loss, found = word_loss(right, ids, table, empty_id=5)
    assert float(loss) < 1e-10 and found == 1.0
    loss, found = word_loss(right.flip(0), ids, table, empty_id=5)
    wrong = (table[7] + table[9] - table[5]).square().mean()
    assert float(loss) == pytest.approx(2 * float(wrong)) and found == 0.0


def test_a_word_that_stands_twice_is_found_once():
    table = torch.randn(50, 64, generator=torch.Generator().manual_seed(0))
    ids = torch.full((1, WORDS), -1)
    ids[0, :3] = torch.tensor([7, 9, 7])
    assert word_loss(2 * table[7:8] + table[9:10], ids, table, empty_id=5)[1] == 1.0


def test_too_small_a_vocabulary_is_said(timeline, tmp_path):
    tokenizers.train(["x"], 270, tmp_path)
    with pytest.raises(UserError, match=r"' red ball left high' is 19 tokens, more than 10"):
        places_of(timeline, np.array([0.0]), tokenizers.load(tmp_path), 4, {})
