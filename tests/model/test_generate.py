"""The engine against a loop without cache, rows together against rows alone, and every way in which a row ends."""

from __future__ import annotations

import gc
import math
import warnings
import weakref

import pytest
import torch

from cosmos_reason.errors import UserError
from cosmos_reason.model import generate as module
from cosmos_reason.model.cache import HybridCache
from cosmos_reason.model.generate import Row, generate, stream
from cosmos_reason.model.sampling import Sampling
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


def many(rows: int = 7) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows of 9 tokens and fewer, each with one frame."""
    torch.manual_seed(8)
    ids_BL = torch.randint(7, 40, (rows, 9))
    ids_BL[:, 6] = VIDEO
    mask_BL = torch.ones_like(ids_BL)
    for row in range(rows):
        ids_BL[row, : row % 5], mask_BL[row, : row % 5] = 0, 0
    return ids_BL, mask_BL, torch.randn(rows, 1, 64, dtype=torch.float64)


def assert_same(got: list[Row], expected: list[Row]) -> None:
    """Token for token; passes over fewer rows add up in another order, hence 1e-5 in float32."""
    assert [row.ids_L.tolist() for row in got] == [row.ids_L.tolist() for row in expected]
    assert [row.finish_reason for row in got] == [row.finish_reason for row in expected]
    for one, other in zip(got, expected, strict=True):
        assert one.logprobs_L == pytest.approx(other.logprobs_L, abs=1e-5)


DRAWS = [
    {"repetition_penalty": 1.3},
    {"temperature": 1.0, "seeds": (4,)},
    {"temperature": 1.2, "top_p": 0.9, "repetition_penalty": 1.5, "seeds": tuple(range(40, 24, -1))},
]


@pytest.mark.parametrize("fields", DRAWS, ids=str)
def test_finished_rows_leave_the_cache_and_change_nothing(fields):
    """Against the same rows without end tokens, where none leaves."""
    net, prompts, ends = model(), many(16), range(7, 13)
    whole = generate(net, *prompts, Sampling(max_new_tokens=30, **fields))
    sizes: list[int] = []
    net.backbone.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    rows = generate(net, *prompts, Sampling(max_new_tokens=30, eos_ids=tuple(ends), **fields))
    lengths = [next((n for n, i in enumerate(row.ids_L, 1) if i in ends), 30) for row in whole]
    cut = [Row(row.ids_L[:n], row.logprobs_L[:n], row.finish_reason) for row, n in zip(whole, lengths, strict=True)]
    assert_same(rows, [row._replace(finish_reason="stop") if row.ids_L[-1] in ends else row for row in cut])
    going = [sum(n > step for n in lengths) for step in range(max(lengths))]
    assert len(sizes) == len(going) and all(g <= size <= 2 * g for g, size in zip(going, sizes, strict=True))
    assert len(set(sizes)) > 2  # rows left more than once


def test_rows_of_a_batch_that_shrinks_are_as_each_alone():
    net, (ids_BL, mask_BL, features) = model(), many()
    sampling = {"temperature": 1.0, "max_new_tokens": 24, "eos_ids": tuple(range(7, 11)), "repetition_penalty": 1.2}
    rows = generate(net, ids_BL, mask_BL, features, Sampling(**sampling, seeds=(30,)))
    alone = [
        generate(net, ids_BL[i : i + 1], mask_BL[i : i + 1], features[i : i + 1], Sampling(**sampling, seeds=(30 + i,)))
        for i in range(7)
    ]
    assert_same(rows, [row for (row,) in alone])


def test_stop_is_asked_of_every_id_and_ends_its_row_only():
    net, prompts = model(), many()
    free = generate(net, *prompts, Sampling(max_new_tokens=12))
    asked: list[tuple[int, int]] = []

    def stop(row: int, token: int) -> bool:
        asked.append((row, token))
        return row != 3 and len([r for r, _ in asked if r == row]) == row + 2

    rows = generate(net, *prompts, Sampling(max_new_tokens=12), stop=stop)
    for i, (row, whole) in enumerate(zip(rows, free, strict=True)):
        assert row.ids_L.tolist() == whole.ids_L[: 12 if i == 3 else i + 2].tolist()
        assert row.finish_reason == ("length" if i == 3 else "stop")
        assert [token for r, token in asked if r == i] == row.ids_L.tolist()  # also after rows have left the cache


def test_cancelling_between_steps():
    net = model()
    asked = []
    rows = generate(net, *batch(), Sampling(max_new_tokens=8), lambda: asked.append(1) or len(asked) > 3)
    assert [len(row.ids_L) for row in rows] == [3, 3]
    assert {row.finish_reason for row in rows} == {"cancelled"}
    rows = generate(net, *batch(), Sampling(max_new_tokens=8), lambda: True)
    assert [(len(row.ids_L), len(row.logprobs_L), row.finish_reason) for row in rows] == 2 * [(0, 0, "cancelled")]


def test_a_cancelled_batch_tells_finished_rows_from_others():
    net = model()
    free = generate(net, *batch(), Sampling(max_new_tokens=8))
    end = int(free[0].ids_L[2])
    assert end not in free[1].ids_L[:5]
    asked = []
    sampling = Sampling(max_new_tokens=8, eos_ids=(end,))
    rows = generate(net, *batch(), sampling, lambda: asked.append(1) or len(asked) > 5)
    assert [row.finish_reason for row in rows] == ["stop", "cancelled"]
    assert len(rows[1].ids_L) == len(rows[1].logprobs_L) == 5


@pytest.mark.parametrize("how", ["cancelled", "closed", "dropped"])
def test_memory_is_free_as_soon_as_the_stream_ends(monkeypatch, how):
    """Without the garbage collector, which may come much later."""
    caches: list[weakref.ref[HybridCache]] = []

    def made(*arguments) -> HybridCache:
        cache = HybridCache(*arguments)
        caches.append(weakref.ref(cache))
        return cache

    monkeypatch.setattr(module, "HybridCache", made)
    cancelled: list[int] = []
    steps = stream(model(), *batch(), Sampling(max_new_tokens=8), lambda: bool(cancelled))
    next(steps)
    gc.disable()
    try:
        assert caches[0]() is not None
        if how == "cancelled":
            cancelled.append(1)
            assert next(steps, None) is None
        elif how == "closed":
            steps.close()
            assert next(steps, None) is None
        else:
            del steps
        assert caches[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_training_mode_and_checkpointing_change_nothing(temperature):
    net, prompts = twin.tiny(), many()
    sampling = Sampling(temperature=temperature, max_new_tokens=10, seeds=(2,))
    expected = generate(net, *prompts, sampling)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers renames the method
        net.gradient_checkpointing_enable()
    net.train()
    assert net.backbone.gradient_checkpointing and net.training
    got = generate(net, *prompts, sampling)
    assert_same(got, expected)
    assert net.training and all((a.logprobs_L == b.logprobs_L).all() for a, b in zip(got, expected, strict=True))
    assert all(parameter.grad is None for parameter in net.parameters())


def test_banned_ids_and_placeholders_are_never_drawn():
    net = model()
    net.lm_head.weight.data[[VIDEO, IMAGE, 9]] *= 100  # they would win half of all draws
    ids_BL, mask_BL, features = batch()
    for temperature in (0.0, 1.0):
        sampling = Sampling(temperature=temperature, max_new_tokens=30, banned_ids=(9,))
        drawn = {int(i) for row in generate(net, ids_BL, mask_BL, features, sampling) for i in row.ids_L}
        assert not drawn & {VIDEO, IMAGE, 9}


def test_prompts_padded_on_the_right_and_missing_seeds_are_refused():
    net = model()
    ids_BL, mask_BL, features = batch()
    with pytest.raises(UserError, match="padding on the left"):
        generate(net, ids_BL, mask_BL.flip(1), features, Sampling())
    with pytest.raises(UserError, match="wanted one or 2, one a row, got 3"):
        generate(net, ids_BL, mask_BL, features, Sampling(seeds=(1, 2, 3)))
