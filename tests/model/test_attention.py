"""Grouped-query attention against its twin, and that it knows no positions."""

from __future__ import annotations

import pytest
import torch

from cosmos_reason.model.attention import Attention
from cosmos_reason.model.cache import KeyValues
from cosmos_reason.model.columns import Columns, look_mask
from tests.model import twin

TIGHT = {"atol": 1e-10, "rtol": 1e-10}


def layer(**changes) -> Attention:
    return twin.tiny(hybrid_override_pattern="*", **changes).backbone.layers[0].mixer.requires_grad_(False)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_equals_the_twin(kv_heads, length):
    mixer = layer(num_key_value_heads=kv_heads)
    x_BLD = torch.randn(2, length, 8, dtype=torch.float64)
    expected = torch.stack([twin.attention(mixer, x) for x in x_BLD])
    torch.testing.assert_close(mixer(x_BLD, Columns(), None), expected, **TIGHT)


@pytest.mark.parametrize("pieces", [[1] * 9, [4, 5], [8, 1], [2, 1, 6]])
def test_pieces_through_the_cache_equal_the_whole(pieces):
    mixer = layer()
    x_BLD = torch.randn(2, 9, 8, dtype=torch.float64)
    state, seen, out = KeyValues(mixer_config(), 2, 9, torch.float64, torch.device("cpu")), 0, []
    for piece in x_BLD.split(pieces, dim=1):
        out.append(mixer(piece, Columns(seen=seen), state))
        seen += piece.shape[1]
    torch.testing.assert_close(torch.cat(out, dim=1), mixer(x_BLD, Columns(), None), **TIGHT)


def mixer_config():
    return twin.text_config(hybrid_override_pattern="*")


def test_knows_no_positions():
    """The last query gives the same whatever order the earlier tokens stand in, and however far away they are."""
    mixer = layer()
    x_BLD = torch.randn(1, 7, 8, dtype=torch.float64)
    expected = mixer(x_BLD, Columns(), None)[:, -1]
    mixed = torch.cat([x_BLD[:, [3, 0, 5, 1, 4, 2]], x_BLD[:, 6:]], dim=1)
    torch.testing.assert_close(mixer(mixed, Columns(), None)[:, -1], expected, **TIGHT)
    far = torch.cat([x_BLD[:, :6], torch.randn(1, 20, 8, dtype=torch.float64), x_BLD[:, 6:]], dim=1)
    valid = torch.tensor([[True] * 6 + [False] * 20 + [True]])
    torch.testing.assert_close(mixer(far, Columns(look_B1LK=look_mask(valid, 27)), None)[:, -1], expected, **TIGHT)


def test_mask_as_drawn():
    mask = look_mask(torch.tensor([[False, True, True]]), 3)
    assert mask[0, 0].int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    assert look_mask(torch.tensor([[False, True, True]]), 1)[0, 0].int().tolist() == [[0, 1, 1]]


def test_has_no_biases():
    assert all(name.endswith("weight") for name, _ in layer().named_parameters())
