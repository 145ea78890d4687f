"""Local models: what cannot be opened says so, batches answer as single prompts, texts end before stop strings."""

import random

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from cosmos_reason.backends.local import UNDECODED, LocalBackend, TextUntil, decoded, model_folder
from cosmos_reason.errors import UserError
from cosmos_reason.text.chat import prompt_for
from cosmos_reason.types import Frames, Sample, VideoRef


@pytest.fixture(scope="module")
def nano():
    return LocalBackend("nano")


def asked(frames, question="Does the red ball move?"):
    """A prompt about that many noisy frames."""
    pixels = np.random.default_rng(frames).integers(0, 256, (frames, 64, 64, 3), dtype=np.uint8)
    seen = Frames(pixels, np.arange(frames) / 8, 8.0, frames, "drawn")
    return prompt_for(Sample("s", "binary", question, "yes", VideoRef("v")), seen)


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(UserError, match=r"no model 'nan': wanted nano, nano-base or a folder"):
        model_folder("nan")


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no config\.json"):
        LocalBackend(str(tmp_path))


def test_a_batch_of_unequal_prompts_is_answered_as_each_alone(nano):
    prompts = [asked(8), asked(3, "Is it?"), asked(8, "Does the yellow cylinder roll to the left of the blue box?")]
    together = nano.complete(prompts, 24, 0.0, 0)
    for prompt, completion in zip(prompts, together, strict=True):
        assert nano.complete([prompt], 24, 0.0, 0)[0].text == completion.text
        assert "".join(nano.stream(prompt, 24, 0.0, 0)) == completion.text
        assert len(completion.ids_L) == len(completion.logprobs_L) <= 24


def in_bytes(tokenizer, text):
    """Ids that spell the text byte for byte."""
    letters = bytes_to_unicode()
    return [tokenizer.convert_tokens_to_ids(letters[byte]) for byte in text.encode()]


def ending(text, stop):
    """The slow twin: character by character, to the first that completes a stop string."""
    for end in range(len(text) + 1):
        if complete := [s for s in stop if text[:end].endswith(s)]:
            return text[: end - max(map(len, complete))]
    return text


def pushed(tokenizer, ids, stop):
    """Text at the end and the number of ids that were needed; what is settled is never taken back."""
    row, before = TextUntil(tokenizer, stop), ""
    for count, token in enumerate(ids, 1):
        ended = row.push(token)
        assert row.text.startswith(before) and ended == row.ended
        before = row.text
        if ended:
            return row.close(), count
    return row.close(), len(ids)


@pytest.mark.parametrize(
    ("text", "stop", "expected", "needed"),
    [
        ("one stop two", ["stop"], "one ", 8),
        ("nono stop", ["not", "no s"], "no", 6),  # what looks like a beginning comes back when it is none
        ("aabaab", ["aaba", "ab"], "a", 3),  # the one that is complete first
        ("abc", ["bc", "abc"], "", 3),  # the longer one of two that end together
        ("ein 🙂 mehr", ["🙂"], "ein ", 8),  # four bytes
        ("ein 🙂 mehr", ["n"], "ei", 3),
        ("über", ["b"], "ü", 3),
        ("nothing", ["stop"], "nothing", 7),
        ("nothing", [], "nothing", 7),
        ("not quite sto", ["stop"], "not quite sto", 13),
    ],
)
def test_text_ends_before_the_stop_string_at_the_byte_that_completes_it(nano, text, stop, expected, needed):
    assert pushed(nano.tokenizer, in_bytes(nano.tokenizer, text), stop) == (expected, needed)


