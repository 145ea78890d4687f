"""Single tokens through the cache equal whole sequences through the modules, whatever wraps a projection."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from cosmos_reason.model.cache import HybridCache
from cosmos_reason.model.mlp import MLP
from cosmos_reason.model.step import Norm, Projection
from tests.model import twin

TIGHT = {"atol": 1e-9, "rtol": 1e-9}


def decoder(**changes):
    return twin.tiny(**changes).backbone.requires_grad_(False)


def by_steps(model, x_BLD, first: int = 0, mask_BL=None):
    cache = HybridCache(model.config, len(x_BLD), x_BLD.shape[1], x_BLD.dtype)
    out = [model(x_BLD[:, :first], mask_BL, cache)] if first else []
    out += [model(x_BLD[:, t : t + 1], None, cache) for t in range(first, x_BLD.shape[1])]
    return torch.cat(out, dim=1)


@pytest.mark.parametrize("rows", [1, 2, 17])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"n_groups": 1},
        {"n_groups": 4},
        {"use_conv_bias": False},
        {"conv_kernel": 2},
        {"conv_kernel": 1},
        {"time_step_limit": (0.4, 0.6)},
        {"num_key_value_heads": 4},
        {"layer_norm_epsilon": 0.3},
        {"intermediate_size": 13},
    ],
    ids=str,
)
def test_steps_equal_whole_sequences(changes, rows):
    model = decoder(**changes)
    x_BLD = torch.randn(rows, 9, 8, dtype=torch.float64)
    torch.testing.assert_close(by_steps(model, x_BLD), model(x_BLD), **TIGHT)
    torch.testing.assert_close(by_steps(model, x_BLD, first=4), model(x_BLD), **TIGHT)


def test_steps_after_left_padding():
    model = decoder()
    x_BLD = torch.randn(3, 9, 8, dtype=torch.float64)
    mask_BL = torch.arange(5)[None] >= torch.tensor([[0], [2], [4]])
    got = by_steps(model, x_BLD, first=5, mask_BL=mask_BL)
    for row, padding in enumerate((0, 2, 4)):
        torch.testing.assert_close(got[row, padding:], twin.backbone(model, x_BLD[row, padding:]), **TIGHT)


def test_a_wrapped_projection_is_called():
    """As LoRA wraps one: the module is replaced, or hooked."""
    x_BD = torch.randn(2, 8, dtype=torch.float64)
    plain = nn.Linear(8, 6, bias=False, dtype=torch.float64)
    torch.testing.assert_close(Projection(plain, 2)(x_BD), plain(x_BD))
    torch.testing.assert_close(Projection(nn.Sequential(plain, nn.ReLU()), 2)(x_BD), plain(x_BD).relu())
    plain.register_forward_hook(lambda module, inputs, output: output * 2)
    torch.testing.assert_close(Projection(plain, 2)(x_BD), 2 * x_BD @ plain.weight.T)


def test_an_adapter_changes_decoding():
    model = decoder()
    x_BLD = torch.randn(1, 6, 8, dtype=torch.float64)
    plain = by_steps(model, x_BLD)
    for layer in model.layers:
        for name in ("in_proj", "q_proj", "up_proj"):
            if hasattr(layer.mixer, name):
                setattr(layer.mixer, name, Doubled(getattr(layer.mixer, name)))
    assert (by_steps(model, x_BLD) - plain).abs().max() > 0.1
    torch.testing.assert_close(by_steps(model, x_BLD), model(x_BLD), **TIGHT)


class Doubled(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return 2 * self.inner(x)


def test_weights_changed_in_place_are_seen_by_a_new_cache():
    model = decoder()
    x_BLD = torch.randn(1, 6, 8, dtype=torch.float64)
    by_steps(model, x_BLD)
    for parameter in model.parameters():
        parameter.mul_(1.1)
    torch.testing.assert_close(by_steps(model, x_BLD), model(x_BLD), **TIGHT)


def test_norm_of_both_signs_is_the_root_mean_square():
    x_BD = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    got = Norm(x_BD, torch.tensor([1.0, 2.0]), 1e-5, torch.float64)()[:, :2]
    assert got[0].tolist() == pytest.approx([3 / math.sqrt(12.5 + 1e-5), 8 / math.sqrt(12.5 + 1e-5)])
    assert got[1].tolist() == [0, 0]


def test_bf16_keeps_the_state_in_fp32():
    model = decoder().to(torch.bfloat16)
    x_BLD = torch.randn(2, 12, 8, dtype=torch.bfloat16)
    cache = HybridCache(model.config, 2, 12, torch.bfloat16)
    got = torch.cat([model(x_BLD[:, t : t + 1], None, cache) for t in range(12)], dim=1)
    assert got.dtype == torch.bfloat16 and cache.layers[0].ssm_BGNX.dtype == torch.float32
    whole = model(x_BLD)
    assert (got - whole).abs().max() / whole.abs().max() < 0.03  # eight bits in the projections


def test_steps_may_change_from_inference_mode_to_plain_and_back():
    model = decoder()
    x_BLD = torch.randn(2, 6, 8, dtype=torch.float64)
    cache = HybridCache(model.config, 2, 6, torch.float64)
    out = []
    for t in range(6):
        with torch.inference_mode(t % 2 == 0):
            out.append(model(x_BLD[:, t : t + 1], None, cache).clone())
    torch.testing.assert_close(torch.cat(out, dim=1), model(x_BLD), **TIGHT)


def test_what_a_step_returns_stays():
    model = decoder()
    x_BLD = torch.randn(2, 4, 8, dtype=torch.float64)
    cache = HybridCache(model.config, 2, 4, torch.float64)
    out = [model(x_BLD[:, t : t + 1], None, cache) for t in range(4)]
    kept = [o.clone() for o in out[:3]]
    torch.testing.assert_close(out[:3], kept, atol=0, rtol=0)
    torch.testing.assert_close(torch.cat(out, dim=1), model(x_BLD), **TIGHT)


def test_a_cache_serves_another_model_and_survives_restoring_and_copying():
    one, two = decoder(), decoder()
    for parameter in two.parameters():
        parameter.mul_(1.3)
    x_BLD = torch.randn(1, 6, 8, dtype=torch.float64)
    cache = HybridCache(one.config, 1, 6, torch.float64)
    empty = cache.snapshot()
    for model in (one, two):
        got = torch.cat([model(x_BLD[:, t : t + 1], None, cache) for t in range(6)], dim=1)
        torch.testing.assert_close(got, model(x_BLD), **TIGHT)
        cache.restore(empty)
    one(x_BLD[:, :1], None, cache)
    copied = copy.deepcopy(cache)
    assert copied.stepper is None and cache.stepper is not None
    for each in (copied, cache):
        got = torch.cat([one(x_BLD[:, t : t + 1], None, each) for t in range(1, 6)], dim=1)
        torch.testing.assert_close(got, one(x_BLD)[:, 1:], **TIGHT)


@pytest.mark.parametrize("rows", [1, 2, 17])
def test_steps_under_autocast(rows):
    model = decoder().float()
    x_BLD = torch.randn(rows, 6, 8)
    cache = HybridCache(model.config, rows, 6)
    with torch.autocast("cpu", torch.bfloat16):
        got = torch.cat([model(x_BLD[:, t : t + 1], None, cache) for t in range(6)], dim=1)
        whole = model(x_BLD)
    assert (got - whole).abs().max() / whole.abs().max() < 0.05


def test_a_mixer_that_something_wraps_is_called():
    model = decoder()
    x_BLD = torch.randn(1, 5, 8, dtype=torch.float64)
    plain = by_steps(model, x_BLD)
    for layer in model.layers:
        if type(layer.mixer).__name__ == "MLP":
            layer.mixer = LouderMLP(model.config).double().requires_grad_(False)
    assert (by_steps(model, x_BLD) - plain).abs().max() > 1e-3
    torch.testing.assert_close(by_steps(model, x_BLD), model(x_BLD), **TIGHT)


class LouderMLP(MLP):
    def forward(self, x):
        return 2 * super().forward(x)
