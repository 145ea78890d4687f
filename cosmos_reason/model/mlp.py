"""The feed-forward layer: up, squared ReLU, down; not gated, no biases. B batch, L tokens, D width."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from cosmos_reason.model.config import HybridConfig


class MLP(nn.Module):
    """down(relu(up(x))²)."""

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, D)."""
        return self.down_proj(F.relu(self.up_proj(x_BLD)).square())
