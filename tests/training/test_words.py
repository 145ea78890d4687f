"""The projector's words: what covers a place of the grid by hand, and that training finds it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cosmos_reason.simulate.dataset import timeline_to_json
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.training.frames import FrameStore, clip_key
from cosmos_reason.training.words import WORDS, places_of, word_loss, words_of
from cosmos_reason.types import ObjectTrack, Sample, Timeline, VideoRef


def track(name, boxes, visible=(1, 1)):
    boxes = np.array(boxes, float)
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    colour, shape = name.split()
    return ObjectTrack(name, colour, shape, "object", np.zeros((2, 3)), centres, boxes, np.array(visible, bool))


BALL = track("red ball", [[0, 0, 500, 500], [500, 500, 1000, 1000]])
BOX = track("blue box", [[400, 400, 700, 1000]] * 2, visible=(1, 0))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizers.train([" red ball left high middle low right blue box"] * 3, 320, folder)
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
    assert texts(ids[1], tokenizer) == ["", "", "", " red ball right low"]  # the box is out of sight


def test_clips_are_joined_with_their_rows(timeline, tokenizer, tmp_path):
    (tmp_path / "timelines").mkdir()
    (tmp_path / "timelines" / "c_0.json").write_text(json.dumps(timeline_to_json(timeline)))
    samples = [Sample(f"{n}/q", "binary", "?", "yes", VideoRef(str(tmp_path / "videos" / f"{n}.mp4"))) for n in "xc"]
    samples[1] = Sample("c_0/q", "binary", "?", "yes", VideoRef(str(tmp_path / "videos" / "c_0.mp4")))
    keys = {clip_key(s.video): i for i, s in enumerate(samples)}
    store = FrameStore(Path("x"), np.zeros((2, 2, 8, 8, 3), np.uint8), np.array([[0.0, 0.25]] * 2), keys, {})
    rows, ids = words_of(samples, store, tokenizer, 4)
    assert rows.tolist() == [1] and ids.shape == (1, 2, 4, WORDS)  # the first clip has no timeline


def test_a_projector_that_writes_the_words_finds_them_all():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.backbone = torch.nn.Module()
            self.backbone.embeddings = torch.nn.Embedding(50, 64)
            self.config = type("C", (), {"video_token_id": 5})
            self.right = True

        def projector(self, features_PE):
            table = self.backbone.embeddings.weight
            target = torch.stack([table[7] + table[9], table[5]])
            return target if self.right else target.flip(0)

    model, ids = Model(), np.full((1, 1, 2, WORDS), -1)
    ids[0, 0, 0, :2] = 7, 9
    loss, found = word_loss(model, np.zeros((1, 1, 2, 3), np.float16), ids)
    assert float(loss.detach()) < 1e-10 and found == 1.0
    model.right = False
    loss, found = word_loss(model, np.zeros((1, 1, 2, 3), np.float16), ids)
    assert float(loss.detach()) > 1 and found == 0.0
