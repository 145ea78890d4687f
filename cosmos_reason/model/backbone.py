"""The decoder: embeddings -> layers (one norm, one mixer, one residual each) -> final norm.

B batch, L tokens, K cached and new columns, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cosmos_reason.model.attention import Attention
from cosmos_reason.model.cache import HybridCache, KeyValues, MambaState
from cosmos_reason.model.columns import Columns, describe
from cosmos_reason.model.config import HybridConfig
from cosmos_reason.model.mamba2 import Mamba2
from cosmos_reason.model.mlp import MLP
from cosmos_reason.model.norms import RMSNorm
from cosmos_reason.model.step import Stepper, has_step

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

    def forward(self, x_BLD: Tensor, columns: Columns, state: MambaState | KeyValues | None) -> Tensor:
        """(B, L, D) -> (B, L, D); `state` is updated in place."""
        normed_BLD = self.norm(x_BLD)
        if isinstance(self.mixer, MLP):
            return x_BLD + self.mixer(normed_BLD)
        return x_BLD + self.mixer(normed_BLD, columns, state)


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
        self,
        embeds_BLD: Tensor,
        attention_mask_BK: Tensor | None = None,
        cache: HybridCache | None = None,
        seq_idx_BL: Tensor | None = None,
    ) -> Tensor:
        """Embeddings (B, L, D) -> final hidden states (B, L, D).

        The mask covers the new columns, or cached and new ones; non-zero on tokens. Padding may stand on either side.
        `seq_idx_BL` numbers the documents of packed rows.
        """
        columns = describe(embeds_BLD.shape, attention_mask_BK, cache, seq_idx_BL)
        if cache is not None:  # states are written in place: a pass that fills a cache is not one to learn from
            with torch.no_grad():
                return self._continue(embeds_BLD, columns, cache)
        x_BLD = embeds_BLD
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                x_BLD = self._gradient_checkpointing_func(layer.__call__, x_BLD, columns, None)
            else:
                x_BLD = layer(x_BLD, columns, None)
        return self.norm_f(x_BLD)

    def _continue(self, x_BLD: Tensor, columns: Columns, cache: HybridCache) -> Tensor:
        autocast = torch.is_autocast_enabled(x_BLD.device.type)
        if x_BLD.shape[1] == 1 and columns.token_BL is None and not autocast and has_step(self.layers):
            if cache.stepper is None or cache.stepper.layers is not self.layers:
                with torch.inference_mode(False), torch.no_grad():  # its buffers serve passes of either mode
                    cache.stepper = Stepper(self.layers, self.norm_f, cache)
            hidden_BLD = cache.stepper(x_BLD[:, 0], columns)[:, None]
        else:
            cache.stepper = None
            for layer, state in zip(self.layers, cache.layers, strict=True):
                x_BLD = layer(x_BLD, columns, state)
            hidden_BLD = self.norm_f(x_BLD)
        cache.seen += x_BLD.shape[1]
        return hidden_BLD
