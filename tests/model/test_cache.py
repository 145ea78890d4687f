"""The cache writes in place, grows when it must, and its rows can be picked."""

from __future__ import annotations

import pytest
import torch

from cosmos_reason.errors import UserError
from cosmos_reason.model.cache import HybridCache
from tests.model import twin


def run(decoder, cache, length, seed=0, rows=2):
    torch.manual_seed(seed)
    return decoder(torch.randn(rows, length, 8, dtype=torch.float64), None, cache)


def test_memory_stays_where_it_is():
    decoder = twin.tiny().backbone.requires_grad_(False)
    cache = HybridCache(decoder.config, 2, 10, torch.float64)
    tensors = [t for layer in cache.layers if layer for t in vars(layer).values()]
    places = [t.data_ptr() for t in tensors]
    for length in (4, 1, 1, 3):
        run(decoder, cache, length)
    assert cache.seen == cache.get_seq_length() == 9
    assert [t.data_ptr() for layer in cache.layers if layer for t in vars(layer).values()] == places
    assert all(t.abs().sum() > 0 for t in tensors)


def test_one_state_a_layer():
    cache = HybridCache(twin.text_config(hybrid_override_pattern="M-*"), 3, 7, torch.float64)
    assert cache.layers[0].ring_BWC.shape == (3, 4, 4 * 3 + 2 * 2 * 5)
    assert cache.layers[0].ssm_BGNX.shape == (3, 2, 5, 6)
    assert cache.layers[1] is None
    assert cache.layers[2].keys.shape == (3, 2, 7, 2)


def test_too_small_a_cache_grows():
    decoder = twin.tiny().backbone.requires_grad_(False)
    small, large = (HybridCache(decoder.config, 2, n, torch.float64) for n in (2, 30))
    for seed, length in enumerate((2, 3, 1, 9)):
        torch.testing.assert_close(run(decoder, small, length, seed), run(decoder, large, length, seed))


def test_picked_rows_go_on_as_themselves():
    decoder = twin.tiny().backbone.requires_grad_(False)
    cache, whole = (HybridCache(decoder.config, 2, 9, torch.float64) for _ in range(2))
    for each in (cache, whole):
        run(decoder, each, 5)
    cache.reorder_cache(torch.tensor([1, 0, 1]))
    next_BLD = torch.randn(2, 2, 8, dtype=torch.float64)
    expected = decoder(next_BLD, None, whole)
    torch.testing.assert_close(decoder(next_BLD[[1, 0, 1]], None, cache), expected[[1, 0, 1]])


def test_other_number_of_rows_is_refused():
    decoder = twin.tiny().backbone
    with pytest.raises(UserError, match="the cache holds 1 rows, got 2"):
        run(decoder, HybridCache(decoder.config, 1, 9, torch.float64), 3)


def padded(decoder, cache, seed=0):
    """Three rows of which two are padded on the left and one on the right."""
    torch.manual_seed(seed)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0], [0, 1, 1, 1, 1]])
    return decoder(torch.randn(3, 5, 8, dtype=torch.float64), mask, cache)


def go_on(decoder, cache, rows=3, steps=12) -> torch.Tensor:
    """Outputs of a few columns and then single ones."""
    return torch.cat([run(decoder, cache, 4 if seed == 7 else 1, seed, rows) for seed in range(7, 7 + steps)], 1)


def nothing(decoder, cache) -> None:
    pass


def grown(decoder, cache) -> None:
    run(decoder, cache, 40, rows=3)


def fewer_rows(decoder, cache) -> None:
    cache.select(torch.tensor([2, 0]))
    run(decoder, cache, 3)


def more_rows(decoder, cache) -> None:
    cache.select(torch.tensor([1, 1, 0, 2, 2]))
    run(decoder, cache, 1, rows=5)


def fewer_rows_and_grown(decoder, cache) -> None:
    cache.select(torch.tensor([1]))
    run(decoder, cache, 60, rows=1)


