"""What stands between the projections of a Mamba-2 mixer: convolution, SiLU, selective scan, gate and norm per group.

h_t = exp(dt_t A) h_{t−1} + dt_t x_t ⊗ B_t and y_t = C_t h_t + D x_t (arXiv 2405.21060, section 6, "SSD"), in chunks. A
batch goes through in segments of a few rows and chunks, so that every intermediate stays near the processor and memory
is linear in length. Heads of a group share one product with their B or C, which are never expanded to heads.
`core_backward.py` holds the derivative, which computes each segment again instead of keeping it.

B batch, L tokens, H heads, P head dim, G groups, X = I / G channels of a group, I = H · P, N state size, W conv width,
C = I + 2 · G · N convolution channels; of a segment: R rows, T columns, Q columns of a chunk, M = R · T / Q chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

ELEMENTS = 2**20  # of an intermediate of a segment: few enough to stay near the processor, enough for few calls


@dataclass(frozen=True)
class Sizes:
    """Of one mixer."""

    heads: int
    head_dim: int
    groups: int
    state: int
    chunk: int
    eps: float
    dt_limit: tuple[float, float]

    @property
    def inner(self) -> int:
        """Channels of x, z and y."""
        return self.heads * self.head_dim

    @property
    def segment(self) -> int:
        """Columns at once."""
        return max(ELEMENTS // self.inner, 1)


class Weights(NamedTuple):
    """Of one mixer, in fp32 or fp64."""

    conv_WC: Tensor
    conv_bias_C: Tensor | None
    dt_bias_H: Tensor
    A_log_H: Tensor
    D_H: Tensor
    norm_I: Tensor


class Place(NamedTuple):
    """A segment: rows and columns of the batch, and the number of chunks that the columns make."""

    rows: slice
    start: int
    end: int
    chunks: int


def places(batch: int, length: int, chunk: int, segment: int) -> Iterator[Place]:
    """Segments of about `segment` columns in all: rows side by side first, then chunks of equal length one by one."""
    size = math.ceil(length / math.ceil(length / chunk))
    together = max(segment // size, 1)
    rows = min(batch, together)
    for first in range(0, batch, rows):
        start = 0
        while start < length:
            left = length - start
            width = min(together // rows * size, left - left % size) or left
            yield Place(slice(first, min(first + rows, batch)), start, start + width, max(width // size, 1))
            start += width


class Documents:
    """Where documents of packed rows meet, for one segment, as factors in the dtype of the scan."""

    def __init__(self, document_BL: Tensor, place: Place, window: int, dtype: torch.dtype) -> None:
        before_BK = F.pad(document_BL, (window + 1, 0), value=-1)[place.rows, place.start : place.end + window + 1]
        here_RT = before_BK[:, window + 1 :]
        here_MQ = here_RT.unflatten(1, (place.chunks, -1)).flatten(0, 1)
        last_M = here_MQ[:, -1]
        of_state_M = before_BK[:, window :: here_MQ.shape[1]][:, : place.chunks].flatten()
        self.same_RT1 = [  # by lag
            (before_BK[:, window + 1 - lag : before_BK.shape[1] - lag] == here_RT)[..., None].to(dtype)
            for lag in range(window + 1)
        ]
        self.same_MQQ = (here_MQ[:, :, None] == here_MQ[:, None, :]).to(dtype)
        self.of_last_MQ1 = (here_MQ == last_M[:, None])[..., None].to(dtype)
        self.of_state_MQ1 = (here_MQ == of_state_M[:, None])[..., None].to(dtype)
        self.through_M1 = (last_M == of_state_M)[:, None].to(dtype)


class Workspace:
    """Buffers by name, made once and written again for every segment: fresh memory costs more than the arithmetic."""

    def __init__(self, like: Tensor) -> None:
        self._like = like
        self._buffers: dict[str, Tensor] = {}

    def __call__(self, name: str, *shape: int) -> Tensor:
        """A tensor of this shape with whatever it held before."""
        count = math.prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < count:
            buffer = self._buffers[name] = self._like.new_empty(count)
        return buffer[:count].view(shape)


class Segment:
    """One segment, up to its output; keeps what the derivative needs until the workspace is used again.

    `state_RGNX` is the state before it; `raw_RKC` holds the W − 1 columns before it, too.
    """

    def __init__(
        self,
        sizes: Sizes,
        weights: Weights,
        buffer: Workspace,
        chunks: int,
        raw_RKC: Tensor,
        z_RTI: Tensor,
        dt_RTH: Tensor,
        state_RGNX: Tensor,
        documents: Documents | None,
    ) -> None:
        self.sizes, self.weights, self.buffer, self.documents = sizes, weights, buffer, documents
        self.chunks, self.rows = chunks, dt_RTH.shape[0]
        self.raw_RKC, self.z_RTI = raw_RKC, z_RTI
        self.dt_MQH = dt_RTH.reshape(self.rows * chunks, -1, sizes.heads)
        self.shape_MQHP = (*self.dt_MQH.shape, sizes.head_dim)
        self.shape_MQGX = (*self.dt_MQH.shape[:2], sizes.groups, sizes.inner // sizes.groups)
        self._convolve()
        self._decays()
        self._inside()
        self._through(state_RGNX)
        self._gate()

    def _convolve(self) -> None:
        """Each column from itself and the W − 1 before it, of its own document; then SiLU, and x, B and C apart."""
        s, weight_WC, raw = self.sizes, self.weights.conv_WC, self.raw_RKC
        (width, channels), length = weight_WC.shape, self.z_RTI.shape[1]
        self.u_RTC = self.buffer("u", self.rows, length, channels)
        here, bias = raw[:, raw.shape[1] - length :], self.weights.conv_bias_C
        if bias is None:
            torch.mul(here, weight_WC[-1], out=self.u_RTC)
        else:
            torch.addcmul(bias, here, weight_WC[-1], out=self.u_RTC)
        for lag in range(1, width):
            to, earlier = self.lagged(lag)
            from_RTC = raw[:, earlier]
            if self.documents is not None:
                from_RTC = from_RTC * self.documents.same_RT1[lag][:, to]
            self.u_RTC[:, to].addcmul_(from_RTC, weight_WC[width - 1 - lag])
        act_RTC = torch.ops.aten.silu.out(self.u_RTC, out=self.buffer("act", *self.u_RTC.shape))
        act_MQC = act_RTC.view(*self.dt_MQH.shape[:2], channels)
        x, B, C = act_MQC.split([s.inner, s.groups * s.state, s.groups * s.state], dim=-1)
        self.x_MQHP = x.view(self.shape_MQHP)
        self.B_GMQN, self.C_GMQN = (
            self.buffer(name, s.groups, *t.shape[:2], s.state).copy_(t.unflatten(-1, (s.groups, -1)).movedim(2, 0))
            for name, t in (("B", B), ("C", C))
        )

    def lagged(self, lag: int) -> tuple[slice, slice]:
        """Columns that have one `lag` before them, and those of `raw_RKC` that stand there."""
        length, before = self.z_RTI.shape[1], self.raw_RKC.shape[1] - self.z_RTI.shape[1]
        first = min(max(lag - before, 0), length)
        return slice(first, length), slice(max(before + first - lag, 0), max(before + length - lag, 0))

    def _decays(self) -> None:
        """How much is left, from the start of its chunk to each column and from each column to the end of its chunk."""
        self.A_H = -self.weights.A_log_H.exp()
        self.log_MQH = (self.dt_MQH * self.A_H).cumsum(1)
        self.from_start_MQH = self.log_MQH.exp()
        self.to_end_MQH = (self.log_MQH[:, -1:] - self.log_MQH).exp()
        self.all_MH = self.from_start_MQH[:, -1]
        if self.documents is not None:
            self.all_MH = self.all_MH * self.documents.through_M1
            self.from_start_MQH = self.from_start_MQH * self.documents.of_state_MQ1
            self.to_end_MQH = self.to_end_MQH * self.documents.of_last_MQ1

    def _inside(self) -> None:
        """Column q reads x of column k ≤ q of its chunk with weight (C_q · B_k) exp(log_q − log_k) dt_k."""
        s, (chunks, size, heads, width) = self.sizes, self.shape_MQHP
        self.xdt_MHQP = self.buffer("xdt", chunks, heads, size, width)
        torch.mul(self.x_MQHP.transpose(1, 2), self.dt_MQH.transpose(1, 2)[..., None], out=self.xdt_MHQP)
        log_MHQ = self.log_MQH.transpose(1, 2).contiguous()
        square = (chunks, heads, size, size)
        self.decay_MHQQ = torch.sub(log_MHQ[..., :, None], log_MHQ[..., None, :], out=self.buffer("decay", *square))
        self.decay_MHQQ.clamp_(max=0).exp_()
        CB_GMQQ = self.buffer("CB", s.groups, chunks, size, size)
        torch.matmul(self.C_GMQN, self.B_GMQN.mT, out=CB_GMQQ).tril_()
        if self.documents is not None:
            CB_GMQQ *= self.documents.same_MQQ
        self.weight_MHQQ = self.buffer("weight", *square)
        by_group = (chunks, s.groups, heads // s.groups, size, size)
        CB_MG1QQ = CB_GMQQ.transpose(0, 1)[:, :, None]
        torch.mul(self.decay_MHQQ.view(by_group), CB_MG1QQ, out=self.weight_MHQQ.view(by_group))

    def _through(self, state_RGNX: Tensor) -> None:
        """The state from chunk to chunk, and what every column reads from the state before its chunk."""
        s, (chunks, size, groups, width) = self.sizes, self.shape_MQGX
        self.scaled_MQGX = self.buffer("scaled", *self.shape_MQGX)
        dt_to_end_MQH1 = (self.dt_MQH * self.to_end_MQH)[..., None]
        torch.mul(self.x_MQHP, dt_to_end_MQH1, out=self.scaled_MQGX.view(self.shape_MQHP))
        added_GMNX = self.buffer("added", groups, chunks, s.state, width)
        for group in range(groups):
            torch.bmm(self.B_GMQN[group].mT, self.scaled_MQGX[:, :, group], out=added_GMNX[group])
        added_GRcNX = added_GMNX.unflatten(1, (-1, self.chunks))
        self.all_GRc1X = self._per_channel(self.all_MH).unflatten(1, (-1, self.chunks))
        before_GRcNX = self.buffer("before", groups, self.rows, self.chunks, s.state, width)
        before_GRcNX[:, :, 0] = state_RGNX.transpose(0, 1)
        state_GRNX = before_GRcNX[:, :, 0]
        for chunk in range(self.chunks):
            place = before_GRcNX[:, :, chunk + 1] if chunk + 1 < self.chunks else None
            state_GRNX = torch.addcmul(added_GRcNX[:, :, chunk], self.all_GRc1X[:, :, chunk], state_GRNX, out=place)
        self.state_RGNX = state_GRNX.transpose(0, 1)
        self.before_GMNX = before_GRcNX.flatten(1, 2)
        self.carried_GMQX = self.buffer("carried", groups, chunks, size, width)
        torch.matmul(self.C_GMQN, self.before_GMNX, out=self.carried_GMQX)

    def _per_channel(self, per_head_MH: Tensor) -> Tensor:
        """(M, H) -> (G, M, 1, X)."""
        per_channel_MI = per_head_MH.repeat_interleave(self.sizes.head_dim, 1)
        return per_channel_MI.unflatten(1, (self.sizes.groups, 1, -1)).transpose(0, 1).contiguous()

    def by_head(self, tensor_GMQX: Tensor) -> Tensor:
        """(G, M, Q, X) -> (M, G, heads of a group, Q, P), a view."""
        return tensor_GMQX.unflatten(-1, (-1, self.sizes.head_dim)).permute(1, 0, 3, 2, 4)

    def _gate(self) -> None:
        """What is read inside the chunk and from before it, and D · x; y · silu(z); RMSNorm of each group."""
        chunks, size, heads, width = self.shape_MQHP
        read_MHQP = self.buffer("read", chunks, heads, size, width)
        by_group = (chunks, self.sizes.groups, -1, size)
        from_start = self.from_start_MQH.transpose(1, 2).reshape(by_group)[..., None]
        torch.mul(self.by_head(self.carried_GMQX), from_start, out=read_MHQP.view(*by_group, width))
        read_MHQP.flatten(0, 1).baddbmm_(self.weight_MHQQ.flatten(0, 1), self.xdt_MHQP.flatten(0, 1))
        y_MQHP = self.buffer("y", *self.shape_MQHP)
        torch.addcmul(read_MHQP.transpose(1, 2), self.x_MQHP, self.weights.D_H[:, None], out=y_MQHP)
        self.y_RTI = y_MQHP.view(self.z_RTI.shape)
        self.gate_RTI = torch.ops.aten.silu.out(self.z_RTI, out=self.buffer("gate", *self.z_RTI.shape))
        self.normed_RTI = torch.mul(self.y_RTI, self.gate_RTI, out=self.buffer("normed", *self.z_RTI.shape))
        gated_RTGX = self.normed_RTI.unflatten(-1, (self.sizes.groups, -1))
        norm_RTG1 = torch.linalg.vector_norm(gated_RTGX, dim=-1, keepdim=True)
        self.scale_RTG1 = (norm_RTG1.square_() / gated_RTGX.shape[-1]).add_(self.sizes.eps).rsqrt_()
        gated_RTGX.mul_(self.scale_RTG1)

    def write(self, out_RTI: Tensor) -> None:
        """The output, (R, T, I)."""
        if out_RTI.dtype == self.normed_RTI.dtype:
            torch.mul(self.normed_RTI, self.weights.norm_I, out=out_RTI)
        else:
            out_RTI.copy_(self.normed_RTI * self.weights.norm_I)


def time_steps(raw_BLH: Tensor, weights: Weights, sizes: Sizes, token_BL: Tensor | None) -> Tensor:
    """softplus(dt + bias) within its limits; 0, which adds nothing and decays nothing, on padding."""
    dt_BLH = F.softplus(raw_BLH.to(weights.dt_bias_H.dtype) + weights.dt_bias_H)
    if sizes.dt_limit != (0.0, float("inf")):
        dt_BLH = dt_BLH.clamp(*sizes.dt_limit)
    return dt_BLH if token_BL is None else dt_BLH * token_BL[..., None]


class Inputs(NamedTuple):
    """Of a whole batch, as they come from in_proj and the cache."""

    projected_BLE: Tensor  # z, x, B, C, dt side by side; E = I + C + H
    window_BWC: Tensor | None  # the W − 1 columns before, as the convolution takes them; None: zeros
    state_BGNX: Tensor | None  # the state before; None: zero
    token_BL: Tensor | None
    document_BL: Tensor | None

    def segment(
        self, sizes: Sizes, weights: Weights, buffer: Workspace, place: Place, dt_BLH: Tensor, state_RGNX: Tensor
    ) -> Segment:
        """The segment at this place."""
        rows, start, end, chunks = place
        window, dtype = weights.conv_WC.shape[0] - 1, weights.norm_I.dtype
        documents = None
        if self.document_BL is not None:
            documents = Documents(self.document_BL, place, window, dtype)
        z_RTI = self.projected_BLE[rows, start:end, : sizes.inner].to(dtype)
        raw_RKC, dt_RTH = self._raw(sizes, rows, start, end, window, dtype), dt_BLH[rows, start:end]
        return Segment(sizes, weights, buffer, chunks, raw_RKC, z_RTI, dt_RTH, state_RGNX, documents)

    def _raw(self, sizes: Sizes, rows: slice, start: int, end: int, window: int, dtype: torch.dtype) -> Tensor:
        """x, B and C before the convolution, with the W − 1 columns before them, where there are any; zero on padding.

        Padding must not enter the window of a later token.
        """
        first = max(start - window, 0)
        raw = self.projected_BLE[rows, first:end, sizes.inner : -sizes.heads].to(dtype)
        if self.token_BL is not None:
            raw = raw * self.token_BL[rows, first:end, None]
        missing = window - (start - first)
        if self.window_BWC is None or not missing:
            return raw
        return torch.cat([self.window_BWC[rows, window - missing :].to(dtype), raw], 1)

    def first_state(self, sizes: Sizes, rows: slice, dtype: torch.dtype) -> Tensor:
        """The state that rows begin with."""
        if self.state_BGNX is not None:
            return self.state_BGNX[rows]
        count = len(range(*rows.indices(self.projected_BLE.shape[0])))
        shape = (count, sizes.groups, sizes.state, sizes.inner // sizes.groups)
        return torch.zeros(shape, dtype=dtype, device=self.projected_BLE.device)


def forward(sizes: Sizes, weights: Weights, inputs: Inputs, keep_states: list[Tensor] | None) -> tuple[Tensor, Tensor]:
    """y (B, L, I) in the dtype of the input, and the state after the last column (B, G, N, X).

    `keep_states` is filled with the state before every segment, in the order of `places`.
    """
    batch, length, _ = inputs.projected_BLE.shape
    dtype = weights.norm_I.dtype
    y_BLI = inputs.projected_BLE.new_empty(batch, length, sizes.inner)
    dt_BLH = time_steps(inputs.projected_BLE[..., -sizes.heads :], weights, sizes, inputs.token_BL)
    buffer, last = Workspace(weights.norm_I), []
    state = torch.empty(0)
    for place in places(batch, length, sizes.chunk, sizes.segment):
        if place.start == 0:
            state = inputs.first_state(sizes, place.rows, dtype)
        if keep_states is not None:
            keep_states.append(state)
        segment = inputs.segment(sizes, weights, buffer, place, dt_BLH, state)
        segment.write(y_BLI[place.rows, place.start : place.end])
        state = segment.state_RGNX
        if place.end == length:
            last.append(state)
    return y_BLI, torch.cat(last)
