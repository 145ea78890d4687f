"""The derivative of `core.py`, segment by segment from the end, each computed again from its inputs and first state.

Kept from the forward pass are in_proj's output and the state before every segment. The letters are those of `core.py`;
d_… is the derivative of the loss.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from cosmos_reason.model.core import Inputs, Segment, Sizes, Weights, Workspace, forward, places, time_steps

silu_backward = torch.ops.aten.silu_backward.grad_input


class Core(Function):
    """`core.forward` for training: sequences from their first token on, without a cache."""

    @staticmethod
    def forward(
        ctx: Any, sizes: Sizes, token_BL: Any, document_BL: Any, projected_BLE: Tensor, *weights: Any
    ) -> Tensor:
        """y (B, L, I)."""
        states: list[Tensor] = []
        inputs = Inputs(projected_BLE, None, None, token_BL, document_BL)
        y_BLI, _ = forward(sizes, Weights(*weights), inputs, states)
        ctx.sizes, ctx.token_BL, ctx.document_BL = sizes, token_BL, document_BL
        ctx.save_for_backward(projected_BLE, *weights, *states)
        return y_BLI

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        """Gradients of `projected` and of each weight."""
        projected_BLE, *rest = ctx.saved_tensors
        weights = Weights(*rest[: len(Weights._fields)])
        inputs = Inputs(projected_BLE, None, None, ctx.token_BL, ctx.document_BL)
        with torch.autocast(projected_BLE.device.type, enabled=False):
            d_projected, d_weights = backward(ctx.sizes, weights, inputs, rest[len(Weights._fields) :], grads[0])
        return None, None, None, d_projected, *d_weights


def backward(
    sizes: Sizes, weights: Weights, inputs: Inputs, states: list[Tensor], d_y_BLI: Tensor
) -> tuple[Tensor, list[Tensor | None]]:
    """Gradients of `projected` (B, L, E) and of the weights, in their order."""
    batch, length, _ = inputs.projected_BLE.shape
    dtype, window = weights.norm_I.dtype, weights.conv_WC.shape[0] - 1
    raw_BLH = inputs.projected_BLE[..., -sizes.heads :]
    dt_BLH = time_steps(raw_BLH, weights, sizes, inputs.token_BL)
    sums, buffer = Sums(weights), Workspace(weights.norm_I)
    d_dt_BLH = torch.empty_like(dt_BLH)
    d_z_BLI = torch.empty_like(inputs.projected_BLE[..., : sizes.inner], dtype=dtype)
    d_raw_BLC = raw_BLH.new_zeros(batch, length, weights.conv_WC.shape[1], dtype=dtype)
    d_state = torch.empty(0)
    for index, place in reversed(list(enumerate(places(batch, length, sizes.chunk, sizes.segment)))):
        rows, start, end, _ = place
        if end == length:
            d_state = torch.zeros_like(states[index])
        segment = inputs.segment(sizes, weights, buffer, place, dt_BLH, states[index])
        step = SegmentBackward(segment, d_y_BLI[rows, start:end].to(dtype), d_state, sums)
        d_state = step.d_state_RGNX
        d_dt_BLH[rows, start:end] = step.d_dt_MQH.view(-1, end - start, sizes.heads)
        d_z_BLI[rows, start:end] = step.d_z_RTI
        convolve_backward(segment, step.d_u_RTC, d_raw_BLC[rows, max(start - window, 0) : end], sums)
    if inputs.token_BL is not None:
        d_raw_BLC *= inputs.token_BL[..., None]
    d_time_BLH = _time_steps_backward(raw_BLH, d_dt_BLH, weights, sizes, inputs.token_BL)
    d_projected = torch.cat([d_z_BLI, d_raw_BLC, d_time_BLH], -1).to(inputs.projected_BLE.dtype)
    return d_projected, sums.gradients(d_time_BLH)


def _time_steps_backward(
    raw_BLH: Tensor, d_dt_BLH: Tensor, weights: Weights, sizes: Sizes, token_BL: Tensor | None
) -> Tensor:
    before_BLH = raw_BLH.to(weights.dt_bias_H.dtype) + weights.dt_bias_H
    d_BLH = d_dt_BLH * before_BLH.sigmoid()
    low, high = sizes.dt_limit
    if sizes.dt_limit != (0.0, float("inf")):
        dt_BLH = torch.nn.functional.softplus(before_BLH)
        d_BLH = d_BLH * ((dt_BLH >= low) & (dt_BLH <= high))
    return d_BLH if token_BL is None else d_BLH * token_BL[..., None]


class Sums:
    """Gradients of the weights, added up over segments."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.conv_WC = torch.zeros_like(weights.conv_WC)
        self.bias_C = torch.zeros_like(weights.conv_WC[0])
        self.A_H, self.D_H = torch.zeros_like(weights.A_log_H), torch.zeros_like(weights.D_H)
        self.norm_I = torch.zeros_like(weights.norm_I)

    def gradients(self, d_time_BLH: Tensor) -> list[Tensor | None]:
        """In the order of `Weights`."""
        bias = None if self.weights.conv_bias_C is None else self.bias_C
        d_A_log_H = self.A_H * -self.weights.A_log_H.exp()
        return [self.conv_WC, bias, d_time_BLH.sum((0, 1)), d_A_log_H, self.D_H, self.norm_I]


