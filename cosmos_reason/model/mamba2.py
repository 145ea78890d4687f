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
    (length, _, width), groups = x_BLHP.shape[1:], B_BLGN.shape[2]
    count = max(1, math.ceil(length / chunk))
    size = math.ceil(length / count)
    if missing := count * size - length:
        x_BLHP, B_BLGN, C_BLGN = (F.pad(t, (0, 0, 0, 0, 0, missing)) for t in (x_BLHP, B_BLGN, C_BLGN))
        dt_BLH = F.pad(dt_BLH, (0, 0, 0, missing))
    x_BcQHP, dt_BcQH = (t.unflatten(1, (count, size)) for t in (x_BLHP, dt_BLH))
    B_BcGQN, C_BcGQN = (t.unflatten(1, (count, size)).transpose(2, 3) for t in (B_BLGN, C_BLGN))
    log_BcQH = (dt_BcQH * A_H).cumsum(2)  # logarithm of the decay since the start of the chunk

    # Inside a chunk: column q reads x of column k ≤ q with weight (C_q · B_k) exp(log_q − log_k) dt_k.
    log_BcHQ, dt_BcHQ = log_BcQH.transpose(2, 3), dt_BcQH.transpose(2, 3)
    future_QQ = torch.ones(size, size, dtype=torch.bool, device=x_BLHP.device).triu(1)
    between_BcHQQ = (log_BcHQ[..., :, None] - log_BcHQ[..., None, :]).masked_fill(future_QQ, -math.inf)
    read_BcHQQ = (between_BcHQQ.exp() * dt_BcHQ[..., None, :]).unflatten(2, (groups, -1))
    weight_BcHQQ = (read_BcHQQ * (C_BcGQN @ B_BcGQN.mT)[:, :, :, None]).flatten(2, 3)
    inside_BcQHP = (weight_BcHQQ @ x_BcQHP.transpose(2, 3)).transpose(2, 3)

    # Between chunks: what each adds to the state, the states before each, and what is read from those. Heads of a
    # group share one product with its B or C.
    to_end_BcQH = (log_BcQH[:, :, -1:] - log_BcQH).exp() * dt_BcQH
    scaled = (x_BcQHP * to_end_BcQH[..., None]).unflatten(3, (groups, -1)).transpose(2, 3).flatten(4)
    added = scaled.mT @ B_BcGQN  # B c G R·P N
    decay = log_BcQH[:, :, -1].exp().repeat_interleave(width, dim=2).unflatten(2, (groups, -1))[..., None]
    state = torch.zeros_like(added[:, 0])
    if state_BHPN is not None:
        state = state_BHPN.flatten(1, 2).unflatten(1, (groups, -1))
    before = []
    for index in range(count):
        before.append(state)
        state = torch.addcmul(added[:, index], decay[:, index], state)
    carried = (C_BcGQN @ torch.stack(before, 1).mT).transpose(2, 3).flatten(3).unflatten(3, (-1, width))
    y_BcQHP = torch.addcmul(inside_BcQHP, carried, log_BcQH.exp()[..., None])
    return y_BcQHP.flatten(1, 2)[:, :length], state.flatten(1, 2).unflatten(1, (-1, width))


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
            # Padding must not enter the window of a later token (hence zero before the convolution) nor, through the
            # convolution's bias, the state (a time step of zero adds nothing and decays nothing).
            xBC_BLC = xBC_BLC * mask_BL[..., None]
            dt_BLH = dt_BLH * mask_BL[..., None]
        xBC_BLC = at_least_fp32(F.silu(self._convolve(xBC_BLC, mask_BL, state)))
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
        return self.conv1d(columns.mT).mT

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


def _last_columns(columns_BKC: Tensor, mask_BL: Tensor | None, window: int) -> Tensor:
    """The `window` columns that end at each row's last token; the first `window` of the input are the old window."""
    if mask_BL is None:
        return columns_BKC[:, columns_BKC.shape[1] - window :]
    length = mask_BL.shape[1]
    at_L = torch.arange(1, length + 1, device=mask_BL.device)
    end_B = (mask_BL * at_L).amax(dim=1)  # tokens' end, 0 in a row of padding, which keeps the old window
    index_BW = end_B[:, None] + torch.arange(window, device=mask_BL.device)
    return columns_BKC.gather(1, index_BW[..., None].expand(-1, -1, columns_BKC.shape[2]))
