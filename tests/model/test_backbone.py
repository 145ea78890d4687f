"""Any pattern against the twin, padding, epsilon in every norm, activation checkpointing."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from cosmos_reason.model.backbone import Backbone
from cosmos_reason.model.cache import HybridCache
from tests.model import twin

TIGHT = {"atol": 1e-9, "rtol": 1e-9}
PATTERNS = ["M-M*-", "*-", "M", "-", "*", "MM", "---MM*", "*M"]


def decoder(**changes) -> Backbone:
    return twin.tiny(**changes).backbone.requires_grad_(False)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_whole_and_steps_equal_the_twin(pattern):
    model = decoder(hybrid_override_pattern=pattern)
    x_BLD = torch.randn(1, 19, 8, dtype=torch.float64)
    expected = twin.backbone(model, x_BLD[0])
    torch.testing.assert_close(model(x_BLD)[0], expected, **TIGHT)
    cache = HybridCache(model.config, 1, 19, torch.float64)
    steps = [model(x_BLD[:, :6], None, cache)] + [model(x_BLD[:, t : t + 1], None, cache) for t in range(6, 19)]
    torch.testing.assert_close(torch.cat(steps, dim=1)[0], expected, **TIGHT)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("cached", [False, True])
def test_padding_changes_no_token(side, cached):
    """Rows of 3, 12 and 0 tokens in one batch, then two more tokens each."""
    model = decoder()
    lengths = torch.tensor([3, 12, 0])
    x_BLD = torch.randn(3, 12, 8, dtype=torch.float64)
    place_L = torch.arange(12)[None]
    mask_BL = place_L < lengths[:, None] if side == "right" else place_L >= 12 - lengths[:, None]
    cache = HybridCache(model.config, 3, 14, torch.float64) if cached else None
    out = model(x_BLD, mask_BL.long(), cache)
    assert torch.isfinite(out).all()
    more_BLD = torch.randn(3, 2, 8, dtype=torch.float64)
    later = torch.cat([model(more_BLD[:, :1], None, cache), model(more_BLD[:, 1:], None, cache)], 1) if cached else None
    for row in range(3):
        tokens = torch.cat([x_BLD[row][mask_BL[row]], more_BLD[row]])
        expected = twin.backbone(model, tokens)
        torch.testing.assert_close(out[row][mask_BL[row]], expected[:-2], **TIGHT)
        if later is not None:
            torch.testing.assert_close(later[row], expected[-2:], **TIGHT)


def test_mask_over_cached_and_new_columns_is_taken_too():
    model = decoder()
    x_BLD = torch.randn(1, 8, 8, dtype=torch.float64)
    mask_BK = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1]])
    expected = twin.backbone(model, x_BLD[0, 2:])
    cache = HybridCache(model.config, 1, 8, torch.float64)
    parts = [model(x_BLD[:, :5], mask_BK[:, :5], cache), model(x_BLD[:, 5:], mask_BK, cache)]
    torch.testing.assert_close(torch.cat(parts, dim=1)[0, 2:], expected, **TIGHT)


def test_epsilon_reaches_every_norm():
    model = decoder(layer_norm_epsilon=0.1)
    eps = {name: module.eps for name, module in model.named_modules() if hasattr(module, "eps")}
    assert set(eps) == {"norm_f", *(f"layers.{i}.norm" for i in range(5)), "layers.0.mixer.norm", "layers.2.mixer.norm"}
    assert set(eps.values()) == {0.1}


@pytest.mark.parametrize("pattern", ["M-M*-", "*-"])
def test_checkpointing_gives_the_same_gradients(pattern):
    model = twin.tiny(hybrid_override_pattern=pattern).backbone.train()
    x_BLD = torch.randn(2, 11, 8, dtype=torch.float64)
    mask_BL = torch.arange(11)[None] >= torch.tensor([[0], [4]])
    calls = []
    gradients = []
    for model.gradient_checkpointing in (False, True):
        model._gradient_checkpointing_func = lambda *a: calls.append(1) or checkpoint(*a, use_reentrant=False)
        model.zero_grad()
        model(x_BLD, mask_BL).square().sum().backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert len(calls) == len(pattern)
    torch.testing.assert_close(gradients[1], gradients[0], **TIGHT)
