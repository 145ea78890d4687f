"""Text alone: what a completion takes from its question and from its own thought.

A conversation about a video asks two things at once: to see, and to keep to the question. Here the thought is given,
and only that is learned which the text before it tells: the name that the question asks about, where the thought begins
with it, and the conclusion with its answer. Learned is what stands in «»:

    Is the red box to the left of the black ball at the end? … <think>At the end, from left to right: the black ball and
    the red box.« So: the black ball, then the red box. Asked: the red box, then the black ball no</think>…»
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from transformers import PreTrainedTokenizerFast

from cosmos_reason.errors import UserError
from cosmos_reason.text.answer import gold_completion, instruction
from cosmos_reason.text.chat import statements
from cosmos_reason.training.rows import shuffle_options
from cosmos_reason.types import Sample, Tokens

QUESTIONS = 3  # a row


class ConclusionRows:
    """The n-th row, drawn from (seed, position): some questions of the sets, each with its completion."""

    def __init__(self, samples: Sequence[Sample], tokenizer: PreTrainedTokenizerFast, seed: int) -> None:
        self._samples = [s for s in samples if s.think and s.kind in ("binary", "choice")]
        self._tokenizer, self._seed = tokenizer, seed
        if not self._samples:
            raise UserError("conclusion_rows: the sets have no yes/no or choice question with a thought; set it to 0")

    def row(self, position: int) -> tuple[Tokens, int]:
        """Tokens of the row at this position; there is no clip, hence −1."""
        rng = np.random.default_rng([self._seed, 6, position])
        parts: list[tuple[str, bool]] = []
        for pick in rng.integers(len(self._samples), size=QUESTIONS):
            sample = shuffle_options(self._samples[pick], rng)
            parts += [(f"{instruction(sample)}\n", False), *told(sample), ("\n", False)]
        return statements(parts, self._tokenizer), -1


def told(sample: Sample) -> list[tuple[str, bool]]:
    """The gold completion in stretches, with True for those that follow from the text before them."""
    completion = gold_completion(sample)
    end = completion.index("</think>")
    # A full stop and the tag after it are one word to the tokenizer.
    conclusion = completion.index(" So: ") if " So: " in completion else end - completion[:end].endswith(".")
    opening, name = "<think>The", ""
    if completion.startswith(f"{opening} "):
        for word in completion[len(opening) + 1 : conclusion].split(" "):
            if f"{name} {word}" not in sample.question:
                break
            name += f" {word}"
    if not name:
        return [(completion[:conclusion], False), (completion[conclusion:], True)]
    given = completion[len(opening) + len(name) : conclusion]
    return [(opening, False), (name, True), (given, False), (completion[conclusion:], True)]
