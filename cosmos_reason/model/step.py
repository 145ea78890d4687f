"""Decoding, one token a row: the layers once more, as few calls as possible into memory that is allocated once.

At this size a call costs more than its arithmetic, so nothing here loops over heads or groups, most results go into
buffers that stay, views of them are made once, and a weight is read by two cores. Projections that something wraps
when the first token is drawn are called as modules. The tests hold every layer against its module on whole sequences.

B batch, D width, C convolution channels, W conv width, I inner width, H heads, P head dim, G groups, R heads of a
group, X = R · P, N state size, K columns, F outputs of a projection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosmos_reason.model.attention import Attention
from cosmos_reason.model.cache import HybridCache, KeyValues, MambaState
from cosmos_reason.model.columns import Columns
from cosmos_reason.model.linear import is_plain
from cosmos_reason.model.mamba2 import Mamba2
from cosmos_reason.model.mlp import MLP
from cosmos_reason.model.norms import RMSNorm

FEW = 16  # rows up to which a product is bound by reading its weight


class Projection:
    """(B, inputs) -> (B, F). A plain layer's weight is read in halves, by two cores; a product of few rows uses one."""

    def __init__(self, layer: nn.Module, rows: int, width: int | None = None) -> None:
        self._layer, self._width = layer, width
        self._halves: Tensor | None = None
        if _splits(layer) and rows <= FEW:
            self._halves = layer.weight.detach().unflatten(0, (2, -1))
            self._shape = (2, layer.in_features, rows)
            self._out = layer.weight.new_empty(2, layer.out_features // 2, rows)
            self._out_BF = self._out.flatten(0, 1).T

    def __call__(self, x: Tensor) -> Tensor:
        """Of x, `width` columns are taken. The result is in the same memory each time, transposed for several rows."""
        if self._halves is None:
            return self._layer(x[:, : self._width])
        torch.bmm(self._halves, x.as_strided(self._shape, (0, 1, x.stride(0))), out=self._out)
        return self._out_BF


def _splits(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether the weight can be read in halves."""
    if not isinstance(layer, nn.Linear) or not is_plain(layer) or layer.out_features % 2:
        return False
    return layer.weight.dtype in (torch.float32, torch.float64) and layer.weight.is_contiguous()


class Norm:
    """RMSNorm as the LayerNorm of [x, −x], whose mean is 0 and whose variance is the mean square: two calls, not six.

    `of` is the buffer that is normed, (…, width); the result is (…, 2 · width), the second half of no use.
    """

    def __init__(self, of: Tensor, weight: Tensor | None, eps: float, dtype: torch.dtype) -> None:
        self._x = of.unsqueeze(-2)
        self._signs = torch.tensor([[1.0], [-1.0]], dtype=dtype, device=of.device)
        self._both = of.new_empty(*of.shape[:-1], 2, of.shape[-1], dtype=dtype)
        self._flat = self._both.flatten(-2)
        self._weight = None if weight is None else torch.cat([weight, weight]).to(dtype)
        self._shape, self._eps = self._flat.shape[-1:], eps

    def __call__(self) -> Tensor:
        """The buffer as it is now, normed."""
        torch.mul(self._x, self._signs, out=self._both)
        return torch.layer_norm(self._flat, self._shape, self._weight, None, self._eps, False)


class MambaStep:
    """Convolution, one step of the scan, gate and norm; the state is updated in place."""

    def __init__(self, mixer: Mamba2, state: MambaState) -> None:
        self.s, self.w = mixer.sizes(), mixer.weights()
        s, rows = self.s, len(state.ring_BWC)
        new, between = self.w.norm_I.new_empty, s.groups * s.state
        self._in, self._out = (
            Projection(mixer.in_proj, rows, mixer.config.hidden_size),
            Projection(mixer.out_proj, rows),
        )
        width, channels = self.w.conv_WC.shape
        self._parts = [s.inner, channels, s.heads]
        # By the slot of the newest column: the weight of each slot, as the columns stand in the ring.
        self._ring_BWC, self._slots = state.ring_BWC, state.ring_BWC.unbind(1)
        self._ring_weights = [self.w.conv_WC.roll(slot + 1, 0) for slot in range(width)]
        self._product_BWC, self._act_BC = new(rows, width, channels), new(rows, channels)
        x, B, C = self._act_BC.split([s.inner, between, between], -1)
        self._x_BHP = x.unflatten(-1, (s.heads, s.head_dim))
        self._B_BGN1, self._C_BG1N = B.unflatten(-1, (s.groups, s.state, 1)), C.unflatten(-1, (s.groups, 1, s.state))
        self._dt_BH, self._decay_BH, self._zero = new(rows, s.heads), new(rows, s.heads), self.w.norm_I.new_zeros(())
        self._dt_BH1, self._decay_BG1R1 = self._dt_BH[..., None], self._decay_BH.view(rows, s.groups, 1, -1, 1)
        self._xdt_BHP, self._y_BHP = new(rows, s.heads, s.head_dim), new(rows, s.heads, s.head_dim)
        self._xdt_BG1X, self._y_BG1X = (t.view(rows, s.groups, 1, -1) for t in (self._xdt_BHP, self._y_BHP))
        self._y_BI, self._normed_BI = self._y_BHP.view(rows, -1), new(rows, s.inner)
        self._state_BGNX, self._state_BGNRP = state.ssm_BGNX, state.ssm_BGNX.unflatten(-1, (-1, s.head_dim))
        self._A_H, self._D_H1 = -self.w.A_log_H.exp(), self.w.D_H[:, None]
        self._limits = None if s.dt_limit == (0.0, float("inf")) else s.dt_limit
        self._norm = Norm(self._y_BG1X[:, :, 0], None, s.eps, self.w.norm_I.dtype)
        self._norm_GX, self._normed_BGX = self.w.norm_I.view(s.groups, -1), self._normed_BI.view(rows, s.groups, -1)

    def __call__(self, x: Tensor, columns: Columns) -> Tensor:
        """(B, D …) -> (B, D)."""
        z_BI, raw_BC, dt_BH = self._in(x).split_with_sizes(self._parts, -1)
        slot = columns.seen % len(self._slots)
        self._slots[slot].copy_(raw_BC)
        torch.mul(self._ring_BWC, self._ring_weights[slot], out=self._product_BWC)
        torch.sum(self._product_BWC, 1, out=self._act_BC)
        if self.w.conv_bias_C is not None:
            self._act_BC.add_(self.w.conv_bias_C)
        F.silu(self._act_BC, inplace=True)
        self._time_step(dt_BH)
        torch.mul(self._x_BHP, self._dt_BH1, out=self._xdt_BHP)
        self._state_BGNRP.mul_(self._decay_BG1R1)
        self._state_BGNX.addcmul_(self._B_BGN1, self._xdt_BG1X)
        torch.matmul(self._C_BG1N, self._state_BGNX, out=self._y_BG1X)
        self._y_BHP.addcmul_(self._x_BHP, self._D_H1)
        self._y_BI.mul_(F.silu(z_BI if z_BI.dtype == self._y_BI.dtype else z_BI.to(self._y_BI.dtype)))
        torch.mul(self._norm()[..., : self._norm_GX.shape[1]], self._norm_GX, out=self._normed_BGX)
        return self._out(self._normed_BI if z_BI.dtype == self._y_BI.dtype else self._normed_BI.to(z_BI.dtype))

    def _time_step(self, dt_BH: Tensor) -> None:
        """dt = softplus(raw + bias) within its limits, and how much of the state it leaves."""
        torch.add(dt_BH, self.w.dt_bias_H, out=self._dt_BH)
        torch.logaddexp(self._dt_BH, self._zero, out=self._dt_BH)
        if self._limits is not None:
            self._dt_BH.clamp_(*self._limits)
        torch.mul(self._dt_BH, self._A_H, out=self._decay_BH).exp_()


class AttentionStep:
    """One query a head over everything in the cache."""

    def __init__(self, mixer: Attention, state: KeyValues, width: int) -> None:
        rows, self._heads = state.keys.shape[:2]
        self._q, self._k, self._v = (Projection(p, rows, width) for p in (mixer.q_proj, mixer.k_proj, mixer.v_proj))
        self._o = Projection(mixer.o_proj, rows)
        self._state, self._head_dim = state, mixer.head_dim

    def __call__(self, x: Tensor, columns: Columns) -> Tensor:
        """(B, D …) -> (B, D)."""
        keys, values = (p(x).unflatten(-1, (self._heads, 1, -1)) for p in (self._k, self._v))
        keys_BGKP, values_BGKP = self._state.append(keys, values, columns.seen)
        # The heads of a group stand where queries do, so that their keys are read once.
        query_BGRP = self._q(x).unflatten(-1, (self._heads, -1, self._head_dim)).contiguous()
        keys_BGKP, values_BGKP = keys_BGKP.to(query_BGRP.dtype), values_BGKP.to(query_BGRP.dtype)
        read_BGRP = F.scaled_dot_product_attention(query_BGRP, keys_BGKP, values_BGKP, attn_mask=columns.look_B1LK)
        return self._o(read_BGRP.flatten(1))


class MLPStep:
    """up, squared ReLU, down."""

    def __init__(self, mixer: MLP, rows: int, width: int) -> None:
        self._up, self._down = Projection(mixer.up_proj, rows, width), Projection(mixer.down_proj, rows)

    def __call__(self, x: Tensor, columns: Columns) -> Tensor:
        """(B, D …) -> (B, D)."""
        hidden_BF = self._up(x).relu()
        hidden_BF.mul_(hidden_BF)
        return self._down(hidden_BF if hidden_BF.stride(1) == 1 else hidden_BF.contiguous())


def has_step(layers: Iterable[Any]) -> bool:
    """Whether every mixer is one of ours, and none wraps it."""
    return all(type(layer.mixer) in (Mamba2, Attention, MLP) for layer in layers)


class Stepper:
    """All layers, for the rows and the memory of one cache, with the weights as they are when it is made.

    The cache drops it when its rows change, when it is restored and with every pass of several columns.
    """

    def __init__(self, layers: Iterable[Any], norm_f: RMSNorm, cache: HybridCache) -> None:
        self.layers = layers
        width, rows, dtype = len(norm_f.weight), len(cache.valid_BK), norm_f.weight.dtype
        self._x_BD = norm_f.weight.new_empty(rows, width)
        exact = torch.float64 if dtype == torch.float64 else torch.float32

        def norm(module: RMSNorm) -> Norm:
            return Norm(self._x_BD, module.weight.detach(), module.eps, exact)

        self._norm_f, self._same = norm(norm_f), exact == dtype
        self._layers = [
            (norm(layer.norm), _step_of(layer.mixer, state, rows, width))
            for layer, state in zip(layers, cache.layers, strict=True)
        ]

    def __call__(self, embeds_BD: Tensor, columns: Columns) -> Tensor:
        """Embeddings (B, D) of one token a row -> final hidden states (B, D)."""
        self._x_BD.copy_(embeds_BD)
        for norm, mixer in self._layers:
            normed = norm()
            self._x_BD.add_(mixer(normed if self._same else normed.to(self._x_BD.dtype), columns))
        return self._norm_f()[:, : self._x_BD.shape[1]].to(embeds_BD.dtype)


def _step_of(mixer: nn.Module, state: MambaState | KeyValues | None, rows: int, width: int) -> Any:
    if isinstance(mixer, Mamba2):
        assert isinstance(state, MambaState), "a Mamba-2 layer has its state"
        return MambaStep(mixer, state)
    if isinstance(mixer, Attention):
        assert isinstance(state, KeyValues), "an attention layer has its keys and values"
        return AttentionStep(mixer, state, width)
    assert isinstance(mixer, MLP), f"no step for {type(mixer).__name__}"
    return MLPStep(mixer, rows, width)
