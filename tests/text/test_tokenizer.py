"""The vocabulary: layout, round trips, determinism, and the folder as others load it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from cosmos_reason.errors import UserError
from cosmos_reason.text import tokenizer as tokenizers
from cosmos_reason.text.tokenizer import CONTROL_TOKENS, PAD, TAGS, TURN_END


def plain_ids(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]


def test_layout(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.convert_tokens_to_ids([*CONTROL_TOKENS, *TAGS]) == list(range(11))
    assert set(tokenizer.all_special_tokens) == set(CONTROL_TOKENS)
    assert (tokenizer.pad_token, tokenizer.eos_token, tokenizer.bos_token) == (PAD, TURN_END, None)
    assert 11 + 256 < len(tokenizer) <= 320
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))


def test_every_byte_has_a_token(tokenizer: PreTrainedTokenizerFast) -> None:
    for text in (*map(chr, range(0x0, 0x300)), "日本語 🎈", "e\u0301", "\x00\x7f", "\u2028", "\ufffd"):
        assert tokenizer.decode(plain_ids(tokenizer, text)) == text
    single_bytes = {len(tokenizer.decode([i]).encode()) for i in range(11, 11 + 256)}
    assert single_bytes <= {1, 3}  # a byte that is no text of its own is shown as U+FFFD, three bytes long


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "  two  spaces ",
        "a\n\n\nb",
        "\n x\n",
        "tab\tand\r\nreturn",
        "don't 12,345.60 m/s²",
        "x <|im_end|> <think>",
    ],
)
def test_text_round_trips(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(plain_ids(tokenizer, text)) == text


def test_digits_and_line_breaks_are_single(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    tokenizers.train(["2025 2025\n\n2025 0.25 0.25\n\nuser\nuser\n \n \n"] * 50, 300, tmp_path)
    learned = [token for token in tokenizers.load(tmp_path).get_vocab() if any(c in token for c in "0123456789Ċ")]
    assert {token for token in learned if len(token) > 1} == set()
    pieces = tokenizer.convert_ids_to_tokens(plain_ids(tokenizer, "2025\n\n7"))
    assert pieces == ["2", "0", "2", "5", "Ċ", "Ċ", "7"]


@pytest.mark.parametrize("text", ["The ball", " The ball", "\n\nThe", "  x", "'s", "<think>a</think>", "é"])
@pytest.mark.parametrize("before", ["user\n", "a\n", " \n", "\n\n", "12.\n"])
def test_text_after_a_line_break_does_not_depend_on_what_stands_before(
    tokenizer: PreTrainedTokenizerFast, before: str, text: str
) -> None:
    assert plain_ids(tokenizer, before + text) == plain_ids(tokenizer, before) + plain_ids(tokenizer, text)


def test_merges_are_learned(tokenizer: PreTrainedTokenizerFast) -> None:
    assert len(plain_ids(tokenizer, " ball hits the box")) < len(" ball hits the box") / 2
    assert "ink" not in "".join(token for token in tokenizer.get_vocab() if token not in TAGS)  # no merge spent on tags


def test_control_text_is_plain_and_tags_are_single(tokenizer: PreTrainedTokenizerFast) -> None:
    assert min(plain_ids(tokenizer, "".join(CONTROL_TOKENS))) >= 11
    assert tokenizer("".join(CONTROL_TOKENS), add_special_tokens=False)["input_ids"] == list(range(7))
    assert plain_ids(tokenizer, "".join(TAGS)) == [7, 8, 9, 10]
    assert tokenizer.decode([1, 7, 8, 9, 10, 2], skip_special_tokens=True) == "<think></think><answer></answer>"


def test_same_corpus_same_files(tokenizer_folder: Path, tmp_path: Path) -> None:
    corpus = [
        f"object {i % 7} moves {'left' if i % 3 else 'right'} by {i} cm, it {'falls' * (i % 2)}" for i in range(300)
    ]
    for name in ("one", "two"):
        tokenizers.train(iter(corpus), 400, tmp_path / name)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert str(tmp_path) not in (tmp_path / "one" / "tokenizer_config.json").read_text()


def test_auto_tokenizer_reads_the_folder(tokenizer_folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    other = AutoTokenizer.from_pretrained(tokenizer_folder)
    assert other.get_vocab() == tokenizer.get_vocab()
    assert other.chat_template == tokenizer.chat_template
    assert other("the red ball")["input_ids"] == plain_ids(tokenizer, "the red ball")  # no token is added
    special = {
        t["content"]: t["special"]
        for t in json.loads((tokenizer_folder / "tokenizer.json").read_text())["added_tokens"]
    }
    assert special == dict.fromkeys(CONTROL_TOKENS, True) | dict.fromkeys(TAGS, False)


def test_faults_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="267"):
        tokenizers.train(["x"], 266, tmp_path)
    tokenizers.train(["x"], 267, tmp_path / "bytes")
    assert len(tokenizers.load(tmp_path / "bytes")) == 267
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        tokenizers.load(tmp_path)
