"""How each row's next id is chosen: logits -> repetition penalty -> bans -> temperature -> top-k, top-p, min-p -> id.

Rules and order are those of transformers v5.24.0 (`generation/logits_process.py`). Departures: padding of the prompt is
never punished as a repetition (there it is where the rule stands alone, without a mask), and of equally likely ids at
the border of top_p the lower ones stay (there the sort decides).

B rows, L tokens so far, V vocabulary, K likeliest ids, T steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from cosmos_reason.errors import UserError

COLDEST = 1e-6  # colder, and logits / temperature would leave the range of float32
LIKELIEST = (512, 16384)  # so many ids are tried for top_p before the whole vocabulary is sorted


@dataclass(frozen=True)
class Sampling:
    """How to draw. Temperature 0 takes the likeliest id; top_k 0, top_p 1 and min_p 0 keep every id."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 256
    eos_ids: tuple[int, ...] = ()
    banned_ids: tuple[int, ...] = ()  # never drawn; the vision placeholders never are
    pad_id: int = 0  # what finished rows get
    seeds: tuple[int, ...] = (0,)  # one a row; a single one s stands for s, s + 1, …
    min_p: float = 0.0  # drop ids less likely than this share of the likeliest one's probability
    repetition_penalty: float = 1.0  # above 1, ids of the prompt and those drawn before become less likely

    def __post_init__(self) -> None:
        if not (self.temperature == 0 or COLDEST <= self.temperature < math.inf):
            raise UserError(f"temperature: wanted 0 or a number of at least {COLDEST}, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p: wanted more than 0 and at most 1, got {self.top_p}")
        if self.top_k < 0 or self.max_new_tokens < 1:
            raise UserError(f"wanted top_k ≥ 0 and max_new_tokens ≥ 1, got {self.top_k} and {self.max_new_tokens}")
        if not 0 <= self.min_p <= 1:
            raise UserError(f"min_p: wanted 0 to 1, got {self.min_p}")
        if not 0 < self.repetition_penalty < math.inf:
            raise UserError(f"repetition_penalty: wanted a number above 0, got {self.repetition_penalty}")

    @property
    def greedy(self) -> bool:
        """Whether the likeliest id is taken, with no draw."""
        return self.temperature == 0


class Drawn(NamedTuple):
    """One new id a row."""

    ids_B: Tensor  # int64
    logprobs_B: Tensor  # float32, natural log, under the distribution it was drawn from; see `Sampler.draw`


class Sampler:
    """Draws for the rows of one batch, each by its own numbers and its own history."""

    def __init__(
        self, sampling: Sampling, ids_BL: Tensor, mask_BL: Tensor | None, vocab_size: int, never: Sequence[int] = ()
    ) -> None:
        """`mask_BL` is non-zero on the prompt's tokens; `never` are ids that are banned beside those of `sampling`."""
        _check_ids(sampling, vocab_size, never)
        self.sampling = sampling
        self._banned_N = torch.tensor([*sampling.banned_ids, *never], dtype=torch.int64, device=ids_BL.device)
        self._uniform_BT = _uniform(sampling, len(ids_BL)).to(ids_BL.device)
        self._step = 0
        # A prompt ends with a token; its padding becomes copies of that, as to be told twice changes nothing.
        self._told_BL = ids_BL if mask_BL is None else torch.where(mask_BL.bool(), ids_BL, ids_BL[:, -1:])

    def draw(self, logits_BV: Tensor) -> Drawn:
        """The next id of every row.

        Its log-probability is that of the truncated distribution at this temperature, or of the plain softmax (after
        penalty and bans) when greedy.
        """
        logits_BV = self._allowed(logits_BV)
        if self.sampling.greedy:
            logprobs_BV = logits_BV.log_softmax(-1)
            ids_B = logprobs_BV.argmax(-1)
        else:
            logprobs_BV = truncated(logits_BV / self.sampling.temperature, self.sampling).log_softmax(-1)
            ids_B = _invert(logprobs_BV, self._uniform_BT[:, self._step])
        self._step += 1
        if self.sampling.repetition_penalty != 1:
            self._told_BL = torch.cat([self._told_BL, ids_B[:, None]], dim=1)
        logprobs_B = logprobs_BV.gather(1, ids_B[:, None])[:, 0]
        assert bool(logprobs_B.isfinite().all()), "the model's logits are not all numbers; look at its weights"
        return Drawn(ids_B, logprobs_B)

    def select(self, rows_R: Tensor) -> None:
        """Go on with these rows, in this order."""
        self._told_BL = self._told_BL.index_select(0, rows_R)
        self._uniform_BT = self._uniform_BT.index_select(0, rows_R)

    def _allowed(self, logits_BV: Tensor) -> Tensor:
        """A copy with the penalty and the bans."""
        if self.sampling.repetition_penalty != 1:
            logits_BV = penalised(logits_BV, self._told_BL, self.sampling.repetition_penalty)
        return logits_BV.index_fill(1, self._banned_N, -torch.inf)


