"""The Mamba-2 mixer: in_proj -> causal convolution -> selective scan -> gated norm -> out_proj.

The parts of in_proj stand in the order z, x, B, C, dt, as in released Nemotron-H checkpoints. Departures from
transformers' `nemotron_h`: dt is clamped to `time_step_limit` on every path, right padding leaves the states alone,
documents of a packed row do not see each other, and B and C are never expanded to heads.

B batch, L tokens, D width, I inner width = H · P, C convolution channels = I + 2 · G · N, W conv width,
H heads, P head dim, G groups, N state size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosmos_reason.model.cache import MambaState
from cosmos_reason.model.columns import Columns
from cosmos_reason.model.config import HybridConfig
from cosmos_reason.model.norms import GatedGroupNorm, at_least_fp32
from cosmos_reason.model.scan import chunked_scan, single_step


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

    def forward(self, x_BLD: Tensor, columns: Columns, state: MambaState | None) -> Tensor:
        """(B, L, D) -> (B, L, D); `state` is updated in place."""
        config = self.config
        z_BLI, xBC_BLC, dt_BLH = self.in_proj(x_BLD).split(
            [config.mamba_inner_size, config.conv_channels, config.mamba_num_heads], dim=-1
        )
        dt_BLH = F.softplus(at_least_fp32(dt_BLH) + at_least_fp32(self.dt_bias)).clamp(*config.time_step_limit)
        if columns.token_BL is not None:
            # Padding must not enter the window of a later token (hence zero before the convolution) nor, through the
            # convolution's bias, the state (a time step of zero adds nothing and decays nothing).
            xBC_BLC = xBC_BLC * columns.token_BL[..., None]
            dt_BLH = dt_BLH * columns.token_BL[..., None]
        xBC_BLC = at_least_fp32(F.silu(self._convolve(xBC_BLC, columns, state)))
        y_BLI = self._scan(xBC_BLC, dt_BLH, columns, state)
        return self.out_proj(self.norm(y_BLI, z_BLI))

    def _convolve(self, xBC_BLC: Tensor, columns: Columns, state: MambaState | None) -> Tensor:
        """Causal depthwise convolution, the window of the cache standing before the first column."""
        window = self.config.conv_kernel - 1
        if state is None:
            inputs_BKC = F.pad(xBC_BLC, (0, 0, window, 0))
        else:
            inputs_BKC = torch.cat([state.conv_BWC.to(xBC_BLC.dtype), xBC_BLC], dim=1)
            state.conv_BWC.copy_(_last_columns(inputs_BKC, columns.token_BL, window))
        return causal_convolution(inputs_BKC, self.conv1d.weight[:, 0], self.conv1d.bias, columns.document_BL)

    def _scan(self, xBC_BLC: Tensor, dt_BLH: Tensor, columns: Columns, state: MambaState | None) -> Tensor:
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
                before = None if state is None or not columns.seen else state.ssm_BHPN
                y_BLHP, after = chunked_scan(
                    x_BLHP, dt_BLH, A_H, B_BLGN, C_BLGN, config.chunk_size, before, columns.document_BL
                )
                if state is not None:
                    state.ssm_BHPN.copy_(after)
            y_BLHP = y_BLHP + x_BLHP * at_least_fp32(self.D)[:, None]
        return y_BLHP.flatten(2)


def causal_convolution(
    inputs_BKC: Tensor, weight_CW: Tensor, bias_C: Tensor | None, document_BL: Tensor | None = None
) -> Tensor:
    """(B, W − 1 + L, C) -> (B, L, C): each column from itself and the W − 1 before it, of its own document."""
    width, length = weight_CW.shape[1], inputs_BKC.shape[1] - weight_CW.shape[1] + 1
    out_BLC = bias_C
    for lag in range(width):
        part_BLC = inputs_BKC[:, width - 1 - lag : width - 1 - lag + length]
        if document_BL is not None and lag:
            before_BL = F.pad(document_BL, (lag, 0), value=-1)[:, :length]
            part_BLC = part_BLC * (before_BL == document_BL)[..., None]
        weight_C = weight_CW[:, width - 1 - lag]
        out_BLC = part_BLC * weight_C if out_BLC is None else torch.addcmul(out_BLC, part_BLC, weight_C)
    assert out_BLC is not None, "a convolution is at least one column wide"
    return out_BLC


def _last_columns(columns_BKC: Tensor, token_BL: Tensor | None, window: int) -> Tensor:
    """The `window` columns that end at each row's last token; the first `window` of the input are the old window."""
    if token_BL is None:
        return columns_BKC[:, columns_BKC.shape[1] - window :]
    length = token_BL.shape[1]
    at_L = torch.arange(1, length + 1, device=token_BL.device)
    end_B = (token_BL * at_L).amax(dim=1)  # tokens' end, 0 in a row of padding, which keeps the old window
    index_BW = end_B[:, None] + torch.arange(window, device=token_BL.device)
    return columns_BKC.gather(1, index_BW[..., None].expand(-1, -1, columns_BKC.shape[2]))
