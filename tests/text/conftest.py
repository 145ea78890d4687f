"""A tokenizer of a few sentences, learned once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from cosmos_reason.text import tokenizer as tokenizers

CORPUS = (
    "Answer the question about the video.",
    "Which ball hits the blue box?\n(A) the red ball\n(B) the green ball\n",
    "<think>The red ball rolls to the right. It hits the box at 0.25 s.</think><answer>A</answer>",
    "system user assistant",
)


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizers.train(CORPUS, 320, folder)
    return folder


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder: Path) -> PreTrainedTokenizerFast:
    return tokenizers.load(tokenizer_folder)
