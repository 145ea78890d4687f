"""The Mamba-2 mixer: in_proj -> causal convolution -> selective scan -> gated norm -> out_proj.

The scan is h_t = exp(dt_t A) h_{t-1} + dt_t x_t ⊗ B_t and y_t = C_t h_t + D x_t (arXiv 2405.21060). Sequences go
through it in chunks (`chunked_scan`), single tokens by one step (`single_step`); both take the same clamped dt. The
parts of in_proj stand in the order z, x, B, C, dt, as in released Nemotron-H checkpoints. Departures from transformers'
`nemotron_h`: dt is clamped to `time_step_limit` on every path, right padding leaves the states alone, and B and C are
never expanded to heads.

B batch, L tokens, D width, I inner width = H · P, C convolution channels = I + 2 · G · N, W conv width − 1,
H heads, P head dim, G groups, R heads a group, N state size, c chunks, Q chunk length.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosmos_reason.model.cache import MambaState
from cosmos_reason.model.config import HybridConfig
from cosmos_reason.model.norms import GatedGroupNorm, at_least_fp32


def chunked_scan(
    x_BLHP: Tensor, dt_BLH: Tensor, A_H: Tensor, B_BLGN: Tensor, C_BLGN: Tensor, chunk: int, state_BHPN: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The scan over whole sequences, without the D term: y (B, L, H, P) and the state after the last column.

    Columns with dt = 0 neither decay nor change the state. The result does not depend on `chunk`: chunks are made
    equally long, at most `chunk` each.
    """
    length, groups = x_BLHP.shape[1], B_BLGN.shape[2]
    count = max(1, math.ceil(length / chunk))
    size = math.ceil(length / count)
    if missing := count * size - length:
        x_BLHP, B_BLGN, C_BLGN = (F.pad(t, (0, 0, 0, 0, 0, missing)) for t in (x_BLHP, B_BLGN, C_BLGN))
        dt_BLH = F.pad(dt_BLH, (0, 0, 0, missing))
    heads = (groups, -1)
    # One batch axis for (batch, chunk, group): every product below is a plain batched matrix product.
    x = (x_BLHP * dt_BLH[..., None]).unflatten(1, (count, size)).unflatten(3, heads)  # B c Q G R P
    B_BcGQN = B_BLGN.unflatten(1, (count, size)).transpose(2, 3)
    C_BcGQN = C_BLGN.unflatten(1, (count, size)).transpose(2, 3)
    decay = (dt_BLH * A_H).unflatten(1, (count, size)).unflatten(3, heads).permute(0, 1, 3, 4, 2)
    log_BcGRQ = decay.cumsum(-1)

    x_BcGRQP = x.permute(0, 1, 3, 4, 2, 5)
    inside = log_BcGRQ[..., :, None] - log_BcGRQ[..., None, :]
    future = torch.ones(size, size, dtype=torch.bool, device=inside.device).triu(1)
    weight = inside.masked_fill(future, -math.inf).exp() * (C_BcGQN @ B_BcGQN.mT)[:, :, :, None]
    y_BcGRQP = weight @ x_BcGRQP

    to_end = (log_BcGRQ[..., -1:] - log_BcGRQ).exp()
    added_BcGRPN = (x_BcGRQP * to_end[..., None]).mT @ B_BcGQN[:, :, :, None]
    chunk_decay = log_BcGRQ[..., -1].exp()[..., None, None]
    state = torch.zeros_like(added_BcGRPN[:, 0]) if state_BHPN is None else state_BHPN.unflatten(1, heads)
    before = []
    for index in range(count):
        before.append(state)
        state = chunk_decay[:, index] * state + added_BcGRPN[:, index]
    carried = C_BcGQN[:, :, :, None] @ torch.stack(before, 1).mT
    y_BcGRQP = y_BcGRQP + carried * log_BcGRQ.exp()[..., None]
    y_BLHP = y_BcGRQP.permute(0, 1, 4, 2, 3, 5).flatten(3, 4).flatten(1, 2)
    return y_BLHP[:, :length], state.flatten(1, 2)


def single_step(x_BHP: Tensor, dt_BH: Tensor, A_H: Tensor, B_BGN: Tensor, C_BGN: Tensor, state_BHPN: Tensor) -> Tensor:
    """The scan for one token, without the D term: y (B, H, P); the state is updated in place."""
    groups = B_BGN.shape[1]
    state = state_BHPN.unflatten(1, (groups, -1))
    x_BGRP = (x_BHP * dt_BH[..., None]).unflatten(1, (groups, -1))
    state.mul_((dt_BH * A_H).exp().unflatten(1, (groups, -1))[..., None, None])
    state.add_(x_BGRP[..., None] * B_BGN[:, :, None, None, :])
    return (state @ C_BGN[:, :, None, :, None]).squeeze(-1).flatten(1, 2)


