"""What decoding remembers: per Mamba-2 layer a convolution window and a state, per attention layer keys and values.

All tensors are allocated once and written in place. Columns that hold padding are remembered as not valid, so that a
batch may be padded on either side and go on from there.

B batch, K capacity in columns, C convolution channels, W window of conv width − 1 columns,
H heads, P head dim, N state size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cosmos_reason.errors import UserError
from cosmos_reason.model.config import HybridConfig


class MambaState:
    """State of one Mamba-2 layer. The recurrent state is fp32 even where activations are bf16."""

    def __init__(self, config: HybridConfig, batch: int, dtype: torch.dtype, device: torch.device) -> None:
        self.conv_BWC = torch.zeros(batch, config.conv_kernel - 1, config.conv_channels, dtype=dtype, device=device)
        shape = (batch, config.mamba_num_heads, config.mamba_head_dim, config.ssm_state_size)
        state_dtype = torch.float64 if dtype == torch.float64 else torch.float32
        self.ssm_BHPN = torch.zeros(shape, dtype=state_dtype, device=device)

    def select(self, rows_B: Tensor) -> None:
        """Keep these rows, in this order."""
        self.conv_BWC = self.conv_BWC.index_select(0, rows_B)
        self.ssm_BHPN = self.ssm_BHPN.index_select(0, rows_B)


class KeyValues:
    """Keys and values of one attention layer, (B, KV heads, K, head dim)."""

    def __init__(
        self, config: HybridConfig, batch: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (batch, config.num_key_value_heads, capacity, config.head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)

    def append(self, keys: Tensor, values: Tensor, seen: int) -> tuple[Tensor, Tensor]:
        """Write the new columns behind the `seen` ones; all columns so far."""
        end = seen + keys.shape[2]
        self.keys[:, :, seen:end] = keys
        self.values[:, :, seen:end] = values
        return self.keys[:, :, :end], self.values[:, :, :end]

    def select(self, rows_B: Tensor) -> None:
        """Keep these rows, in this order."""
        self.keys, self.values = self.keys.index_select(0, rows_B), self.values.index_select(0, rows_B)

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` columns."""
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_zeros(*old.shape[:2], capacity, old.shape[3])
            new[:, :, : old.shape[2]] = old
            setattr(self, name, new)


class HybridCache:
    """One state a layer, the number of columns seen and which of them hold tokens."""

    # What transformers' `generate` asks of a cache: it may not be cut back, and it counts columns in any pattern.
    is_compileable = False
    is_croppable = False
    is_linear = (False,)

    def __init__(
        self,
        config: HybridConfig,
        batch: int,
        capacity: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        device = torch.device(device)
        self.seen = 0
        self.padded = False  # whether any column of any row holds padding
        self.valid_BK = torch.zeros(batch, capacity, dtype=torch.bool, device=device)
        self.layers: list[MambaState | KeyValues | None] = []
        for symbol in config.hybrid_override_pattern:
            if symbol == "M":
                self.layers.append(MambaState(config, batch, dtype, device))
            else:
                self.layers.append(KeyValues(config, batch, capacity, dtype, device) if symbol == "*" else None)

    def advance(self, rows: int, length: int, token_BL: Tensor | None) -> None:
        """Take note of new columns before the layers write them; more room is made when they do not fit."""
        needed = self.seen + length
        if rows != self.valid_BK.shape[0]:
            raise UserError(f"the cache holds {self.valid_BK.shape[0]} rows, got {rows}; make a new cache")
        if needed > self.valid_BK.shape[1]:
            self._grow(max(needed, 2 * self.valid_BK.shape[1]))
        self.valid_BK[:, self.seen : needed] = True if token_BL is None else token_BL
        self.padded = self.padded or (token_BL is not None and not bool(token_BL.all()))

    def _grow(self, capacity: int) -> None:
        valid_BK = self.valid_BK.new_zeros(self.valid_BK.shape[0], capacity)
        valid_BK[:, : self.valid_BK.shape[1]] = self.valid_BK
        self.valid_BK = valid_BK
        for layer in self.layers:
            if isinstance(layer, KeyValues):
                layer.grow(capacity)

    def select(self, rows_B: Tensor) -> None:
        """Keep these rows, in this order; a row may come several times (beams)."""
        self.valid_BK = self.valid_BK.index_select(0, rows_B)
        for layer in self.layers:
            if layer is not None:
                layer.select(rows_B)

    def get_seq_length(self) -> int:
        """Columns seen, under the name that transformers' `generate` asks for."""
        return self.seen

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """`select` under the name that transformers' beam search calls."""
        self.select(beam_idx.to(self.valid_BK.device))
