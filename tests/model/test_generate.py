"""The engine against a loop without cache, and sampling against distributions computed here."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from cosmos_reason.errors import UserError
from cosmos_reason.model.generate import Sampling, draw, generate, stream
from tests.model import twin

VIDEO, IMAGE = 5, 6


def model(**changes):
    return twin.tiny(**changes).requires_grad_(False)


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows of 9 and 4 tokens with one frame each, padded on the left."""
    torch.manual_seed(2)
    ids_BL = torch.randint(7, 40, (2, 9))
    ids_BL[:, 6] = VIDEO
    mask_BL = torch.ones_like(ids_BL)
    ids_BL[1, :5], mask_BL[1, :5] = 0, 0
    return ids_BL, mask_BL, torch.randn(2, 1, 64, dtype=torch.float64)


def test_greedy_equals_whole_passes_and_rows_alone():
    net = model()
    ids_BL, mask_BL, features = batch()
    rows = generate(net, ids_BL, mask_BL, features, Sampling(max_new_tokens=7))
    for row, (ids, mask) in enumerate(zip(ids_BL, mask_BL, strict=True)):
        text = ids[mask.bool()]
        for got, logprob in zip(rows[row].ids_L, rows[row].logprobs_L, strict=True):
            logits = net(input_ids=text[None], vision_features=features[row : row + 1]).logits[0, -1].float()
            logits[[VIDEO, IMAGE]] = -math.inf
            assert got == logits.argmax()
            assert logprob == pytest.approx(logits.log_softmax(-1).max().item(), abs=1e-5)
            text = torch.cat([text, torch.tensor([got])])
        assert rows[row].finish_reason == "length"


def test_pixels_do_as_well_as_features():
    net = model()
    ids_BL, mask_BL, _ = batch()
    pixels = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    sampling = Sampling(max_new_tokens=4)
    from_pixels = generate(net, ids_BL, mask_BL, None, sampling, pixel_values=pixels)
    from_features = generate(net, ids_BL, mask_BL, net.encode_frames(pixels), sampling)
    assert [r.ids_L.tolist() for r in from_pixels] == [r.ids_L.tolist() for r in from_features]


def test_a_row_draws_by_its_own_seed_only():
    net = model()
    ids_BL, mask_BL, features = batch()
    together = generate(net, ids_BL, mask_BL, features, Sampling(temperature=1.0, max_new_tokens=8, seeds=(3, 11)))
    alone = generate(net, ids_BL[1:, 5:], None, features[1:], Sampling(temperature=1.0, max_new_tokens=8, seeds=(11,)))
    assert together[1].ids_L.tolist() == alone[0].ids_L.tolist()
    counted = generate(net, ids_BL, mask_BL, features, Sampling(temperature=1.0, max_new_tokens=8, seeds=(10,)))
    assert counted[1].ids_L.tolist() == alone[0].ids_L.tolist()  # 10 stands for 10, 11
    assert together[0].ids_L.tolist() != counted[0].ids_L.tolist()


def test_finished_rows_get_the_pad_id_and_the_stream_ends():
    net = model()
    ids_BL, mask_BL, features = batch()
    free = generate(net, ids_BL, mask_BL, features, Sampling(max_new_tokens=8))
    end = int(free[0].ids_L[2])  # what row 0 says third becomes an end token
    sampling = Sampling(max_new_tokens=8, eos_ids=(end,), pad_id=39)
    rows = generate(net, ids_BL, mask_BL, features, sampling)
    stop = free[0].ids_L.tolist().index(end) + 1
    assert rows[0].ids_L.tolist() == free[0].ids_L[:stop].tolist() and rows[0].finish_reason == "stop"
    assert len(rows[0].logprobs_L) == stop
    steps = list(stream(net, ids_BL, mask_BL, features, sampling))
    assert all(step.done_B[0] == (t >= stop - 1) for t, step in enumerate(steps))
    assert all(int(step.ids_B[0]) == 39 and step.logprobs_B[0] == 0 for step in steps[stop:])
    both = Sampling(max_new_tokens=50, eos_ids=tuple(range(40)))
    assert len(list(stream(net, ids_BL, mask_BL, features, both))) == 1