class Mamba2(nn.Module):
    """One mixer. A_log, D and dt_bias are kept and used in fp32 and belong outside weight decay."""

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        self.config = config
        inner, channels = config.mamba_inner_size, config.conv_channels
        self.in_proj = nn.Linear(config.hidden_size, inner + channels + config.mamba_num_heads, bias=False)
        self.conv1d = nn.Conv1d(channels, channels, config.conv_kernel, groups=channels, bias=config.use_conv_bias)
        self.dt_bias = nn.Parameter(torch.empty(config.mamba_num_heads))
        self.A_log = nn.Parameter(torch.empty(config.mamba_num_heads))
        self.D = nn.Parameter(torch.empty(config.mamba_num_heads))
        for parameter in (self.dt_bias, self.A_log, self.D):
            parameter._no_weight_decay = True  # type: ignore[attr-defined]
        self.norm = GatedGroupNorm(inner, config.n_groups, config.layer_norm_epsilon)
        self.out_proj = nn.Linear(inner, config.hidden_size, bias=False)

    def forward(self, x_BLD: Tensor, mask_BL: Tensor | None, state: MambaState | None, seen: int) -> Tensor:
        """(B, L, D) -> (B, L, D). `mask_BL` is True on tokens, None without padding; `state` is updated in place."""
        config = self.config
        projected = self.in_proj(x_BLD)
        z_BLI, xBC_BLC, dt_BLH = projected.split(
            [config.mamba_inner_size, config.conv_channels, config.mamba_num_heads], dim=-1
        )
        dt_BLH = F.softplus(at_least_fp32(dt_BLH) + at_least_fp32(self.dt_bias)).clamp(*config.time_step_limit)
        if mask_BL is not None:
            # Padding must not enter the window of a later token, nor, through the convolution's bias, the state.
            xBC_BLC = xBC_BLC * mask_BL[..., None]
            dt_BLH = dt_BLH * mask_BL[..., None]
        xBC_BLC = at_least_fp32(F.silu(self._convolve(xBC_BLC, mask_BL, state)))
        if mask_BL is not None:
            xBC_BLC = xBC_BLC * mask_BL[..., None]
        y_BLI = self._scan(xBC_BLC, dt_BLH, state, seen)
        return self.out_proj(self.norm(y_BLI, z_BLI))

    def _convolve(self, xBC_BLC: Tensor, mask_BL: Tensor | None, state: MambaState | None) -> Tensor:
        """Causal depthwise convolution, the window of the cache standing before the first column."""
        window = self.config.conv_kernel - 1
        if state is None:
            columns = F.pad(xBC_BLC, (0, 0, window, 0))
        else:
            columns = torch.cat([state.conv_BCW.mT.to(xBC_BLC.dtype), xBC_BLC], dim=1)
            state.conv_BCW.copy_(_last_columns(columns, mask_BL, window).mT)
        return depthwise(columns, self.conv1d.weight[:, 0], self.conv1d.bias)

    def _scan(self, xBC_BLC: Tensor, dt_BLH: Tensor, state: MambaState | None, seen: int) -> Tensor:
        config = self.config
        bc = config.n_groups * config.ssm_state_size
        x, B, C = xBC_BLC.split([config.mamba_inner_size, bc, bc], dim=-1)
        x_BLHP = x.unflatten(-1, (config.mamba_num_heads, config.mamba_head_dim))
        B_BLGN, C_BLGN = (t.unflatten(-1, (config.n_groups, config.ssm_state_size)) for t in (B, C))
        A_H = -at_least_fp32(self.A_log).exp()
        with torch.autocast(x.device.type, enabled=False):
            if state is not None and x.shape[1] == 1:
                y = single_step(x_BLHP[:, 0], dt_BLH[:, 0], A_H, B_BLGN[:, 0], C_BLGN[:, 0], state.ssm_BHPN)
                y_BLHP = y[:, None]
            else:
                before = None if state is None or not seen else state.ssm_BHPN
                y_BLHP, after = chunked_scan(x_BLHP, dt_BLH, A_H, B_BLGN, C_BLGN, config.chunk_size, before)
                if state is not None:
                    state.ssm_BHPN.copy_(after)
            y_BLHP = y_BLHP + x_BLHP * at_least_fp32(self.D)[:, None]
        return y_BLHP.flatten(2)


def depthwise(columns_BKC: Tensor, weight_CW: Tensor, bias_C: Tensor | None) -> Tensor:
    """Valid depthwise convolution along the columns, K − W + 1 of them. Shifted sums beat a grouped convolution here."""
    width = weight_CW.shape[1]
    length = columns_BKC.shape[1] - width + 1
    out = columns_BKC[:, :length] * weight_CW[:, 0]
    for tap in range(1, width):
        out = out.addcmul(columns_BKC[:, tap : tap + length], weight_CW[:, tap])
    return out if bias_C is None else out + bias_C


def _last_columns(columns_BKC: Tensor, mask_BL: Tensor | None, window: int) -> Tensor:
    """The `window` columns that end at each row's last token; the first `window` of the input are the old window."""
    if mask_BL is None:
        return columns_BKC[:, columns_BKC.shape[1] - window :]
    length = mask_BL.shape[1]
    at_L = torch.arange(1, length + 1, device=mask_BL.device)
    end_B = (mask_BL * at_L).amax(dim=1)  # tokens' end, 0 in a row of padding, which keeps the old window
    index_BW = end_B[:, None] + torch.arange(window, device=mask_BL.device)
    return columns_BKC.gather(1, index_BW[..., None].expand(-1, -1, columns_BKC.shape[2]))
