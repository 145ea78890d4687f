"""Products in bf16 on a CPU without bf16 instructions, and layers that are left alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from cosmos_reason.model import linear
from cosmos_reason.model.linear import is_plain, project


@pytest.fixture(params=[False, True], ids=["emulated", "native"])
def native(request, monkeypatch) -> bool:
    """Whether the CPU multiplies bf16."""
    monkeypatch.setattr(linear, "multiplies_bf16", lambda: request.param)
    return request.param


def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(64, 16, bias=False, dtype=torch.bfloat16)


@pytest.mark.parametrize("rows", [1, 31, 32, 200])
def test_bf16_products_are_right_on_every_path(native, rows):
    plain, x = layer(), torch.randn(2, rows, 64, dtype=torch.bfloat16)
    exact = x.double() @ plain.weight.double().T
    got = project(plain, x)
    assert got.dtype == torch.bfloat16 and got.shape == (2, rows, 16)
    torch.testing.assert_close(got.double(), exact, atol=0.01, rtol=2**-7)  # one rounding to eight bits


def test_gradients_reach_the_bf16_weight():
    plain, x = layer(), torch.randn(40, 64, dtype=torch.bfloat16, requires_grad=True)
    project(plain, x).sum().backward()
    assert plain.weight.grad.dtype == x.grad.dtype == torch.bfloat16
    expected = x.detach().double().sum(0).expand(16, -1)
    torch.testing.assert_close(plain.weight.grad.double(), expected, atol=0.05, rtol=0.02)


def test_fp32_and_wrapped_layers_are_called(monkeypatch):
    monkeypatch.setattr(linear, "multiplies_bf16", lambda: False)
    calls = []
    hooked = layer()
    hooked.register_forward_hook(lambda *_: calls.append("hook"))
    project(hooked, torch.randn(40, 64, dtype=torch.bfloat16))
    wrapped = nn.Sequential(layer())
    assert project(wrapped, torch.ones(40, 64, dtype=torch.bfloat16)).shape == (40, 16)
    exact = nn.Linear(64, 16, bias=False)
    x = torch.randn(40, 64)
    assert torch.equal(project(exact, x), exact(x))
    assert calls == ["hook"] and not is_plain(wrapped) and not is_plain(nn.Linear(2, 2))


def test_whatever_changes_a_call_is_seen():
    forward, backward, parametrized = layer(), layer(), layer()
    forward.forward = lambda x: x
    backward.register_full_backward_hook(lambda *_: None)
    nn.utils.parametrize.register_parametrization(parametrized, "weight", nn.Identity())
    assert not any(is_plain(wrapped) for wrapped in (forward, backward, parametrized))
    assert is_plain(layer())
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert not is_plain(layer())
    handle.remove()
