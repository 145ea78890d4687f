"""The generation engine: ids and features in, ids out; it never sees text.

One pass over the left-padded prompts fills the cache, then every step costs one token a row. Each row draws from its
own numbers, so that a row's seed, not its neighbours, decides what is drawn.

B rows, R of them still in the cache, L tokens, T steps, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cosmos_reason.errors import UserError
from cosmos_reason.model.cache import HybridCache
from cosmos_reason.model.causal_lm import HybridForCausalLM
from cosmos_reason.model.sampling import Sampler, Sampling
from cosmos_reason.types import FinishReason

Stop = Callable[[int, int], bool]  # (row, new id) -> whether the row ends with it


class Step(NamedTuple):
    """One new id a row."""

    ids_B: Tensor  # int64; the pad id in rows that were done before
    logprobs_B: Tensor  # float32, natural log, under the sampling distribution; 0 in rows that were done before
    done_B: Tensor  # bool: this row has ended, now or before


class Row(NamedTuple):
    """What one row produced, its end token included."""

    ids_L: np.ndarray  # int64
    logprobs_L: np.ndarray  # float32
    finish_reason: FinishReason


def stream(
    model: HybridForCausalLM,
    input_ids_BL: Tensor,
    attention_mask_BL: Tensor | None,
    vision_features: Tensor | None,
    sampling: Sampling,
    cancel: Callable[[], bool] | None = None,
    pixel_values: Tensor | None = None,
    stop: Stop | None = None,
) -> Iterator[Step]:
    """Yield a step a token until every row is done, max_new_tokens are drawn or `cancel()` is true.

    A row is done with an end token, or when `stop` says so; it is asked of every id of a row, in order. Closing the
    iterator frees the cache at once.
    """
    rows, length = input_ids_BL.shape
    if attention_mask_BL is not None and not bool(attention_mask_BL[:, -1].all()):
        raise UserError("prompts: wanted padding on the left, got a row that ends with padding")
    weight = model.lm_head.weight
    sampler = Sampler(sampling, input_ids_BL, attention_mask_BL, len(weight), model.placeholder_ids)
    cache = HybridCache(model.text_config, rows, length + sampling.max_new_tokens, weight.dtype, weight.device)
    eos = torch.tensor(sampling.eos_ids, dtype=torch.int64, device=weight.device)
    done_B = torch.zeros(rows, dtype=torch.bool, device=weight.device)
    kept_R = torch.arange(rows, device=weight.device)
    inputs = {"input_ids": input_ids_BL, "attention_mask": attention_mask_BL}
    inputs |= {} if vision_features is None else {"vision_features": vision_features}
    inputs |= {} if pixel_values is None else {"pixel_values": pixel_values}
    for _ in range(sampling.max_new_tokens):
        if cancel is not None and cancel():
            return
        with torch.no_grad():
            logits_RV = model(**inputs, cache=cache, logits_to_keep=1).logits[:, -1].float()
        drawn = sampler.draw(logits_RV)
        ids_B = _spread(drawn.ids_B, kept_R, done_B, sampling.pad_id)
        logprobs_B = _spread(drawn.logprobs_B, kept_R, done_B, 0.0)
        stopped_B = done_B if stop is None else _stopped(stop, ids_B, done_B)
        done_B = stopped_B | torch.isin(ids_B, eos)
        yield Step(ids_B, logprobs_B, done_B)
        going = int((~done_B).sum())
        if not going:
            return
        if 2 * going < len(kept_R):  # each such cut at least halves the cache, so all of them copy less than it once
            going_R = (~done_B[kept_R]).nonzero()[:, 0]
            cache.select(going_R)
            sampler.select(going_R)
            kept_R = kept_R[going_R]
        inputs = {"input_ids": ids_B[kept_R, None]}


def _spread(values_R: Tensor, kept_R: Tensor, done_B: Tensor, padding: float) -> Tensor:
    """Values of the rows in the cache at their places in the batch, `padding` in rows that are done."""
    return values_R.new_full(done_B.shape, padding).index_copy(0, kept_R, values_R).masked_fill(done_B, padding)


def _stopped(stop: Stop, ids_B: Tensor, done_B: Tensor) -> Tensor:
    """Rows that were done, and those that are by what `stop` says of their new ids."""
    pairs = enumerate(zip(ids_B.tolist(), done_B.tolist(), strict=True))
    return torch.tensor([done or bool(stop(row, token)) for row, (token, done) in pairs], device=done_B.device)


def generate(
    model: HybridForCausalLM,
    input_ids_BL: Tensor,
    attention_mask_BL: Tensor | None,
    vision_features: Tensor | None,
    sampling: Sampling,
    cancel: Callable[[], bool] | None = None,
    pixel_values: Tensor | None = None,
    stop: Stop | None = None,
) -> list[Row]:
    """All of `stream`, row by row. A row that was cut by `cancel` says "cancelled", by its length "length"."""
    steps = list(stream(model, input_ids_BL, attention_mask_BL, vision_features, sampling, cancel, pixel_values, stop))
    if not steps:
        return [Row(np.empty(0, np.int64), np.empty(0, np.float32), "cancelled") for _ in input_ids_BL]
    ids_BT, logprobs_BT, done_BT = (torch.stack(values, 1).cpu().numpy() for values in zip(*steps, strict=True))
    lengths_B = 1 + (~done_BT[:, :-1]).sum(1)
    unfinished: FinishReason = "length" if len(steps) == sampling.max_new_tokens else "cancelled"
    return [
        Row(ids_T[:length].copy(), logprobs_T[:length].copy(), "stop" if done else unfinished)
        for ids_T, logprobs_T, length, done in zip(ids_BT, logprobs_BT, lengths_B, done_BT[:, -1], strict=True)
    ]