@pytest.mark.parametrize("meanwhile", [nothing, grown, fewer_rows, more_rows, fewer_rows_and_grown])
@pytest.mark.parametrize("pattern", ["M-M*-", "M-", "*-"])
def test_a_restored_cache_goes_on_as_from_the_snapshot(meanwhile, pattern):
    decoder = twin.tiny(hybrid_override_pattern=pattern).backbone.requires_grad_(False)
    cache, fresh = (HybridCache(decoder.config, 3, 20, torch.float64) for _ in range(2))
    for each in (cache, fresh):
        padded(decoder, each)
    saved = cache.snapshot()
    expected = go_on(decoder, fresh)
    for _ in range(2):  # the first use spoils nothing
        meanwhile(decoder, cache)
        cache.restore(saved)
        assert cache.seen == 5 and cache.padded
        assert torch.equal(go_on(decoder, cache), expected)


def test_one_may_go_back_and_forth_between_snapshots():
    """One without padding and one with it, in the same columns."""
    decoder = twin.tiny().backbone.requires_grad_(False)
    cache, fresh, filled = (HybridCache(decoder.config, 3, 20, torch.float64) for _ in range(3))
    empty = cache.snapshot()
    padded(decoder, cache)
    padded(decoder, filled)
    saved = cache.snapshot()
    without, with_padding = go_on(decoder, fresh), go_on(decoder, filled)
    for _ in range(2):
        cache.restore(empty)
        assert cache.seen == 0 and not cache.padded
        assert torch.equal(go_on(decoder, cache), without)
        cache.restore(saved)
        assert cache.seen == 5 and cache.padded
        assert torch.equal(go_on(decoder, cache), with_padding)


def test_a_snapshot_shares_no_memory_with_its_cache_nor_with_what_it_was_restored_onto():
    decoder = twin.tiny().backbone.requires_grad_(False)
    cache, other = (HybridCache(decoder.config, 3, n, torch.float64) for n in (20, 2))  # the other is too small
    padded(decoder, cache)
    saved = cache.snapshot()
    before = [t.clone() for state in saved.states for t in (*state.values(), saved.valid_BS)]
    expected = go_on(decoder, cache)
    other.restore(saved)
    assert torch.equal(go_on(decoder, other), expected)
    after = [t for state in saved.states for t in (*state.values(), saved.valid_BS)]
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    assert all(t.shape[2] == 5 for name, t in saved.states[3].items())  # of the columns seen, not of the room


def test_restoring_keeps_memory_in_place():
    decoder = twin.tiny().backbone.requires_grad_(False)
    cache = HybridCache(decoder.config, 3, 20, torch.float64)
    places = [t.data_ptr() for layer in cache.layers if layer for t in vars(layer).values()]
    saved = cache.snapshot()
    padded(decoder, cache)
    cache.restore(saved)
    assert [t.data_ptr() for layer in cache.layers if layer for t in vars(layer).values()] == places


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rows": 4}, "rows 2 is 4 here"),
        ({"dtype": torch.float32}, "dtype torch.float64 is torch.float32 here"),
        ({"hybrid_override_pattern": "M*-"}, r"layers M-M\*- is M\*- here"),
        (
            {"ssm_state_size": 6},
            r"conv_window \(4, 32\) is \(4, 36\) here, mamba_state \(4, 3, 5\) is \(4, 3, 6\) here",
        ),
        ({"head_dim": 4}, r"key_values \(2, 2\) is \(2, 4\) here"),
    ],
    ids=str,
)
def test_a_snapshot_of_another_cache_is_refused(changes, sentence):
    saved = HybridCache(twin.text_config(), 2, 9, torch.float64).snapshot()
    shapes = {name: value for name, value in changes.items() if name not in ("rows", "dtype")}
    other = HybridCache(twin.text_config(**shapes), changes.get("rows", 2), 9, changes.get("dtype", torch.float64))
    with pytest.raises(UserError, match=f"the snapshot is of another cache: {sentence}; restore it onto one made"):
        other.restore(saved)
