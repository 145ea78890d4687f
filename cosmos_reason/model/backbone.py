"""The decoder: embeddings -> layers (one norm, one mixer, one residual each) -> final norm.

B batch, L tokens, K cached and new columns, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cosmos_reason.model.attention import Attention, attention_mask
from cosmos_reason.model.cache import HybridCache, KeyValues, MambaState
from cosmos_reason.model.config import HybridConfig
from cosmos_reason.model.mamba2 import Mamba2
from cosmos_reason.model.mlp import MLP
from cosmos_reason.model.norms import RMSNorm

MIXERS: dict[str, type[Mamba2] | type[MLP] | type[Attention]] = {"M": Mamba2, "-": MLP, "*": Attention}


class Layer(nn.Module):
    """x + mixer(norm(x)), the mixer chosen by one pattern character."""

    def __init__(self, config: HybridConfig, symbol: str) -> None:
        super().__init__()
        self.norm = RMSNorm(config.hidden_size, config.layer_norm_epsilon)
        self.mixer = MIXERS[symbol](config)
        for name in ("out_proj", "down_proj", "o_proj"):
            if (projection := getattr(self.mixer, name, None)) is not None:
                projection.writes_residual = True  # initialisation makes these smaller

    def forward(
        self,
        x_BLD: Tensor,
        mask_BL: Tensor | None,
        mask_B1LK: Tensor | None,
        state: MambaState | KeyValues | None,
        seen: int,
    ) -> Tensor:
        """(B, L, D) -> (B, L, D); `state` is updated in place."""
        normed_BLD = self.norm(x_BLD)
        if isinstance(self.mixer, MLP):
            return x_BLD + self.mixer(normed_BLD)
        return x_BLD + self.mixer(normed_BLD, mask_BL if isinstance(self.mixer, Mamba2) else mask_B1LK, state, seen)


class Backbone(nn.Module):
    """Any pattern over M, - and *. `gradient_checkpointing` is switched by transformers."""

    _gradient_checkpointing_func: Callable[..., Any]

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, symbol) for symbol in config.hybrid_override_pattern)
        self.norm_f = RMSNorm(config.hidden_size, config.layer_norm_epsilon)
        self.gradient_checkpointing = False

    def forward(
        self, embeds_BLD: Tensor, attention_mask_BK: Tensor | None = None, cache: HybridCache | None = None
    ) -> Tensor:
        """Embeddings (B, L, D) -> final hidden states (B, L, D).

        The mask covers the new columns, or cached and new ones; non-zero on tokens. Padding may stand on either side.
        """
        length = embeds_BLD.shape[1]
        mask_BL = None if attention_mask_BK is None else attention_mask_BK[:, -length:].bool()
        seen = cache.seen if cache is not None else 0
        if cache is not None:
            cache.advance(torch.ones_like(embeds_BLD[..., 0], dtype=torch.bool) if mask_BL is None else mask_BL)
            mask_BL, mask_B1LK = _cached_masks(cache, mask_BL, length)
        else:
            mask_BL = _needed(mask_BL)
            mask_B1LK = None if mask_BL is None else attention_mask(mask_BL, length)
        x_BLD = embeds_BLD
        for index, layer in enumerate(self.layers):
            state = cache.layers[index] if cache is not None else None
            if self.gradient_checkpointing and self.training and cache is None:
                x_BLD = self._gradient_checkpointing_func(layer.__call__, x_BLD, mask_BL, mask_B1LK, state, seen)
            else:
                x_BLD = layer(x_BLD, mask_BL, mask_B1LK, state, seen)
        if cache is not None:
            cache.seen += length
        return self.norm_f(x_BLD)


def _needed(mask_BL: Tensor | None) -> Tensor | None:
    """None where no token can see padding: every mixer is causal, so padding on the right changes no token."""
    if mask_BL is None or bool((mask_BL[:, 1:] <= mask_BL[:, :-1]).all()):
        return None
    return mask_BL


def _cached_masks(cache: HybridCache, mask_BL: Tensor | None, length: int) -> tuple[Tensor | None, Tensor | None]:
    """Masks of the new columns and of the whole attention, each None where it would be all True."""
    if mask_BL is not None and bool(mask_BL.all()):
        mask_BL = None
    valid_BK = cache.valid_BK[:, : cache.seen + length]
    return mask_BL, None if bool(valid_BK.all()) else attention_mask(valid_BK, length)
