"""Rows for fine-tuning: samples -> conversations about one clip -> padded batches, made in a background thread.

A row is one clip and up to k of its questions as turns of one conversation, so that the clip's tokens are paid for
once. Which questions go together, their order and the order of their options are drawn from (seed, row position).

B rows, L tokens, N clips, T frames, S tokens a frame, D feature width.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from queue import Full, Queue
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from cosmos_reason.errors import UserError
from cosmos_reason.text.chat import prompt_for, render
from cosmos_reason.training.frames import FrameStore, clip_key
from cosmos_reason.types import LETTERS, Frames, Prompt, Sample, Tokens


class Batch(NamedTuple):
    """Right-padded rows; `clips_B` are rows of the frame store, whose features go to the placeholders in order."""

    ids_BL: Tensor  # int64
    attention_BL: Tensor  # int64, 1 on real tokens
    labels_BL: Tensor  # int64, −100 where nothing is learned
    clips_B: np.ndarray


def shuffle_options(sample: Sample, rng: np.random.Generator) -> Sample:
    """The same question with its options in another order; the letters of the answer follow their options."""
    if sample.kind != "choice":
        return sample
    order = rng.permutation(len(sample.options))
    new_letter = {LETTERS[old]: LETTERS[new] for new, old in enumerate(order)}
    right = (sample.answer,) if isinstance(sample.answer, str) else sample.answer
    moved = tuple(sorted(new_letter[str(letter)] for letter in right))  # type: ignore[union-attr]
    answer = moved[0] if isinstance(sample.answer, str) else moved
    return replace(sample, options=tuple(sample.options[old] for old in order), answer=answer)


def conversation(samples: Sequence[Sample], frames: Frames) -> Prompt:
    """All questions as turns of one conversation, answers included; the video stands in the first turn only."""
    first = prompt_for(samples[0], frames, with_answer=True)
    later = [prompt_for(sample, None, with_answer=True).messages for sample in samples[1:]]
    turns = [m for messages in later for m in messages if m.role != "system"]
    return Prompt(first.messages + tuple(turns), first.media)


class RowMaker:
    """The n-th row of an endless, seeded order over a set. Random access by position: resuming is exact."""

    def __init__(
        self,
        samples: Sequence[Sample],
        store: FrameStore,
        tokenizer: PreTrainedTokenizerFast,
        tokens_per_frame: int,
        questions_per_row: int,
        seed: int,
        max_tokens: int,
    ) -> None:
        by_clip: dict[str, list[Sample]] = defaultdict(list)
        for sample in samples:
            if sample.video in store:
                by_clip[clip_key(sample.video)].append(sample)
        if not by_clip:
            raise UserError("none of the samples has a clip that could be decoded")
        self._clips = list(by_clip.values())
        self._store, self._tokenizer, self._per_frame = store, tokenizer, tokens_per_frame
        self._seed, self._max_tokens, self._questions = seed, max_tokens, questions_per_row
        self._plan_epoch = -1
        self._plan: list[list[Sample]] = []

    def row(self, position: int) -> tuple[Tokens, int]:
        """Tokens of the row at this position and its clip's row in the store."""
        samples = self._samples_at(position)
        rng = np.random.default_rng([self._seed, 1, position])
        shuffled = [shuffle_options(sample, rng) for sample in samples]
        frames = self._store.frames(samples[0].video)
        tokens = render(conversation(shuffled, frames), self._tokenizer, self._per_frame)
        if len(tokens.ids_L) > self._max_tokens:
            raise UserError(
                f"{samples[0].id}: {len(tokens.ids_L)} tokens, more than max_tokens {self._max_tokens}; "
                "raise max_tokens or take fewer frames or questions a row"
            )
        return tokens, self._store.row(samples[0].video)

    def _samples_at(self, position: int) -> list[Sample]:
        """Each epoch groups every clip's questions anew and shuffles the groups; every question comes once an epoch."""
        groups_in_epoch = sum(-(-len(samples) // self._questions) for samples in self._clips)
        epoch, offset = divmod(position, groups_in_epoch)
        if epoch != self._plan_epoch:
            rng = np.random.default_rng([self._seed, 0, epoch])
            groups = []
            for samples in self._clips:
                mixed = [samples[i] for i in rng.permutation(len(samples))]
                groups += [mixed[i : i + self._questions] for i in range(0, len(mixed), self._questions)]
            self._plan = [groups[i] for i in rng.permutation(len(groups))]
            self._plan_epoch = epoch
        return self._plan[offset]


class Rows(Protocol):
    """Anything that makes the n-th row: its tokens and its clip's row in the store, −1 for none."""

    def row(self, position: int) -> tuple[Tokens, int]: ...


def collate(rows: Sequence[tuple[Tokens, int]], pad_id: int) -> Batch:
    """Right-pad to the longest row; padding is told by position, never by the pad id."""
    length = max(len(tokens.ids_L) for tokens, _ in rows)
    ids = np.full((len(rows), length), pad_id, dtype=np.int64)
    labels = np.full_like(ids, -100)
    attention = np.zeros_like(ids)
    for i, (tokens, _) in enumerate(rows):
        n = len(tokens.ids_L)
        ids[i, :n], attention[i, :n] = tokens.ids_L, 1
        labels[i, :n] = np.where(tokens.loss_mask_L, tokens.ids_L, -100)
    clips = np.array([row for _, row in rows])
    return Batch(torch.from_numpy(ids), torch.from_numpy(attention), torch.from_numpy(labels), clips)


def batches(maker: Rows, batch_size: int, pad_id: int, start_step: int, steps: int) -> Iterator[Batch]:
    """Batches of steps start_step..steps−1, prepared ahead by one thread (rendering is cheap beside a step)."""
    ahead: Queue[Batch | BaseException | None] = Queue(maxsize=4)
    stopped = threading.Event()

    def give(item: Batch | BaseException | None) -> None:
        while not stopped.is_set():  # a consumer that has gone takes nothing: do not wait for it for ever
            with contextlib.suppress(Full):
                return ahead.put(item, timeout=1.0)

    def work() -> None:
        try:
            for step in range(start_step, steps):
                if stopped.is_set():
                    return
                rows = [maker.row(step * batch_size + i) for i in range(batch_size)]
                give(collate(rows, pad_id))
            give(None)
        except BaseException as error:  # handed to the consumer, which raises it
            give(error)

    thread = threading.Thread(target=work, daemon=True, name="rows")
    thread.start()
    try:
        while (item := ahead.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
