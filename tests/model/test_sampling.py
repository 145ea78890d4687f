"""Every rule against transformers' own on random logits, and drawn frequencies against the distribution reported."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from cosmos_reason.errors import UserError
from cosmos_reason.model import sampling as module
from cosmos_reason.model.sampling import Sampler, Sampling, penalised, truncated


def random_logits(rows: int, size: int, spread: float = 3.0, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)) * spread


def kept(logits: torch.Tensor) -> torch.Tensor:
    return logits > -math.inf


def theirs(sampling: Sampling, scores: torch.Tensor) -> torch.Tensor:
    """What transformers' warpers leave, in the order in which its `generate` puts them."""
    warpers = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        warpers.append(MinPLogitsWarper(sampling.min_p))
    return warpers(None, scores)


def sampler(sampling: Sampling, rows: int = 1, size: int = 4, **changes) -> Sampler:
    """One whose prompts hold the last id only."""
    prompt = changes.pop("ids", torch.full((rows, 1), size - 1))
    return Sampler(sampling, prompt, changes.pop("mask", None), size, **changes)


RULES = [
    {"top_k": 1},
    {"top_k": 40},
    {"top_k": 5000},  # more than there are
    {"top_p": 0.01},
    {"top_p": 0.5},
    {"top_p": 0.9},
    {"top_p": 0.999},
    {"min_p": 0.02},
    {"min_p": 1.0},
    {"top_k": 50, "top_p": 0.95},
    {"top_k": 3, "top_p": 0.9999999},
    {"top_p": 0.95, "min_p": 0.05},
    {"top_k": 100, "top_p": 0.9, "min_p": 0.02},
]


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_same_ids_stay_as_in_transformers(rule, temperature):
    sampling = Sampling(temperature=temperature, **rule)
    logits = random_logits(64, 2048)
    expected = theirs(sampling, logits)
    got = truncated(logits / temperature, sampling)
    assert torch.equal(got, expected)
    assert kept(got).any(1).all()


@pytest.mark.parametrize(("spread", "needed"), [(8.0, 1), (3.0, 2), (0.1, 3)])  # tries until the nucleus is found
def test_the_same_ids_stay_in_a_large_vocabulary(spread, needed):
    """Against fp64: at so many ids theirs in fp32 depends on how the small ones are rounded."""
    sampling = Sampling(temperature=1.0, top_p=0.9)
    logits = random_logits(2, 131_072, spread)
    got, expected = kept(truncated(logits, sampling)), kept(theirs(sampling, logits.double()))
    assert torch.equal(got, expected)
    tries = [0, *module.LIKELIEST, 131_072]
    assert [sum(count > most for most in tries) for count in got.sum(1).tolist()] == [needed, needed]


@pytest.mark.parametrize("rule", [{"top_p": 0.3}, {"top_p": 0.7}, {"top_k": 20}, {"top_k": 20, "top_p": 0.7}], ids=str)
def test_as_many_equals_stay_at_the_border_as_in_transformers(rule):
    """Logits of bf16 heads have few values, so that many ids share the one at the border. Ours keeps the lower ids."""
    sampling = Sampling(temperature=1.0, **rule)
    logits = random_logits(32, 1000).round()
    got = truncated(logits, sampling)
    assert torch.equal(got.sort(1).values, theirs(sampling, logits).sort(1).values)
    if "top_k" not in rule:
        for row, left in zip(logits, got, strict=True):
            level = (row == left[kept(left)].min()).nonzero()[:, 0]
            stays = kept(left)[level].long()
            assert torch.equal(stays, stays.sort(descending=True).values)


@pytest.mark.parametrize("tried", [(), (1,), (7,), (3, 50)])
@pytest.mark.parametrize("top_p", [0.2, 0.6, 0.95])
def test_trying_the_likeliest_first_changes_nothing(monkeypatch, tried, top_p):
    logits = torch.cat([random_logits(8, 300), random_logits(8, 300).round(), random_logits(8, 300, 0.1)])
    sampling = Sampling(temperature=1.0, top_p=top_p)
    expected = truncated(logits, sampling)
    monkeypatch.setattr(module, "LIKELIEST", tried)
    assert torch.equal(truncated(logits, sampling), expected)