def test_tokens_of_many_characters_and_a_half():
    """A stop string counts although the last character still lacks bytes, and is found as if spelled in single ones."""
    letters = bytes_to_unicode()
    first, second = (letters[byte] for byte in "é".encode())
    vocabulary = {word: n for n, word in enumerate(["STOP" + first, second, "x", "aabaab", "abc"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="x"))
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    assert decoded(fast, [0]) == "STOP" + UNDECODED
    assert pushed(fast, [2, 0, 1, 2], ["STOP"]) == ("x", 2)
    assert pushed(fast, [2, 0, 1, 2], ["é"]) == ("xSTOP", 3)
    assert pushed(fast, [2, 0, 1, 2], []) == ("xSTOPéx", 4)
    assert pushed(fast, [2, 3, 2], ["aaba", "ab"]) == ("xa", 2)
    assert pushed(fast, [2, 4, 2], ["bc", "abc"]) == ("x", 2)


def test_random_ids_give_the_text_that_they_decode_to(nano):
    """Half of them bytes, so that many are no characters; with and without stop strings, against the slow twin."""
    draw, tokenizer = random.Random(3), nano.tokenizer
    letters = list(bytes_to_unicode().values())
    spelled = [tokenizer.convert_tokens_to_ids(letter) for letter in letters]
    stopped = 0
    for _ in range(400):
        ids = [draw.choice(spelled) if draw.random() < 0.5 else draw.randrange(len(tokenizer)) for _ in range(30)]
        text = decoded(tokenizer, ids)
        parts = [text[at : at + draw.randint(1, 4)] for at in draw.choices(range(len(text)), k=3)]
        stop = [part for part in parts if UNDECODED not in part][: draw.randrange(3)]
        got, needed = pushed(tokenizer, ids, stop)
        assert got == ending(text, stop)
        if stop:
            stopped += 1
            assert ending(before := decoded(tokenizer, ids[: needed - 1]).rstrip(UNDECODED), stop) == before
    assert stopped > 100


def test_spaces_of_other_tokenizers_survive():
    """A decoder that drops the first space of what it is given: a single id never shows the space before it."""
    words = ["▁The", "▁ball", "▁stops", "s", "<pad>", "<unk>"]
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.decoder = decoders.Metaspace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>")
    ids = [4, 0, 4, 4, 1, 3, 4, 2]
    assert pushed(fast, ids, []) == ("The balls stops", 8)
    assert pushed(fast, ids, [" stop"]) == ("The balls", 8)


@pytest.mark.parametrize("stop", [[""], ["a", ""], "abc"])
def test_stop_strings_that_are_none_are_refused(nano, stop):
    with pytest.raises(UserError, match="stop: wanted a list of strings, none of them empty"):
        nano.complete([asked(8)], 4, 0.0, 0, stop=stop)
    with pytest.raises(UserError, match="stop: wanted a list of strings"):
        next(nano.stream(asked(8), 4, 0.0, 0, stop=stop))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_end_before_their_stop_strings(nano, temperature):
    """In a batch and streamed; rows that hold none go on."""
    prompts = [asked(8), asked(3, "Is it?"), asked(8, "Does the yellow cylinder roll to the left of the blue box?")]
    whole = nano.complete(prompts, 24, temperature, 5)
    stop = [whole[0].text[9:14], whole[2].text[20:23]]
    rows = nano.complete(prompts, 24, temperature, 5, stop=stop)
    for i, (row, free) in enumerate(zip(rows, whole, strict=True)):
        assert row.text == ending(free.text, stop)
        assert "".join(nano.stream(prompts[i], 24, temperature, 5 + i, stop=stop)) == row.text
        count = len(row.ids_L)
        assert row.ids_L.tolist() == free.ids_L[:count].tolist() and len(row.logprobs_L) == count
        if row.text != free.text:
            assert row.finish_reason == "stop" and any(s in decoded(nano.tokenizer, row.ids_L) for s in stop)
            assert all(s not in decoded(nano.tokenizer, row.ids_L[:-1]) for s in stop)
        else:
            assert row.finish_reason == free.finish_reason and count == len(free.ids_L)
    assert rows[0].text != whole[0].text


def test_a_stream_cut_within_a_character_says_so_as_the_whole_answer_does(nano, monkeypatch):
    """Ids come from a list here: the last one is the first byte of two."""
    ids = in_bytes(nano.tokenizer, "é or é")[:-1]
    monkeypatch.setattr(
        "cosmos_reason.backends.local.stream", lambda *_: (type("", (), {"ids_B": [token]})() for token in ids)
    )
    assert list(nano.stream(asked(8), 24, 0.0, 0)) == ["é", " ", "o", "r", " ", UNDECODED]
    assert decoded(nano.tokenizer, ids) == "é or " + UNDECODED


def test_a_stream_may_be_left_at_any_piece(nano):
    pieces = nano.stream(asked(8), 24, 0.0, 0)
    first = next(pieces)
    pieces.close()
    assert nano.complete([asked(8)], 24, 0.0, 0)[0].text.startswith(first)
    assert list(pieces) == []


def test_no_prompts_no_completions(nano):
    assert nano.complete([], 24, 0.0, 0) == []


def test_a_short_clip_is_shown_as_it_is_in_training(nano):
    ids, _, features = nano._inputs([asked(3)])
    assert features.shape[0] == nano.model.config.video_frames == 8
    assert (ids == nano.model.config.video_token_id).sum() == 8 * nano.model.tokens_per_frame
    assert all((features[i] == features[3]).all() for i in range(4, 8))  # the third frame again, and it stands still
