"""What decoding remembers: per Mamba-2 layer a convolution window and a state, per attention layer keys and values.

All tensors are allocated once and written in place. Columns that hold padding are remembered as not valid, so that a
batch may be padded on either side and go on from there. A snapshot is a copy that decoding can return to.

B batch, K capacity in columns, S columns seen, C convolution channels, W conv width,
G groups, X inner channels of a group, N state size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cosmos_reason.errors import UserError
from cosmos_reason.model.config import HybridConfig


class MambaState:
    """State of one Mamba-2 layer. The recurrent state is fp32 even where activations are bf16."""

    def __init__(self, config: HybridConfig, batch: int, dtype: torch.dtype, device: torch.device) -> None:
        # The last columns before the convolution: that of column t of the text at t modulo W.
        self.ring_BWC = torch.zeros(batch, config.conv_kernel, config.conv_channels, dtype=dtype, device=device)
        shape = (batch, config.n_groups, config.ssm_state_size, config.mamba_inner_size // config.n_groups)
        state_dtype = torch.float64 if dtype == torch.float64 else torch.float32
        self.ssm_BGNX = torch.zeros(shape, dtype=state_dtype, device=device)

    def window(self, seen: int) -> Tensor:
        """The W − 1 columns before column `seen`, oldest first."""
        width = self.ring_BWC.shape[1]
        return self.ring_BWC[:, [(seen + 1 + i) % width for i in range(width - 1)]]

    def set_window(self, columns_BVC: Tensor, seen: int) -> None:
        """These W − 1 columns stand before column `seen`."""
        width = self.ring_BWC.shape[1]
        self.ring_BWC[:, [(seen + 1 + i) % width for i in range(width - 1)]] = columns_BVC.to(self.ring_BWC.dtype)

    def held(self, seen: int) -> dict[str, Tensor]:
        """What a snapshot copies, by name: everything, however many columns were seen."""
        return dict(vars(self))

    def select(self, rows_B: Tensor) -> None:
        """Keep these rows, in this order."""
        self.ring_BWC = self.ring_BWC.index_select(0, rows_B)
        self.ssm_BGNX = self.ssm_BGNX.index_select(0, rows_B)


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

    def held(self, seen: int) -> dict[str, Tensor]:
        """What a snapshot copies, by name: the columns seen."""
        return {"keys": self.keys[:, :, :seen], "values": self.values[:, :, :seen]}

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


class Shape(NamedTuple):
    """What a cache was made for; a snapshot fits a cache of the same shape, whatever its capacity."""

    rows: int
    layers: str
    conv_window: tuple[int, int]  # W, C
    mamba_state: tuple[int, int, int]  # heads, head dim, N
    key_values: tuple[int, int]  # KV heads, head dim
    dtype: torch.dtype


@dataclass(frozen=True)
class Snapshot:
    """What a cache held at one moment. Nothing writes into it, so it may be restored any number of times."""

    shape: Shape
    seen: int
    padded: bool
    valid_BS: Tensor
    states: tuple[dict[str, Tensor], ...]  # one a layer, empty where the layer remembers nothing


class HybridCache:
    """One state a layer, the number of columns seen and which of them hold tokens."""

    # What transformers' `generate` asks of a cache: it may not be cut back, and it counts columns in any pattern.
    is_compileable = False
    is_croppable = False
    is_linear = (False,)

    @torch.inference_mode(False)  # passes of either mode write into it
    def __init__(
        self,
        config: HybridConfig,
        batch: int,
        capacity: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        device = torch.device(device)
        self.shape = Shape(
            batch,
            config.hybrid_override_pattern,
            (config.conv_kernel, config.conv_channels),
            (config.mamba_num_heads, config.mamba_head_dim, config.ssm_state_size),
            (config.num_key_value_heads, config.head_dim),
            dtype,
        )
        self.seen = 0
        self.padded = False  # whether any column of any row holds padding
        self.stepper: Any = None  # of `step.py`, made for these very tensors
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

    @torch.inference_mode(False)
    def _grow(self, capacity: int) -> None:
        valid_BK = self.valid_BK.new_zeros(self.valid_BK.shape[0], capacity)
        valid_BK[:, : self.valid_BK.shape[1]] = self.valid_BK
        self.valid_BK = valid_BK
        for layer in self.layers:
            if isinstance(layer, KeyValues):
                layer.grow(capacity)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes over: not the stepper, which is bound to this cache's memory and to a model."""
        return {**vars(self), "stepper": None}

    @torch.inference_mode(False)
    def select(self, rows_B: Tensor) -> None:
        """Keep these rows, in this order; a row may come several times (beams)."""
        self.valid_BK = self.valid_BK.index_select(0, rows_B)
        self.stepper = None
        for layer in self.layers:
            if layer is not None:
                layer.select(rows_B)

    def snapshot(self) -> Snapshot:
        """A copy of everything seen so far."""
        states = tuple(
            {} if layer is None else {name: tensor.detach().clone() for name, tensor in layer.held(self.seen).items()}
            for layer in self.layers
        )
        return Snapshot(self.shape, self.seen, self.padded, self.valid_BK[:, : self.seen].clone(), states)

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from there, with the rows of then. Memory stays in place unless rows or room have to change."""
        if snapshot.shape != self.shape:
            pairs = zip(Shape._fields, snapshot.shape, self.shape, strict=True)
            differing = ", ".join(f"{name} {old} is {new} here" for name, old, new in pairs if old != new)
            raise UserError(f"the snapshot is of another cache: {differing}; restore it onto one made alike")
        rows = len(snapshot.valid_BS)
        if rows != len(self.valid_BK):
            self.select(torch.zeros(rows, dtype=torch.int64, device=self.valid_BK.device))  # all is overwritten below
        if snapshot.seen > self.valid_BK.shape[1]:
            self._grow(snapshot.seen)
        self.seen, self.padded, self.stepper = snapshot.seen, snapshot.padded, None
        self.valid_BK[:, : self.seen] = snapshot.valid_BS
        with torch.no_grad():
            for layer, saved in zip(self.layers, snapshot.states, strict=True):
                for name, tensor in saved.items():
                    assert layer is not None, "a layer without memory has an empty state"
                    layer.held(self.seen)[name].copy_(tensor)

    def get_seq_length(self) -> int:
        """Columns seen, under the name that transformers' `generate` asks for."""
        return self.seen

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """`select` under the name that transformers' beam search calls."""
        self.select(beam_idx.to(self.valid_BK.device))