@pytest.mark.parametrize("penalty", [0.5, 1.3, 10.0])
def test_the_penalty_is_that_of_transformers(penalty):
    logits = random_logits(4, 50)
    ids = torch.randint(0, 50, (4, 30), generator=torch.Generator().manual_seed(1))  # some of them twice
    assert torch.equal(penalised(logits, ids, penalty), RepetitionPenaltyLogitsProcessor(penalty)(ids, logits))


def test_the_penalty_counts_prompt_and_drawn_ids_but_no_padding():
    """Row 1 is padded with id 0, and a token of row 2 is id 0."""
    ids = torch.tensor([[1, 2, 3], [0, 0, 3], [9, 0, 3]])
    mask = torch.tensor([[1, 1, 1], [0, 0, 1], [1, 1, 1]])
    logits = random_logits(3, 10, seed=4)
    draws = sampler(Sampling(repetition_penalty=1.5), ids=ids, mask=mask, size=10)
    told, padding = ids, torch.tensor([0, 2, 0])
    for _ in range(4):
        expected = RepetitionPenaltyLogitsProcessor(1.5, prompt_ignore_length=padding)(told, logits).log_softmax(-1)
        drawn = draws.draw(logits)
        torch.testing.assert_close(drawn.logprobs_B, expected.max(-1).values)
        assert torch.equal(drawn.ids_B, expected.argmax(-1))
        told = torch.cat([told, drawn.ids_B[:, None]], 1)
    counted = RepetitionPenaltyLogitsProcessor(1.5)(ids, logits)  # bare, theirs counts padding
    assert counted[1, 0] != logits[1, 0]


def test_all_rules_follow_each_other_as_in_transformers():
    """The log-probability reported is that of their processed scores."""
    sampling = Sampling(temperature=0.7, top_k=30, top_p=0.8, min_p=0.05, repetition_penalty=1.2, banned_ids=(7, 8))
    ids = torch.randint(0, 200, (50, 12), generator=torch.Generator().manual_seed(2))
    logits = random_logits(50, 200)
    drawn = sampler(sampling, ids=ids, size=200).draw(logits)
    scores = RepetitionPenaltyLogitsProcessor(1.2)(ids, logits)
    scores[:, [7, 8]] = -math.inf
    expected = theirs(sampling, scores).log_softmax(-1).gather(1, drawn.ids_B[:, None])[:, 0]
    torch.testing.assert_close(drawn.logprobs_B, expected)


def assert_follows(ids: torch.Tensor, probs: torch.Tensor) -> None:
    """χ² of the counts stays within four deviations of its mean; what has no probability was never drawn."""
    counts = torch.bincount(ids, minlength=len(probs)).double()
    assert counts[probs == 0].sum() == 0
    expected = probs[probs > 0].double() * len(ids)
    freedom = len(expected) - 1
    statistic = float(((counts[probs > 0] - expected) ** 2 / expected).sum())
    assert statistic < freedom + 4 * math.sqrt(2 * freedom), f"χ² {statistic:.1f} at {freedom} degrees of freedom"


SETTINGS = [
    Sampling(temperature=1.0),
    Sampling(temperature=0.5),
    Sampling(temperature=1.0, top_k=5),
    Sampling(temperature=1.4, top_p=0.8),
    Sampling(temperature=1.0, min_p=0.1),
    Sampling(temperature=1.2, top_k=15, top_p=0.9, min_p=0.05, repetition_penalty=1.5),
]


def rules_of(sampling: Sampling) -> str:
    return " ".join(f"{name}={getattr(sampling, name)}" for name in ("temperature", "top_k", "top_p", "min_p"))


@pytest.mark.parametrize("sampling", SETTINGS, ids=rules_of)
def test_seeds_and_steps_follow_the_distribution(sampling):
    """8,000 seeds at their first step, and one seed at 8,000 steps."""
    count, size = 8_000, 24
    logits = random_logits(1, size, 1.0, seed=3)
    told = penalised(logits, torch.tensor([[size - 1]]), sampling.repetition_penalty)
    probs = theirs(sampling, told)[0].softmax(-1)
    rows = sampler(sampling, count, size).draw(logits.expand(count, -1))
    assert_follows(rows.ids_B, probs)
    torch.testing.assert_close(rows.logprobs_B, probs.log()[rows.ids_B], atol=1e-5, rtol=1e-5)
    if sampling.repetition_penalty == 1:  # else the distribution changes with what was drawn
        draws = sampler(Sampling(**{**sampling.__dict__, "max_new_tokens": count}), 1, size)
        assert_follows(torch.cat([draws.draw(logits).ids_B for _ in range(count)]), probs)