def penalised(logits_BV: Tensor, told_BL: Tensor, penalty: float) -> Tensor:
    """Divide positive and multiply negative logits of these ids, each id once (Keskar et al. 2019, CTRL)."""
    logits_BL = logits_BV.gather(1, told_BL)
    return logits_BV.scatter(1, told_BL, torch.where(logits_BL < 0, logits_BL * penalty, logits_BL / penalty))


def truncated(logits_BV: Tensor, sampling: Sampling) -> Tensor:
    """The logits of ids that may be drawn, −inf elsewhere; each rule sees what the one before it left."""
    if 0 < sampling.top_k < logits_BV.shape[1]:
        logits_BV = logits_BV.masked_fill(logits_BV < logits_BV.topk(sampling.top_k).values[:, -1:], -torch.inf)
    if sampling.top_p < 1:
        logits_BV = logits_BV.masked_fill(~_nucleus(logits_BV, sampling.top_p), -torch.inf)
    if sampling.min_p > 0:
        probs_BV = logits_BV.softmax(-1)
        rare_BV = probs_BV < sampling.min_p * probs_BV.amax(-1, keepdim=True)
        logits_BV = logits_BV.masked_fill(rare_BV, -torch.inf)
    return logits_BV


def _nucleus(logits_BV: Tensor, top_p: float) -> Tensor:
    """True on the fewest likeliest ids whose probabilities reach top_p.

    An id stays if the likelier ones miss top_p, so the few likeliest decide as long as one of them goes. They decide as
    the whole vocabulary would: probabilities above 2⁻²⁹ are whole multiples of 2⁻⁵², which float64 adds without error
    in any order. Of equals at the border the lower ids stay, where transformers leaves it to the sort.
    """
    probs_BV = logits_BV.softmax(-1)
    goal_B1 = top_p * probs_BV.sum(-1, keepdim=True, dtype=torch.float64)  # rounded to float32 they miss 1 a little
    size = logits_BV.shape[1]
    for candidates in (*(count for count in LIKELIEST if count < size), size):
        values_BK, order_BK = logits_BV.topk(candidates)
        probs_BK = probs_BV.gather(1, order_BK).double()
        stays_BK = probs_BK.cumsum(-1) - probs_BK < goal_B1
        if not bool(stays_BK[:, -1].any()):
            break
    count_B1 = stays_BK.sum(-1, keepdim=True)
    least_B1 = values_BK.gather(1, count_B1 - 1)
    kept_BV = logits_BV >= least_B1
    if bool((kept_BV.sum(-1, keepdim=True) > count_B1).any()):
        level_BV = logits_BV == least_B1
        spare_B1 = count_B1 - (logits_BV > least_B1).sum(-1, keepdim=True)
        kept_BV &= ~level_BV | (level_BV.cumsum(-1) <= spare_B1)
    return kept_BV


def _invert(logprobs_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """The id at which the summed probabilities pass each row's number in [0, 1)."""
    cdf_BV = logprobs_BV.exp().cumsum(-1, dtype=torch.float64)
    # The scaled number stays below the last sum, so an id of probability 0 is never reached.
    point_B1 = (uniform_B * cdf_BV[:, -1])[:, None]
    # Only sums that are no numbers lead past the end, to be told by their log-probability.
    return torch.searchsorted(cdf_BV, point_B1, right=True)[:, 0].clamp(max=logprobs_BV.shape[1] - 1)


def _uniform(sampling: Sampling, rows: int) -> Tensor:
    """Numbers in [0, 1), float64 (B, T), every row's from its own seed; none when greedy."""
    seeds = sampling.seeds
    if len(seeds) == 1:
        seeds = tuple(seeds[0] + row for row in range(rows))
    if len(seeds) != rows:
        raise UserError(f"seeds: wanted one or {rows}, one a row, got {len(seeds)}")
    if wide := [seed for seed in seeds if not -(2**63) <= seed < 2**64]:
        raise UserError(f"seeds: wanted whole numbers of 64 bits, got {wide[0]}")
    if sampling.greedy:
        return torch.empty(rows, 0, dtype=torch.float64)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    return torch.stack([torch.rand(sampling.max_new_tokens, generator=g, dtype=torch.float64) for g in generators])


def _check_ids(sampling: Sampling, vocab_size: int, never: Sequence[int]) -> None:
    named = {"eos_ids": sampling.eos_ids, "banned_ids": sampling.banned_ids, "pad_id": (sampling.pad_id,)}
    for name, ids in named.items():
        if outside := [token for token in ids if not 0 <= token < vocab_size]:
            raise UserError(f"{name}: wanted ids from 0 to {vocab_size - 1}, got {outside[0]}")
    if len({*sampling.banned_ids, *never}) >= vocab_size:
        raise UserError(f"banned_ids: all {vocab_size} ids of the vocabulary are banned; leave one to draw")
