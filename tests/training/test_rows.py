"""Rows: option shuffling, grouping of questions by clip, collation, resuming at any position."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cosmos_reason.errors import UserError
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.training.frames import FrameStore, clip_key
from cosmos_reason.training.rows import RowMaker, batches, collate, conversation, shuffle_options
from cosmos_reason.types import Sample, Tokens, VideoRef

CHOICE = Sample("c/1", "choice", "Which?", "B", VideoRef("a.mp4"), ("red", "blue", "green", "black"))


def test_answer_letters_follow_their_options():
    positions = Counter()
    for seed in range(1000):
        moved = shuffle_options(CHOICE, np.random.default_rng(seed))
        assert sorted(moved.options) == sorted(CHOICE.options)
        assert moved.options["ABCD".index(moved.answer)] == "blue"
        positions[moved.answer] += 1
    assert all(200 < positions[letter] < 300 for letter in "ABCD")  # 250 expected, 3.6 standard deviations


def test_several_right_options_move_together():
    both = Sample("c/2", "choice", "Which?", ("A", "C"), VideoRef("a.mp4"), ("red", "blue", "green"))
    for seed in range(20):
        moved = shuffle_options(both, np.random.default_rng(seed))
        assert {moved.options["ABC".index(letter)] for letter in moved.answer} == {"red", "green"}


def test_other_kinds_are_left_alone():
    sample = Sample("b/1", "binary", "Is it?", "yes", VideoRef("a.mp4"))
    assert shuffle_options(sample, np.random.default_rng(0)) is sample


def questions(clips=3, per_clip=5):
    return [
        Sample(
            f"{c}/{q}", "binary", f"Is it number {q}?", "yes" if q % 2 else "no", VideoRef(f"{c}.mp4"), think="Seen."
        )
        for c in range(clips)
        for q in range(per_clip)
    ]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizers.train(["Is it number 3? Answer yes or no. user assistant system Seen."] * 3, 400, folder)
    return tokenizers.load(folder)


def maker(tokenizer, samples, seed=0, max_tokens=1000):
    keys = list(dict.fromkeys(clip_key(s.video) for s in samples))
    pixels = np.zeros((len(keys), 2, 8, 8, 3), np.uint8)
    times_s = np.tile([0.0, 1.0], (len(keys), 1))
    store = FrameStore(Path("unsaved"), pixels, times_s, {k: i for i, k in enumerate(keys)}, {})
    return RowMaker(samples, store, tokenizer, 4, 2, seed, max_tokens)


def text_of(rows, tokenizer):
    return [tokenizer.decode(tokens.ids_L) for tokens, _ in rows]


def test_every_question_comes_once_an_epoch_beside_its_own_clip(tokenizer):
    rows = maker(tokenizer, questions())
    epoch = [rows.row(i) for i in range(9)]  # 3 clips of 5 questions in groups of 2: 3 rows each
    seen = Counter()
    for tokens, clip in epoch:
        text = tokenizer.decode(tokens.ids_L)
        assert sum(len(slot.positions_N) for slot in tokens.slots) == 2 * 4
        seen.update((clip, q) for q in range(5) if f"number {q}?" in text)
    assert len(seen) == 15 and set(seen.values()) == {1}


def test_a_row_depends_on_its_position_alone(tokenizer):
    first, second = maker(tokenizer, questions()), maker(tokenizer, questions())
    whole = text_of([first.row(i) for i in range(30)], tokenizer)
    assert text_of([second.row(i) for i in (25, 3, 14)], tokenizer) == [whole[25], whole[3], whole[14]]
    assert text_of([maker(tokenizer, questions(), seed=1).row(i) for i in range(9)], tokenizer) != whole[:9]


def test_batches_resume_where_they_stopped(tokenizer):
    whole = [b.ids_BL for b in batches(maker(tokenizer, questions()), 4, 0, 0, 5)]
    later = [b.ids_BL for b in batches(maker(tokenizer, questions()), 4, 0, 3, 5)]
    assert len(whole) == 5 and len(later) == 2
    assert all((a == b).all() for a, b in zip(whole[3:], later, strict=True))


def test_a_fault_in_the_background_reaches_the_loop(tokenizer):
    with pytest.raises(UserError, match="max_tokens 10"):
        list(batches(maker(tokenizer, questions(), max_tokens=10), 2, 0, 0, 2))


def test_only_answers_are_learned(tokenizer):
    tokens, _ = maker(tokenizer, questions()).row(0)
    learned = tokenizer.decode(tokens.ids_L[tokens.loss_mask_L])
    assert learned.count("<answer>") == learned.count("</answer>") == 2
    assert "number" not in learned


def test_padding_is_told_by_position(tokenizer):
    short, long = (Tokens(np.arange(1, n + 1), np.ones(n, bool)) for n in (2, 4))
    batch = collate([(short, 7), (long, 9)], pad_id=2)
    assert batch.ids_BL.tolist() == [[1, 2, 2, 2], [1, 2, 3, 4]]
    assert batch.labels_BL.tolist() == [[1, 2, -100, -100], [1, 2, 3, 4]]  # a real token that equals the pad id stays
    assert batch.attention_BL.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert batch.clips_B.tolist() == [7, 9]


def test_the_video_stands_in_the_first_turn_only(tokenizer):
    rows = questions(1, 3)
    frames = maker(tokenizer, rows)._store.frames(rows[0].video)
    prompt = conversation(rows, frames)
    kinds = [[part.kind for part in message.content] for message in prompt.messages]
    assert sum("video" in k for k in kinds) == 1 and len(prompt.media) == 1
    assert [m.role for m in prompt.messages if m.role != "system"] == ["user", "assistant"] * 3