def test_a_row_draws_the_same_alone_and_among_others():
    logits = random_logits(3, 600, 0.5)
    logits[1] *= 20  # its nucleus is small, those of its neighbours need the whole sort
    one = {"temperature": 1.3, "top_p": 0.9, "repetition_penalty": 1.1}
    together = sampler(Sampling(**one, seeds=(5, 6, 7)), 3, 600)
    alone = sampler(Sampling(**one, seeds=(6,)), 1, 600)
    shorter = sampler(Sampling(**one, seeds=(6,), max_new_tokens=8), 1, 600)
    for step in range(8):
        if step == 4:
            together.select(torch.tensor([2, 1]))
            logits = logits[[2, 1]]
        drawn, single, short = together.draw(logits), alone.draw(logits[1:2]), shorter.draw(logits[1:2])
        assert drawn.ids_B[1] == single.ids_B[0] == short.ids_B[0]
        assert drawn.logprobs_B[1] == single.logprobs_B[0]


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_an_id_without_probability_is_not_reached_by_the_smallest_nor_the_greatest_number(uniform):
    logprobs = torch.tensor([[-math.inf, math.log(0.3), -math.inf, math.log(0.7), -math.inf]])
    drawn = module._invert(logprobs, torch.tensor([uniform], dtype=torch.float64))
    assert drawn.tolist() == [1 if uniform == 0 else 3]


def test_one_seed_stands_for_those_that_follow():
    logits = random_logits(1, 500).expand(3, -1)
    counted, named = (sampler(Sampling(temperature=1.0, seeds=seeds), 3, 500) for seeds in ((10,), (10, 11, 12)))
    ids = counted.draw(logits).ids_B
    assert torch.equal(ids, named.draw(logits).ids_B)
    assert len(set(ids.tolist())) > 1


def test_greedy_reports_the_plain_softmax_and_never_sorts(monkeypatch):
    logits = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()
    draws = sampler(Sampling(top_p=0.1, top_k=1, min_p=0.5))
    monkeypatch.setattr(module, "truncated", None)
    monkeypatch.setattr(module, "_invert", None)
    drawn = draws.draw(logits)
    assert drawn.ids_B.tolist() == [1]
    assert drawn.logprobs_B.item() == pytest.approx(math.log(0.4), abs=1e-6)


def test_the_logits_given_stay_as_they_are():
    logits = random_logits(1, 4)
    before = logits.clone()
    sampler(Sampling(temperature=1.0, top_p=0.5, banned_ids=(1,), repetition_penalty=2.0)).draw(logits)
    assert torch.equal(logits, before)


def test_banned_ids_leave_the_rest():
    for temperature in (0.0, 1.0):
        draws = sampler(Sampling(temperature=temperature, banned_ids=(0, 1)), never=[2])
        drawn = draws.draw(torch.zeros(1, 4))
        assert drawn.ids_B.tolist() == [3] and drawn.logprobs_B.tolist() == [0.0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_a_bug(temperature, value):
    with pytest.raises(AssertionError, match="not all numbers"):
        sampler(Sampling(temperature=temperature)).draw(torch.tensor([[0.0, value, 0.0, 0.0]]))


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"temperature": 1e-30},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_k": -1},
        {"min_p": -0.1},
        {"min_p": math.nan},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": math.inf},
        {"max_new_tokens": 0},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(fields):
    with pytest.raises(UserError, match="wanted"):
        Sampling(**fields)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"banned_ids": (1, 4)}, "banned_ids: wanted ids from 0 to 3, got 4"),
        ({"eos_ids": (-1,)}, "eos_ids: wanted ids from 0 to 3, got -1"),
        ({"pad_id": 9}, "pad_id: wanted ids from 0 to 3, got 9"),
        ({"banned_ids": (0, 1, 2, 3)}, "all 4 ids of the vocabulary are banned"),
        ({"seeds": (1, 2, 3)}, "seeds: wanted one or 2, one a row, got 3"),
        ({"seeds": (2**64,)}, "seeds: wanted whole numbers of 64 bits"),
    ],
)
def test_what_does_not_fit_the_batch_is_refused(fields, sentence):
    with pytest.raises(UserError, match=sentence):
        sampler(Sampling(**fields), rows=2)
