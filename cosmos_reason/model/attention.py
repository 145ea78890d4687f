"""Grouped-query attention without positions: the Mamba-2 layers before it know the order.

Rotary or learned positions are left out on purpose; adding them goes unnoticed on short texts and spoils long ones.

B batch, L new columns, K all columns, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosmos_reason.model.cache import KeyValues
from cosmos_reason.model.columns import Columns, look_mask
from cosmos_reason.model.config import HybridConfig
from cosmos_reason.model.linear import project


class Attention(nn.Module):
    """softmax(q·k / √head_dim)·v, each KV head shared by num_attention_heads / num_key_value_heads query heads."""

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        width, self.head_dim = config.hidden_size, config.head_dim
        self.q_proj = nn.Linear(width, config.num_attention_heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(width, config.num_key_value_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(width, config.num_key_value_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * config.head_dim, width, bias=False)

    def forward(self, x_BLD: Tensor, columns: Columns, state: KeyValues | None) -> Tensor:
        """(B, L, D) -> (B, L, D); `state` takes the new keys and values."""
        query = project(self.q_proj, x_BLD).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        keys = project(self.k_proj, x_BLD).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        values = project(self.v_proj, x_BLD).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        if state is not None:
            keys, values = state.append(keys, values, columns.seen)
            keys, values = keys.to(query.dtype), values.to(query.dtype)
        mask_B1LK = columns.look_B1LK
        if mask_B1LK is None and columns.seen and query.shape[2] > 1:
            everything = torch.ones(1, keys.shape[2], dtype=torch.bool, device=keys.device)
            mask_B1LK = look_mask(everything, query.shape[2])
        causal = mask_B1LK is None and query.shape[2] > 1
        out = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask_B1LK, is_causal=causal, enable_gqa=query.shape[1] != keys.shape[1]
        )
        return project(self.o_proj, out.transpose(1, 2).flatten(2))
