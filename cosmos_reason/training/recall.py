"""Text alone: from the end of a thought to its answer, many times a row.

The letter of an option, and whether two phrases agree, are found by looking back in the text. A conversation asks for
one such look a question, and a small model learns nothing from so few (docs/log.md); these rows ask for about ten at a
fraction of the cost, because there is no video in them. `⏎` is a line break:

    (A) white⏎(B) to the left⏎ So: to the left B So: white A So: to the left B …
     So: to the left. Asked: to the right no So: to the left. Asked: to the left yes …
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from transformers import PreTrainedTokenizerFast

from cosmos_reason.errors import UserError
from cosmos_reason.text.chat import statements
from cosmos_reason.types import LETTERS, Sample, Tokens

TOKENS = 112  # a row at most, unless its first look is longer
_PHRASES = re.compile(r" (So: .+\. Asked: .+) (yes|no)$")


class RecallRows:
    """The n-th drill, drawn from (seed, position); every second one is of letters where the samples have both kinds."""

    def __init__(self, samples: Sequence[Sample], tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
        self._tokenizer, self._seed = tokenizer, seed
        self._options = [sample.options for sample in samples if sample.kind == "choice"]
        pairs: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for sample in samples:
            if sample.kind == "binary" and (phrases := _PHRASES.search(sample.think)):
                pairs[sample.template].append((phrases[1], phrases[2]))
        self._pairs = list(pairs.values())
        if not self._options and not self._pairs:
            raise UserError(
                "recall_rows: the sets have no choice question and no thought that ends in two phrases; set it to 0"
            )

    def row(self, position: int) -> tuple[Tokens, int]:
        """Tokens of the row at this position; there is no clip, hence −1."""
        rng = np.random.default_rng([self._seed, 3, position])
        letters = bool(self._options) and (not self._pairs or position % 2 == 0)
        return self._cut(self._letters(rng) if letters else self._agreements(rng)), -1

    def _cut(self, looks: Iterator[tuple[str, str]]) -> Tokens:
        """As many looks (text to read, answer to learn) as fit."""
        parts: list[tuple[str, bool]] = []
        tokens = None
        while True:
            read, learned = next(looks)
            parts += [(read, False), (learned, True)]
            longer = statements(parts, self._tokenizer)
            if tokens is not None and len(longer.ids_L) > TOKENS:
                return tokens
            tokens = longer

    def _letters(self, rng: np.random.Generator) -> Iterator[tuple[str, str]]:
        options = self._options[rng.integers(len(self._options))]
        options = tuple(options[i] for i in rng.permutation(len(options)))
        before = "".join(f"({letter}) {option}\n" for letter, option in zip(LETTERS, options, strict=False))
        while True:
            i = rng.integers(len(options))
            yield f"{before} So: {options[i]}", f" {LETTERS[i]}"
            before = ""

    def _agreements(self, rng: np.random.Generator) -> Iterator[tuple[str, str]]:
        pool = self._pairs[rng.integers(len(self._pairs))]
        while True:
            asked, answer = pool[rng.integers(len(pool))]
            yield f" {asked}", f" {answer}"
