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
    assert cache.layers[0].conv_BWC.shape == (3, 3, 4 * 3 + 2 * 2 * 5)
    assert cache.layers[0].ssm_BHPN.shape == (3, 4, 3, 5)
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
