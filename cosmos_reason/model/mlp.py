"""The feed-forward layer: up, squared ReLU, down; not gated, no biases. B batch, L tokens, D width, F hidden width."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from cosmos_reason.model.config import HybridConfig
from cosmos_reason.model.linear import is_plain, project

COLUMNS = 1024  # at once where nothing is learned, so that the hidden layer stays in the processor's cache


class SquaredReLU(Function):
    """relu(x)², keeping one tensor for the derivative 2 · relu(x)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Same shape and dtype."""
        ctx.save_for_backward(x)
        positive = x.relu()
        return positive.mul_(positive)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradient of x."""
        (x,) = ctx.saved_tensors
        return x.relu().mul_(grads[0]).mul_(2)


class MLP(nn.Module):
    """down(relu(up(x))²)."""

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, D)."""
        if torch.is_grad_enabled() or not (is_plain(self.up_proj) and is_plain(self.down_proj)):
            return project(self.down_proj, SquaredReLU.apply(project(self.up_proj, x_BLD)))
        rows_ND = x_BLD.flatten(0, -2)
        parts = [
            project(self.down_proj, _squared_relu_(project(self.up_proj, part))) for part in rows_ND.split(COLUMNS)
        ]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).view(x_BLD.shape)


def _squared_relu_(x: Tensor) -> Tensor:
    x = x.relu_()
    return x.mul_(x)
