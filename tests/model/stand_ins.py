"""Stand-ins for `mamba_ssm` and `causal_conv1d`: loops over columns with their signatures, and wrong ones.

They refuse what the packages refuse: layouts, dtypes, documents together with a window.
"""

from __future__ import annotations

import inspect
import math

import torch
from torch.nn import functional as F

from cosmos_reason.model.kernels import Kernels


def full(x):
    return x if x.dtype == torch.float64 else x.float()


def scan(
    x,
    dt,
    A,
    B,
    C,
    chunk_size,
    D=None,
    z=None,
    dt_bias=None,
    initial_states=None,
    seq_idx=None,
    dt_softplus=False,
    dt_limit=(0.0, math.inf),
    return_final_states=False,
):
    """Stands in for mamba_ssm.ops.triton.ssd_combined.mamba_chunk_scan_combined."""
    (batch, length, heads, width), (groups, size) = x.shape, B.shape[2:]
    assert (
        dt.shape == (batch, length, heads)
        and A.shape == (heads,)
        and B.shape == C.shape == (batch, length, *B.shape[2:])
    )
    assert initial_states is None or initial_states.shape == (batch, heads, width, size)
    assert seq_idx is None or (seq_idx.shape == (batch, length) and seq_idx.dtype == torch.int32)
    dt = full(dt) if dt_bias is None else full(dt) + dt_bias
    dt = (F.softplus(dt) if dt_softplus else dt).clamp(*dt_limit)
    B, C = (full(t).repeat_interleave(heads // groups, 2) for t in (B, C))
    state = full(x).new_zeros(batch, heads, width, size) if initial_states is None else full(initial_states)
    columns = []
    for t in range(length):
        if seq_idx is not None and t:
            state = state * (seq_idx[:, t] == seq_idx[:, t - 1])[:, None, None, None]
        added = (dt[:, t, :, None] * full(x[:, t]))[..., None] * B[:, t, :, None]
        state = state * torch.exp(dt[:, t] * A)[..., None, None] + added
        columns.append((state * C[:, t, :, None]).sum(-1))
    y = torch.stack(columns, 1)
    y = y if D is None else y + full(x) * D[:, None]
    y = (y if z is None else y * F.silu(full(z))).to(x.dtype)
    return (y, state) if return_final_states else y


def convolve(x, weight, bias=None, seq_idx=None, initial_states=None, activation=None):
    """Stands in for causal_conv1d.causal_conv1d_fn."""
    (batch, channels, length), width = x.shape, weight.shape[1]
    assert x.stride(1) == 1 and channels % 8 == 0 and x.stride(0) % 8 == 0 and x.stride(2) % 8 == 0
    assert weight.shape == (channels, width) and 2 <= width <= 4 and (bias is None or bias.dtype == weight.dtype)
    assert seq_idx is None or (seq_idx.dtype == torch.int32 and seq_idx.is_contiguous() and initial_states is None)
    before = x.new_zeros(batch, channels, width - 1) if initial_states is None else initial_states
    assert before.shape == (batch, channels, width - 1) and before.dtype == x.dtype
    assert initial_states is None or initial_states.stride(1) == 1
    columns = []
    for t in range(length):
        u = torch.zeros(batch, channels, dtype=full(x).dtype) if bias is None else bias.expand(batch, -1)
        for lag in range(width):
            earlier = x[..., t - lag] if t >= lag else before[..., width - 1 + t - lag]
            if seq_idx is not None and t >= lag:
                earlier = earlier * (seq_idx[:, t] == seq_idx[:, t - lag])[:, None]
            u = u + full(earlier) * weight[:, width - 1 - lag]
        columns.append(F.silu(u) if activation == "silu" else u)
    return torch.stack(columns, -1).to(x.dtype)


GOOD = Kernels(scan, convolve)


class Round(torch.autograd.Function):
    """To so many significant bits, forwards and backwards, as tensor cores take the factors of a product."""

    @staticmethod
    def forward(ctx, x, bits):
        ctx.bits = bits
        fraction, exponent = torch.frexp(x)
        return torch.ldexp((fraction * 2**bits).round() / 2**bits, exponent)

    @staticmethod
    def backward(ctx, *grads):
        return Round.apply(grads[0], ctx.bits), None


def rounding_scan(x, dt, A, B, C, chunk_size, **rest):
    """Every factor rounded as on a card, and what goes from chunk to chunk too."""
    bits, pieces, y = 8 if x.dtype == torch.bfloat16 else 11, [], None
    state, documents = rest.pop("initial_states"), rest.pop("seq_idx")
    step = chunk_size if documents is None else x.shape[1]
    for first in range(0, x.shape[1], step):
        part = slice(first, first + step)
        factors = [Round.apply(full(t[:, part]), bits) for t in (x, B, C)]
        document = None if documents is None else documents[:, part]
        rounded_dt = Round.apply(dt[:, part], bits)
        y, state = scan(
            factors[0], rounded_dt, A, *factors[1:], chunk_size, initial_states=state, seq_idx=document, **rest
        )
        pieces.append(y)
        state = state if part.stop >= x.shape[1] else Round.apply(state, bits)
    return torch.cat(pieces, 1).to(x.dtype), state


def without(function, **fixed):
    """The function with some arguments replaced, however they are given."""

    def changed(*args, **named):
        given = inspect.signature(function).bind(*args, **named)
        given.arguments.update(fixed)
        return function(*given.args, **given.kwargs)

    return changed


def zeros(x, *args, **named):
    y, state = scan(x, *args, **named)
    return y * 0, state * 0


def not_a_number(*args, **named):
    y, state = scan(*args, **named)
    return y, torch.where(torch.arange(state.shape[1])[:, None, None] == 1, torch.nan, state)


def one_column_wrong(*args, **named):
    y, state = scan(*args, **named)
    return torch.cat([y[:, :77], y[:, 77:78] * 1.5, y[:, 78:]], 1), state


def heads_in_turn(x, dt, A, B, C, *args, **named):
    """Head h with group h modulo G."""
    repeats = (1, 1, x.shape[2] // B.shape[2], 1)
    return scan(x, dt, A, B.repeat(repeats), C.repeat(repeats), *args, **named)


def raises(*args, **named):
    raise RuntimeError("no kernel image is available\nfor this device")


def no_gradient_of_B(x, dt, A, B, *args, **named):
    return scan(x, dt, A, B.detach(), *args, **named)
