"""The Mamba-2 mixer: in_proj -> causal convolution -> selective scan -> gated norm -> out_proj.

The parts of in_proj stand in the order z, x, B, C, dt, as in released Nemotron-H checkpoints. Departures from
transformers' `nemotron_h`: dt is clamped to `time_step_limit` on every path, right padding leaves the states alone and
documents of a packed row do not see each other. Sequences go through `core.py`, single tokens through `step.py`.

B batch, L tokens, D width, I inner width, E columns of in_proj, C convolution channels, V window of conv width − 1
columns, G groups, X = I / G, N state size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cosmos_reason.model import core, kernels
from cosmos_reason.model.cache import MambaState
from cosmos_reason.model.columns import Columns
from cosmos_reason.model.config import HybridConfig
from cosmos_reason.model.core_backward import Core
from cosmos_reason.model.linear import project
from cosmos_reason.model.norms import GatedGroupNorm, at_least_fp32

CHUNK = 64  # longest chunk on any machine: beyond it the work inside chunks grows and nothing shrinks


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
        projected_BLE, order_BL1 = project(self.in_proj, x_BLD), None
        if columns.order_BL is not None:  # the convolution must see tokens side by side
            order_BL1 = columns.order_BL[..., None]
            projected_BLE = projected_BLE.gather(1, order_BL1.expand_as(projected_BLE))
            columns = columns.in_order()
        with torch.autocast(x_BLD.device.type, enabled=False):
            if state is None:
                y_BLI = self._whole(projected_BLE, columns)
            else:
                y_BLI = self._continue(projected_BLE, columns, state)
        if order_BL1 is not None:
            y_BLI = torch.zeros_like(y_BLI).scatter(1, order_BL1.expand_as(y_BLI), y_BLI)
        return project(self.out_proj, y_BLI)

    def sizes(self) -> core.Sizes:
        """What the core has to know of the configuration."""
        c = self.config
        return core.Sizes(
            heads=c.mamba_num_heads,
            head_dim=c.mamba_head_dim,
            groups=c.n_groups,
            state=c.ssm_state_size,
            chunk=min(c.chunk_size, CHUNK),
            eps=c.layer_norm_epsilon,
            dt_limit=(c.time_step_limit[0], c.time_step_limit[1]),
        )

    def weights(self) -> core.Weights:
        """What the core has to know of the parameters, in fp32 or fp64."""
        bias = self.conv1d.bias
        return core.Weights(
            at_least_fp32(self.conv1d.weight[:, 0]).T.contiguous(),
            None if bias is None else at_least_fp32(bias),
            *(at_least_fp32(p) for p in (self.dt_bias, self.A_log, self.D, self.norm.weight)),
        )

    def _whole(self, projected_BLE: Tensor, columns: Columns) -> Tensor:
        """Sequences from their first token on, without a cache."""
        sizes, weights = self.sizes(), self.weights()
        inputs = core.Inputs(projected_BLE, None, None, columns.token_BL, columns.document_BL)
        fast = kernels.chosen(sizes, weights, inputs)
        if fast is not None:
            return fast.forward(sizes, weights, inputs)[0]
        if not torch.is_grad_enabled():
            return core.forward(sizes, weights, inputs, None)[0]
        return Core.apply(sizes, columns.token_BL, columns.document_BL, projected_BLE, *weights)

    def _continue(self, projected_BLE: Tensor, columns: Columns, state: MambaState) -> Tensor:
        """A piece of a sequence, from what the cache holds and into it."""
        sizes, weights = self.sizes(), self.weights()
        window_BVC = state.window(columns.seen)
        inputs = core.Inputs(
            projected_BLE,
            window_BVC if columns.seen else None,
            state.ssm_BGNX if columns.seen else None,
            columns.token_BL,
            None,
        )
        fast = kernels.chosen(sizes, weights, inputs)
        if fast is not None:
            y_BLI, last_BGNX = fast.forward(sizes, weights, inputs)
        else:
            y_BLI, last_BGNX = core.forward(sizes, weights, inputs, None)
        state.ssm_BGNX.copy_(last_BGNX)
        recent_BLC, window = projected_BLE[..., sizes.inner : -sizes.heads], window_BVC.shape[1]
        if columns.token_BL is not None:
            recent_BLC = recent_BLC * columns.token_BL[..., None]
        if columns.token_BL is not None or recent_BLC.shape[1] < window:
            recent_BLC = torch.cat([window_BVC.to(recent_BLC.dtype), recent_BLC], dim=1)
        state.set_window(_last_columns(recent_BLC, columns.token_BL, window), columns.seen + projected_BLE.shape[1])
        return y_BLI


def _last_columns(columns_BKC: Tensor, token_BL: Tensor | None, window: int) -> Tensor:
    """The `window` columns that end at each row's last token; the first `window` of the input are the old window."""
    if token_BL is None:
        return columns_BKC[:, columns_BKC.shape[1] - window :]
    length = token_BL.shape[1]
    at_L = torch.arange(1, length + 1, device=token_BL.device)
    end_B = (token_BL * at_L).amax(dim=1)  # tokens' end, 0 in a row of padding, which keeps the old window
    index_BW = end_B[:, None] + torch.arange(window, device=token_BL.device)
    return columns_BKC.gather(1, index_BW[..., None].expand(-1, -1, columns_BKC.shape[2]))
