"""The held-out simulated test: seeds that no training set uses, balanced answers, the same questions every time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cosmos_reason.simulate.dataset import TEST_SEED, balance, read_set, write_set
from cosmos_reason.types import Sample

GUESSABLE = ("binary", "choice")  # kinds with a finite guess, so that "above chance" has a meaning


def held_out(
    folder: Path,
    families: Sequence[str],
    clips_per_family: int,
    questions_per_clip: int,
    workers: int = 2,
    progress: Callable[[int, int], None] | None = None,
    templates: Sequence[str] = (),
) -> list[Sample]:
    """Simulate (or find) the clips of the test seeds and draw binary and choice questions, alike for every family.

    `templates` are the only questions to draw; default: all.
    """
    write_set(folder, families, clips_per_family, TEST_SEED, workers, progress)
    samples = [s for s in balance(read_set(folder), seed=0) if s.kind in GUESSABLE and s.family in families]
    samples = [s for s in samples if not templates or s.template in templates]
    by_family: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_family[sample.family].append(sample)
    wanted = clips_per_family * questions_per_clip
    return [s for family in sorted(by_family) for s in spread(by_family[family], wanted)]


def spread(samples: Sequence[Sample], count: int) -> list[Sample]:
    """About `count` samples in whole rounds (one of each answer of a question), so that answers stay balanced.

    Questions with two and with four options have rounds of their own: else D would be right too often where it is
    offered at all.
    """
    cells: dict[tuple[str, int], dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        cells[sample.template, len(sample.options)][str(sample.answer)].append(sample)
    rounds = [list(row) for answers in cells.values() for row in zip(*answers.values(), strict=False)]
    picked: list[Sample] = []
    for i in np.random.default_rng(0).permutation(len(rounds)):
        if len(picked) + len(rounds[i]) <= count:
            picked += rounds[i]
    return picked