class SegmentBackward:
    """Backwards through one segment; `d_state_RGNX` comes from the segment behind it and goes to the one before."""

    def __init__(self, segment: Segment, d_out_RTI: Tensor, d_state_RGNX: Tensor, sums: Sums) -> None:
        self.segment, self.buffer, self.sums, self.d_state_RGNX = segment, segment.buffer, sums, d_state_RGNX
        d_y_MQHP = self._gate(d_out_RTI)
        sums.D_H += torch.mul(d_y_MQHP, segment.x_MQHP, out=self._like("product", d_y_MQHP)).sum((0, 1, 3))
        self._through(d_y_MQHP)
        self._inside(d_y_MQHP)
        self._time_steps()
        self._join(d_y_MQHP)

    def _like(self, name: str, tensor: Tensor) -> Tensor:
        return self.buffer(name, *tensor.shape)

    def _gate(self, d_out_RTI: Tensor) -> Tensor:
        s, shape = self.segment, (*d_out_RTI.shape[:2], self.segment.sizes.groups, -1)
        product = torch.mul(d_out_RTI, s.normed_RTI, out=self._like("product", d_out_RTI))
        self.sums.norm_I += product.sum((0, 1))
        along_RTG1 = product.mul_(s.weights.norm_I).view(shape).mean(-1, keepdim=True)
        d_gated_RTI = torch.mul(d_out_RTI, s.weights.norm_I, out=self._like("d_gated", d_out_RTI))
        d_gated_RTI.view(shape).addcmul_(s.normed_RTI.view(shape), along_RTG1, value=-1).mul_(s.scale_RTG1)
        torch.mul(d_gated_RTI, s.y_RTI, out=product)
        self.d_z_RTI = silu_backward(product, s.z_RTI, grad_input=self._like("d_z", d_out_RTI))
        return torch.mul(d_gated_RTI, s.gate_RTI, out=self._like("d_y", d_out_RTI)).view(s.shape_MQHP)

    def _through(self, d_y_MQHP: Tensor) -> None:
        """Backwards along the chunks: what was read from states, and what was added to them."""
        s = self.segment
        groups, chunks = s.sizes.groups, s.chunks
        product, by_group = self._like("product", d_y_MQHP), (*s.shape_MQGX[:3], -1, s.sizes.head_dim)
        carried = s.carried_GMQX.movedim(0, 2).unflatten(-1, by_group[3:])
        torch.mul(d_y_MQHP.view(by_group), carried, out=product.view(by_group))
        d_from_start_MQH = product.sum(-1)
        d_carried_MQGX = torch.mul(d_y_MQHP, s.from_start_MQH[..., None], out=product).view(s.shape_MQGX)
        self.d_C_GMQN, self.d_B_GMQN = self._like("d_C", s.C_GMQN), self._like("d_B", s.B_GMQN)
        d_read_GMNX = self._like("d_read", s.before_GMNX)
        for g in range(groups):
            torch.bmm(d_carried_MQGX[:, :, g], s.before_GMNX[g].mT, out=self.d_C_GMQN[g])
            torch.bmm(s.C_GMQN[g].mT, d_carried_MQGX[:, :, g], out=d_read_GMNX[g])
        d_all_MH, after_GMNX = self._states(d_read_GMNX.unflatten(1, (-1, chunks)))
        d_scaled_GMQX = torch.matmul(s.B_GMQN, after_GMNX, out=self._like("d_scaled", s.carried_GMQX))
        for g in range(groups):
            torch.bmm(s.scaled_MQGX[:, :, g], after_GMNX[g].mT, out=self.d_B_GMQN[g])
        d_scaled = d_scaled_GMQX.movedim(0, 2).unflatten(-1, by_group[3:])
        torch.mul(d_scaled, s.x_MQHP.unflatten(2, by_group[2:4]), out=product.view(by_group))
        d_to_end_MQH = product.sum(-1).mul_(s.dt_MQH)
        self.d_xdt_MQHP = self._like("d_xdt", d_y_MQHP)
        torch.mul(d_scaled, s.to_end_MQH.view(by_group[:4])[..., None], out=self.d_xdt_MQHP.view(by_group))
        # The logarithms of the decays: to_end falls, from_start rises with its column's.
        d_ends_MQH = d_to_end_MQH * s.to_end_MQH
        self.d_log_MQH = d_from_start_MQH.mul_(s.from_start_MQH).sub_(d_ends_MQH)
        self.d_log_MQH[:, -1] += d_ends_MQH.sum(1).addcmul_(d_all_MH, s.all_MH)

    def _states(self, d_read_GRcNX: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of each chunk's whole decay, and of the states after each chunk."""
        s = self.segment
        after_GRcNX = self._like("after", d_read_GRcNX)
        last = d_read_GRcNX.shape[2] - 1
        after_GRcNX[:, :, last] = self.d_state_RGNX.transpose(0, 1)
        d_state_GRNX = after_GRcNX[:, :, last]
        for chunk in range(last, -1, -1):
            place = after_GRcNX[:, :, chunk - 1] if chunk else None
            d_state_GRNX = torch.addcmul(d_read_GRcNX[:, :, chunk], s.all_GRc1X[:, :, chunk], d_state_GRNX, out=place)
        self.d_state_RGNX = d_state_GRNX.transpose(0, 1)
        after_GMNX = after_GRcNX.flatten(1, 2)
        product = torch.mul(after_GMNX, s.before_GMNX, out=self._like("d_read", s.before_GMNX))
        by_head_GMH = product.sum(2).unflatten(-1, (-1, s.sizes.head_dim)).sum(-1)
        return by_head_GMH.transpose(0, 1).flatten(1), after_GMNX

    def _inside(self, d_y_MQHP: Tensor) -> None:
        s, (chunks, size, heads, width) = self.segment, self.segment.shape_MQHP
        d_inside = self.buffer("read", chunks, heads, size, width).copy_(d_y_MQHP.transpose(1, 2)).flatten(0, 1)
        d_xdt = self.buffer("d_xdt_by_head", chunks * heads, size, width)
        torch.bmm(s.weight_MHQQ.flatten(0, 1).mT, d_inside, out=d_xdt)
        self.d_xdt_MQHP += d_xdt.view(chunks, heads, size, width).transpose(1, 2)
        d_weight_MHQQ = self._like("d_weight", s.weight_MHQQ)
        torch.bmm(d_inside, s.xdt_MHQP.flatten(0, 1).mT, out=d_weight_MHQQ.flatten(0, 1))
        d_decay_MHQQ = s.weight_MHQQ.mul_(d_weight_MHQQ)
        self.d_log_MQH += (d_decay_MHQQ.sum(3) - d_decay_MHQQ.sum(2)).transpose(1, 2)
        by_group = (chunks, s.sizes.groups, -1, size, size)
        d_CB_GMQQ = d_weight_MHQQ.mul_(s.decay_MHQQ).view(by_group).sum(2).tril_().transpose(0, 1).contiguous()
        if s.documents is not None:
            d_CB_GMQQ *= s.documents.same_MQQ
        self.d_C_GMQN += d_CB_GMQQ @ s.B_GMQN
        self.d_B_GMQN += d_CB_GMQQ.mT @ s.C_GMQN

    def _time_steps(self) -> None:
        """Each logarithm is the sum of dt · A from the chunk's start on; dt also scales x."""
        s = self.segment
        d_decay_MQH = self.d_log_MQH.flip(1).cumsum(1).flip(1)
        self.sums.A_H += (d_decay_MQH * s.dt_MQH).sum((0, 1))
        d_xdt_x = torch.mul(self.d_xdt_MQHP, s.x_MQHP, out=self._like("product", s.x_MQHP))
        self.d_dt_MQH = d_xdt_x.sum(-1).addcmul_(d_decay_MQH, s.A_H)

    def _join(self, d_y_MQHP: Tensor) -> None:
        """x, B and C side by side again, and backwards through their SiLU."""
        s = self.segment
        d_act_RTC = self._like("act", s.u_RTC)
        d_act_MQC = d_act_RTC.view(*s.shape_MQHP[:2], -1)
        inner, between = s.sizes.inner, s.sizes.groups * s.sizes.state
        d_x = torch.mul(
            self.d_xdt_MQHP, s.dt_MQH[..., None], out=d_act_MQC[..., :inner].unflatten(-1, s.shape_MQHP[2:])
        )
        d_x.addcmul_(d_y_MQHP, s.weights.D_H[:, None])
        for first, part in ((inner, self.d_B_GMQN), (inner + between, self.d_C_GMQN)):
            place = d_act_MQC[..., first : first + between].unflatten(-1, (s.sizes.groups, -1))
            place.copy_(part.movedim(0, 2))
        self.d_u_RTC = silu_backward(d_act_RTC, s.u_RTC, grad_input=d_act_RTC)


def convolve_backward(segment: Segment, d_u_RTC: Tensor, d_raw_RKC: Tensor, sums: Sums) -> None:
    """Adds to the gradient of the convolution's inputs, a view of the whole batch's, and to that of its weights."""
    width = segment.weights.conv_WC.shape[0]
    sums.bias_C += d_u_RTC.sum((0, 1))
    for lag in range(width):
        to, earlier = segment.lagged(lag)
        d_u = d_u_RTC[:, to]
        if segment.documents is not None and lag:
            d_u = d_u * segment.documents.same_RT1[lag][:, to]
        d_raw_RKC[:, earlier].addcmul_(d_u, segment.weights.conv_WC[width - 1 - lag])
        product = segment.buffer("u", *d_u.shape)
        sums.conv_WC[width - 1 - lag] += torch.mul(d_u, segment.raw_RKC[:, earlier], out=product).sum((0, 1))
