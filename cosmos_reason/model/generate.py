"""The generation engine: ids and features in, ids out; it never sees text.

One pass over the left-padded prompts fills the cache, then every step costs one token a row. Each row draws from its
own generator, so that a row's seed, not its neighbours, decides what is drawn.

B rows, L tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cosmos_reason.errors import UserError
from cosmos_reason.model.cache import HybridCache
from cosmos_reason.model.causal_lm import HybridForCausalLM
from cosmos_reason.types import FinishReason


@dataclass(frozen=True)
class Sampling:
    """How to draw. Temperature 0 takes the likeliest id; top_k 0 and top_p 1 keep every id."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 256
    eos_ids: tuple[int, ...] = ()
    banned_ids: tuple[int, ...] = ()  # never drawn; the vision placeholders never are
    pad_id: int = 0  # what finished rows get
    seeds: tuple[int, ...] = (0,)  # one a row; a single one s stands for s, s + 1, …

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise UserError(f"temperature: wanted 0 or more, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p: wanted more than 0 and at most 1, got {self.top_p}")
        if self.top_k < 0 or self.max_new_tokens < 1:
            raise UserError(f"wanted top_k ≥ 0 and max_new_tokens ≥ 1, got {self.top_k} and {self.max_new_tokens}")


class Step(NamedTuple):
    """One new id a row."""

    ids_B: Tensor  # int64; the pad id in rows that were done before
    logprobs_B: Tensor  # float32, natural log, under the sampling distribution; 0 in rows that were done before
    done_B: Tensor  # bool: this row has its end token, now or before


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
) -> Iterator[Step]:
    """Yield a step a token until every row is done, max_new_tokens are drawn or `cancel()` is true."""
    rows, length = input_ids_BL.shape
    if attention_mask_BL is not None and not bool(attention_mask_BL[:, -1].all()):
        raise UserError("prompts: wanted padding on the left, got a row that ends with padding")
    generators = _generators(sampling, rows)
    banned = [*sampling.banned_ids, *model.placeholder_ids]
    weight = model.lm_head.weight
    cache = HybridCache(model.text_config, rows, length + sampling.max_new_tokens, weight.dtype, weight.device)
    eos = torch.tensor(sampling.eos_ids, dtype=torch.int64, device=weight.device)
    done_B = torch.zeros(rows, dtype=torch.bool, device=weight.device)
    inputs = {
        "input_ids": input_ids_BL,
        "attention_mask": attention_mask_BL,
        "vision_features": vision_features,
        "pixel_values": pixel_values,
    }
    for _ in range(sampling.max_new_tokens):
        if cancel is not None and cancel():
            return
        with torch.no_grad():
            logits_BV = model(**inputs, cache=cache, logits_to_keep=1).logits[:, -1].float()
        ids_B, logprobs_B = draw(logits_BV, sampling, banned, generators)
        ids_B, logprobs_B = ids_B.masked_fill(done_B, sampling.pad_id), logprobs_B.masked_fill(done_B, 0.0)
        done_B = done_B | torch.isin(ids_B, eos)
        yield Step(ids_B, logprobs_B, done_B)
        if bool(done_B.all()):
            return
        inputs = {"input_ids": ids_B[:, None]}


def generate(
    model: HybridForCausalLM,
    input_ids_BL: Tensor,
    attention_mask_BL: Tensor | None,
    vision_features: Tensor | None,
    sampling: Sampling,
    cancel: Callable[[], bool] | None = None,
    pixel_values: Tensor | None = None,
) -> list[Row]:
    """All of `stream`, row by row. A row that was cut by `cancel` says "cancelled", by its length "length"."""
    rows = input_ids_BL.shape[0]
    ids: list[list[int]] = [[] for _ in range(rows)]
    logprobs: list[list[float]] = [[] for _ in range(rows)]
    done = [False] * rows
    steps = 0
    for step in stream(model, input_ids_BL, attention_mask_BL, vision_features, sampling, cancel, pixel_values):
        steps += 1
        for row, (token, logprob) in enumerate(zip(step.ids_B.tolist(), step.logprobs_B.tolist(), strict=True)):
            if not done[row]:
                ids[row].append(token)
                logprobs[row].append(logprob)
        done = step.done_B.tolist()
    unfinished: FinishReason = "length" if steps == sampling.max_new_tokens else "cancelled"
    return [
        Row(np.array(ids[row], np.int64), np.array(logprobs[row], np.float32), "stop" if done[row] else unfinished)
        for row in range(rows)
    ]


def draw(
    logits_BV: Tensor, sampling: Sampling, banned: list[int], generators: list[torch.Generator]
) -> tuple[Tensor, Tensor]:
    """One id a row and its log-probability under the distribution it was drawn from (plain softmax when greedy)."""
    logits_BV = logits_BV.clone()
    logits_BV[:, banned] = -torch.inf
    if sampling.temperature == 0:
        logprobs_BV = logits_BV.log_softmax(-1)
        ids_B = logprobs_BV.argmax(-1)
    else:
        logprobs_BV = _truncate(logits_BV / sampling.temperature, sampling).log_softmax(-1)
        uniform_B = torch.stack([torch.rand((), generator=g, dtype=torch.float64) for g in generators])
        cdf_BV = logprobs_BV.double().exp().cumsum(-1)
        # The scaled draw stays below the last sum, so an id of probability 0 is never reached.
        point_B1 = (uniform_B.to(cdf_BV.device) * cdf_BV[:, -1])[:, None]
        ids_B = torch.searchsorted(cdf_BV, point_B1, right=True)[:, 0]
    return ids_B, logprobs_BV.gather(1, ids_B[:, None])[:, 0]


def _truncate(logits_BV: Tensor, sampling: Sampling) -> Tensor:
    """Keep the top_k likeliest ids, and of those the fewest whose probabilities reach top_p."""
    if sampling.top_k and sampling.top_k < logits_BV.shape[1]:
        least_B1 = logits_BV.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits_BV = logits_BV.masked_fill(logits_BV < least_B1, -torch.inf)
    if sampling.top_p < 1:
        sorted_BV, order_BV = logits_BV.sort(dim=-1, descending=True)
        probs_BV = sorted_BV.softmax(-1)
        drop_BV = probs_BV.cumsum(-1) - probs_BV >= sampling.top_p
        logits_BV = logits_BV.masked_fill(drop_BV.gather(1, order_BV.argsort(-1)), -torch.inf)
    return logits_BV


def _generators(sampling: Sampling, rows: int) -> list[torch.Generator]:
    seeds = sampling.seeds
    if len(seeds) == 1:
        seeds = tuple(seeds[0] + row for row in range(rows))
    if len(seeds) != rows:
        raise UserError(f"seeds: wanted one or {rows}, one a row, got {len(seeds)}")
    return [torch.Generator().manual_seed(seed) for seed in seeds]
