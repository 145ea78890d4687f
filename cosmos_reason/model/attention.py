"""Grouped-query attention without positions: the Mamba-2 layers before it know the order.

Rotary or learned positions are left out on purpose; adding them goes unnoticed on short texts and spoils long ones.

B batch, L new columns, K all columns, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosmos_reason.model.cache import KeyValues
from cosmos_reason.model.config import HybridConfig


def attention_mask(valid_BK: Tensor, length: int) -> Tensor:
    """(B, 1, L, K) bool, True where a query may look: earlier valid columns and its own.

    A padding query sees at least itself, so that no row of the softmax is empty.
    ```
    valid 0 1 1   query 0: 1 . .
                  query 1: . 1 .
                  query 2: . 1 1
    ```
    """
    columns = valid_BK.shape[1]
    at_L = torch.arange(columns - length, columns, device=valid_BK.device)[:, None]
    at_K = torch.arange(columns, device=valid_BK.device)[None, :]
    return (((at_K < at_L) & valid_BK[:, None, :]) | (at_K == at_L))[:, None]


class Attention(nn.Module):
    """softmax(q·k / √head_dim)·v, each KV head shared by num_attention_heads / num_key_value_heads query heads."""

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        width, self.head_dim = config.hidden_size, config.head_dim
        self.q_proj = nn.Linear(width, config.num_attention_heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(width, config.num_key_value_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(width, config.num_key_value_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * config.head_dim, width, bias=False)

    def forward(self, x_BLD: Tensor, mask_B1LK: Tensor | None, state: KeyValues | None, seen: int) -> Tensor:
        """(B, L, D) -> (B, L, D). Without a mask every column is valid; `seen` columns of `state` come before."""
        query = self.q_proj(x_BLD).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        keys = self.k_proj(x_BLD).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        values = self.v_proj(x_BLD).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        if state is not None:
            keys, values = state.append(keys, values, seen)
            keys, values = keys.to(query.dtype), values.to(query.dtype)
        if mask_B1LK is None and seen and query.shape[2] > 1:
            everything = torch.ones(1, keys.shape[2], dtype=torch.bool, device=keys.device)
            mask_B1LK = attention_mask(everything, query.shape[2])
        causal = mask_B1LK is None and query.shape[2] > 1
        out = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask_B1LK, is_causal=causal, enable_gqa=query.shape[1] != keys.shape[1]
        )
        return self.o_proj(out.transpose(1, 2).flatten(2))
