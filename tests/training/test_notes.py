"""Notes about frames: words of places and motions by hand, rows by position."""

import json
from pathlib import Path

import numpy as np
import pytest

from cosmos_reason.errors import UserError
from cosmos_reason.simulate.dataset import timeline_to_json
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.training.frames import FrameStore, clip_key
from cosmos_reason.training.notes import NoteRows, courses
from cosmos_reason.types import ObjectTrack, Sample, Timeline, VideoRef


def track(name, centres, visible):
    centres = np.array(centres, float)
    boxes = np.concatenate([centres - 50, centres + 50], axis=1)
    colour, shape = name.split()
    zeros = np.zeros((len(centres), 3))
    return ObjectTrack(name, colour, shape, "object", zeros, centres, boxes, np.array(visible, bool))


BALL = track("red ball", [[100, 900], [300, 900], [500, 895], [700, 895]], [1, 1, 1, 1])
BOX = track("blue box", [[500, 300], [500, 300], [500, 500], [500, 300]], [1, 1, 1, 0])
GONE = track("green box", [[0, 0]] * 4, [0] * 4)


@pytest.fixture
def timeline():
    return Timeline("c_0", "slide", 0, 4.0, np.array([0.0, 0.25, 0.5, 0.75]), (BALL, BOX, GONE), (), {}, "Two.")


def test_places_and_motions_in_words(timeline):
    ball, box = courses(timeline, np.array([0.0, 0.25, 0.5, 0.75]))
    assert [ball.at(t) for t in range(4)] == [
        " red ball left low",
        " red ball left low goes right",
        " red ball middle low goes right",
        " red ball right low goes right",
    ]
    assert ball.whole == " red ball left low, right low goes right;"
    assert box.at(1) == " blue box middle high" and box.at(2) == " blue box middle centre falls"
    assert box.places[3] == box.motions[3] == ""  # out of sight
    assert box.whole == " blue box middle high, middle centre falls;"


def test_times_pick_the_nearest_frames(timeline):
    ball, _ = courses(timeline, np.array([0.05, 0.7]))
    assert ball.places == ("left low", "right low")


@pytest.fixture
def made(timeline, tmp_path):
    (tmp_path / "videos").mkdir()
    (tmp_path / "timelines").mkdir()
    (tmp_path / "timelines" / "c_0.json").write_text(json.dumps(timeline_to_json(timeline)))
    sample = Sample("c_0/q", "binary", "Is it?", "yes", VideoRef(str(tmp_path / "videos" / "c_0.mp4")))
    tokenizers.train(["red ball left low, right low goes right; blue box middle high"] * 3, 300, tmp_path / "tok")
    store = FrameStore(
        Path("x"), np.zeros((1, 2, 8, 8, 3), np.uint8), np.array([[0.0, 0.75]]), {clip_key(sample.video): 0}, {}
    )
    return sample, store, tokenizers.load(tmp_path / "tok")


def test_notes_alone_are_learned_and_stand_by_their_frames(made):
    sample, store, tokenizer = made
    rows = NoteRows([sample], store, tokenizer, 4, seed=0)
    texts = set()
    for position in range(20):
        tokens, clip = rows.row(position)
        assert clip == 0 and len(tokens.slots[0].positions_N) == 8
        assert not tokens.loss_mask_L[tokens.slots[0].positions_N].any()
        learned = tokenizer.decode(tokens.ids_L[tokens.loss_mask_L])
        texts.add(learned)
        if "," not in learned:
            end = int(np.flatnonzero(tokens.loss_mask_L)[-1])
            assert learned.endswith(" red ball right low goes right;") and end > tokens.slots[0].positions_N[-1]
    course = (" red ball left low, right low goes right;",)
    assert any(text.count(course[0]) == 1 and "blue box middle high, middle high;" in text for text in texts)
    assert len(texts) == 4  # two orders of each kind
    assert (NoteRows([sample], store, tokenizer, 4, seed=0).row(7)[0].ids_L == rows.row(7)[0].ids_L).all()


def test_sets_without_timelines_are_refused(made):
    sample, store, tokenizer = made
    Path(sample.video.path).parent.parent.joinpath("timelines", "c_0.json").unlink()
    with pytest.raises(UserError, match="note_rows: none of the clips has a timeline"):
        NoteRows([sample], store, tokenizer, 4, seed=0)