def test_cancelling_between_steps():
    net = model()
    ids_BL, mask_BL, features = batch()
    asked = []
    rows = generate(
        net, ids_BL, mask_BL, features, Sampling(max_new_tokens=8), lambda: asked.append(1) or len(asked) > 3
    )
    assert [len(row.ids_L) for row in rows] == [3, 3]
    assert {row.finish_reason for row in rows} == {"cancelled"}


def test_banned_ids_and_placeholders_are_never_drawn():
    net = model()
    net.lm_head.weight.data[[VIDEO, IMAGE, 9]] *= 100  # they would win half of all draws
    ids_BL, mask_BL, features = batch()
    for temperature in (0.0, 1.0):
        sampling = Sampling(temperature=temperature, max_new_tokens=30, banned_ids=(9,))
        drawn = {int(i) for row in generate(net, ids_BL, mask_BL, features, sampling) for i in row.ids_L}
        assert not drawn & {VIDEO, IMAGE, 9}


def draws(sampling: Sampling, probs: list[float], count: int = 4000) -> tuple[Counter, dict[int, float]]:
    """Counts and log-probabilities of many draws from one distribution."""
    logits = torch.tensor(probs).log().expand(count, -1)
    generators = [torch.Generator().manual_seed(seed) for seed in range(count)]
    ids, logprobs = draw(logits, sampling, [], generators)
    return Counter(ids.tolist()), dict(zip(ids.tolist(), logprobs.tolist(), strict=True))


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(temperature=1.0), [0.1, 0.4, 0.2, 0.3]),
        (Sampling(temperature=0.5), [0.01 / 0.3, 0.16 / 0.3, 0.04 / 0.3, 0.09 / 0.3]),
        (Sampling(temperature=1.0, top_k=2), [0, 4 / 7, 0, 3 / 7]),
        (Sampling(temperature=1.0, top_p=0.65), [0, 4 / 7, 0, 3 / 7]),
        (Sampling(temperature=1.0, top_p=0.71), [0, 4 / 9, 2 / 9, 3 / 9]),
        (Sampling(temperature=1.0, top_p=0.01), [0, 1, 0, 0]),
        (Sampling(temperature=1.0, top_k=3, top_p=0.5), [0, 4 / 7, 0, 3 / 7]),
    ],
)
def test_sampling_follows_the_distribution_it_reports(sampling, expected):
    counts, logprobs = draws(sampling, [0.1, 0.4, 0.2, 0.3])
    for token, share in enumerate(expected):
        assert counts[token] / 4000 == pytest.approx(share, abs=0.03)  # 4 deviations of 4,000 draws
        if share:
            assert logprobs[token] == pytest.approx(math.log(share), abs=1e-5)
        else:
            assert token not in counts


def test_greedy_reports_the_plain_softmax():
    counts, logprobs = draws(Sampling(), [0.1, 0.4, 0.2, 0.3], count=3)
    assert counts == {1: 3}
    assert logprobs[1] == pytest.approx(math.log(0.4), abs=1e-6)


@pytest.mark.parametrize(
    "fields", [{"temperature": -1.0}, {"temperature": math.nan}, {"top_p": 0.0}, {"top_k": -1}, {"max_new_tokens": 0}]
)
def test_settings_out_of_range_are_refused(fields):
    with pytest.raises(UserError, match="wanted"):
        Sampling(**fields)


def test_prompts_padded_on_the_right_and_missing_seeds_are_refused():
    net = model()
    ids_BL, mask_BL, features = batch()
    with pytest.raises(UserError, match="padding on the left"):
        generate(net, ids_BL, mask_BL.flip(1), features, Sampling())
    with pytest.raises(UserError, match="wanted one or 2, one a row, got 3"):
        generate(net, ids_BL, mask_BL, features, Sampling(seeds=(1, 2, 3)))
