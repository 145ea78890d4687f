"""The mixer's core by the CUDA kernels of `mamba_ssm` and `causal_conv1d`: used where they load and agree with ours.

available -> Kernels.forward, in the place of `core.forward` and, for training, of `Core.apply`. Kernels may be wrong in
silence on a machine that their authors never had, so each device first runs a small random case of the model's own
sizes (Triton compiles a kernel per size) on both paths. Where they disagree or raise, one warning says by how much, and
our path stays in use. Both packages are needed; without them nothing is imported and nothing is said.

This file has run only against stand-ins for the two packages, written from their published signatures and layout rules
and run on a processor (`tests/model/test_kernels.py`); it has not met the packages themselves or a graphics card.

The letters are those of `core.py`; V = W − 1 columns of the window, E columns of in_proj.
"""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from cosmos_reason.model import core
from cosmos_reason.model.core_backward import Core

PACKAGES = ("mamba_ssm", "causal_conv1d")
DEVICE = "cuda"  # also the name of AMD's cards in torch
CHUNK = 128  # released Nemotron-H runs these kernels so; ours are shorter for the sake of a processor's cache
WIDTH = 4  # of the convolution, of every released model; kernels of other widths are other code, which no check runs
OFFSETS = 2**31  # the scan counts elements in 32 bits and wraps around in silence (state-spaces/mamba#1015)

# Largest size of a difference over the size of what is right. Tensor cores round the factors of every product: of fp32
# to the 11 significant bits of TF32, of bf16 to its 8. A stand-in that rounds so, and the states between chunks too, is
# off by up to 0.004 and 0.012 over a range of sizes; one wrong column of the check's 330 is off by 0.05.
TOLERANCE = {torch.float32: 0.01, torch.bfloat16: 0.03}

# The kinds that packages, their compiler and its C compiler raise; `_faults` adds the one that Triton brings along.
FAULTS = (
    ImportError,
    RuntimeError,
    AssertionError,
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    OSError,
    subprocess.SubprocessError,
)


@dataclass(frozen=True)
class Kernels:
    """The two functions, behind the interface of our own core; differentiable by their own derivatives."""

    scan: Callable[..., Any]  # mamba_ssm's mamba_chunk_scan_combined
    convolve: Callable[..., Any]  # causal_conv1d's causal_conv1d_fn

    def forward(self, sizes: core.Sizes, weights: core.Weights, inputs: core.Inputs) -> tuple[Tensor, Tensor]:
        """As `core.forward`: y (B, L, I) and the state after the last column (B, G, N, X), which has no derivative."""
        s, by_group = sizes, (sizes.groups, sizes.state)
        channels = weights.conv_WC.shape[1]
        z_BLI, raw_BLC, dt_BLH = inputs.projected_BLE.split([s.inner, channels, s.heads], -1)
        if inputs.token_BL is not None:
            raw_BLC = raw_BLC * inputs.token_BL[..., None]
        document_BL = None if inputs.document_BL is None else inputs.document_BL.to(torch.int32).contiguous()
        act_BLC = self._convolve(weights, raw_BLC, inputs.window_BWC, document_BL)
        x_BLI, B_BLS, C_BLS = act_BLC.split([s.inner, s.groups * s.state, s.groups * s.state], -1)
        x_BLHP = x_BLI.unflatten(-1, (s.heads, s.head_dim))
        # dt comes limited and 0 on padding: limits of the scan would raise that 0 to the lower one.
        y_BLHP, last_BHPN = self.scan(
            x_BLHP,
            core.time_steps(dt_BLH, weights, s, inputs.token_BL),
            -weights.A_log_H.exp(),
            B_BLS.unflatten(-1, by_group),
            C_BLS.unflatten(-1, by_group),
            CHUNK,
            initial_states=None if inputs.state_BGNX is None else _by_head(s, inputs.state_BGNX),
            seq_idx=document_BL,
            dt_softplus=False,
            return_final_states=True,
        )
        dtype = weights.norm_I.dtype
        y_BLHP = torch.addcmul(y_BLHP.to(dtype), x_BLHP.to(dtype), weights.D_H[:, None])
        y_BLI = _gate(s, weights.norm_I, y_BLHP.flatten(2), z_BLI.to(dtype))
        return y_BLI.to(z_BLI.dtype), _by_group(s, last_BHPN.detach().to(dtype))

    def _convolve(
        self, weights: core.Weights, raw_BLC: Tensor, window_BVC: Tensor | None, document_BL: Tensor | None
    ) -> Tensor:
        """Convolution and SiLU. Documents and windows are taken with channels innermost only, in the input's dtype."""
        if window_BVC is not None:
            window_BVC = window_BVC.to(raw_BLC.dtype).contiguous()
        act_BCL = self.convolve(
            raw_BLC.contiguous().transpose(1, 2),
            weights.conv_WC.T.contiguous(),
            weights.conv_bias_C,
            seq_idx=document_BL,
            initial_states=None if window_BVC is None else window_BVC.transpose(1, 2),
            activation="silu",
        )
        return act_BCL.transpose(1, 2)


def _by_head(s: core.Sizes, state_BGNX: Tensor) -> Tensor:
    """(B, G, N, X) -> (B, H, P, N)."""
    return state_BGNX.unflatten(-1, (-1, s.head_dim)).permute(0, 1, 3, 4, 2).flatten(1, 2).contiguous()


def _by_group(s: core.Sizes, state_BHPN: Tensor) -> Tensor:
    """(B, H, P, N) -> (B, G, N, X)."""
    return state_BHPN.unflatten(1, (s.groups, -1)).flatten(2, 3).mT.contiguous()


def _gate(s: core.Sizes, norm_I: Tensor, y_BLI: Tensor, z_BLI: Tensor) -> Tensor:
    """y · silu(z), then RMSNorm of each group."""
    gated_BLGX = (y_BLI * F.silu(z_BLI)).unflatten(-1, (s.groups, -1))
    return F.rms_norm(gated_BLGX, gated_BLGX.shape[-1:], eps=s.eps).flatten(-2) * norm_I


def chosen(sizes: core.Sizes, weights: core.Weights, inputs: core.Inputs) -> Kernels | None:
    """The kernels, where these tensors are theirs to take; None: ours is to be used."""
    device = inputs.projected_BLE.device
    if device.type != DEVICE or not takes(sizes, weights, inputs):
        return None
    learning = any(tensor is not None and tensor.requires_grad for tensor in (inputs.projected_BLE, *weights))
    return available(device, sizes, gradients=learning and torch.is_grad_enabled())


def takes(sizes: core.Sizes, weights: core.Weights, inputs: core.Inputs) -> bool:
    """Whether the kernels are made for such tensors and were checked with their like; single tokens stay with us."""
    batch, length, columns = inputs.projected_BLE.shape
    width, channels = weights.conv_WC.shape
    if inputs.projected_BLE.dtype not in TOLERANCE or weights.norm_I.dtype != torch.float32:
        return False
    # Of the inputs, of what the derivative keeps by heads, and of the states of all chunks.
    widest = max(columns, sizes.heads * max(sizes.state, CHUNK), sizes.inner * sizes.state // CHUNK)
    if batch * math.ceil(length / CHUNK) * CHUNK * widest >= OFFSETS:
        return False
    return length > 1 and width == WIDTH and channels % 8 == 0  # the convolution loads channels by eights


def available(device: torch.device, sizes: core.Sizes, gradients: bool = False) -> Kernels | None:
    """The kernels, if they load and agree with ours on this device; checked once. `gradients`: for training."""
    return _verified(device, sizes, gradients) if device.type == DEVICE else None


@cache
def _verified(device: torch.device, sizes: core.Sizes, gradients: bool) -> Kernels | None:
    # Derivatives are checked apart: compiling them takes longer than an answer, which needs none.
    if gradients and _verified(device, sizes, False) is None:
        return None
    kernels, fault = None, None
    try:
        kernels = _load()
    except _faults() as error:
        fault = f"they do not load ({_first_line(error)})"
    if kernels is not None:
        fault = disagreement(kernels, device, sizes, gradients)
    if fault is None:
        return kernels
    names, purpose = " and ".join(PACKAGES), "training" if gradients else "any sequence"
    text = f"{names} are not used on {device} for {purpose}: {fault}; our own slower code is used instead"
    warnings.warn(text, RuntimeWarning, stacklevel=2)
    return None


def _load() -> Kernels | None:
    """None where a package is missing; late, because importing them takes seconds and needs a graphics card."""
    if any(find_spec(name) is None for name in PACKAGES):
        return None
    from causal_conv1d import causal_conv1d_fn
    from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined

    return Kernels(mamba_chunk_scan_combined, causal_conv1d_fn)


def _faults() -> tuple[type[Exception], ...]:
    return (*FAULTS, getattr(sys.modules.get("triton"), "TritonError", RuntimeError))


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def disagreement(kernels: Kernels, device: torch.device, sizes: core.Sizes, gradients: bool) -> str | None:
    """What the kernels get wrong, the worst of it, as part of a sentence; None where they agree with ours."""
    worst, text = 1.0, None
    sizes = replace(sizes, eps=1.0)  # or the norm, which is not theirs, would magnify small columns with their rounding
    for dtype, tolerance in TOLERANCE.items():
        for case in _cases(device, sizes, dtype, gradients):
            ours = _ours(sizes, case)  # outside: its failures are not theirs
            try:
                theirs = _results(case, *kernels.forward(sizes, case.weights, case.inputs))
                errors = {name: _error(theirs[name], ours[name]) for name in ours}
            except _faults() as error:
                return f"they raise {_first_line(error)}"
            for name, error_of_it in errors.items():
                if error_of_it / tolerance > worst:
                    worst = error_of_it / tolerance
                    kind = str(dtype).removeprefix("torch.")
                    text = f"their {name} is off by {error_of_it:.2g} of its size in {kind}, {tolerance:g} is allowed"
    return text


class Case(NamedTuple):
    """A small random sequence; with `d_y` the derivatives are compared, too."""

    weights: core.Weights
    inputs: core.Inputs
    d_y_BLI: Tensor | None


def _cases(device: torch.device, sizes: core.Sizes, dtype: torch.dtype, gradients: bool) -> Iterator[Case]:
    """Two rows of a chunk and a part: going on from a state and padded, from the beginning, packed.

    Each is another kernel; derivatives are taken where no state comes in, for training has no cache.
    """
    batch, length = 2, CHUNK + 37
    generator = torch.Generator().manual_seed(0)  # of its own: a check must not change what the model draws
    channels = sizes.inner + 2 * sizes.groups * sizes.state

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device)

    # From heads that keep their first state throughout to heads that forget within a few columns.
    dt_bias_H = torch.linspace(-9.0, 1.0, sizes.heads, device=device)
    A_log_H = torch.linspace(math.log(16.0), 0.0, sizes.heads, device=device)
    weights = core.Weights(
        draw(WIDTH, channels) / 2, draw(channels) / 2, dt_bias_H, A_log_H, draw(sizes.heads), 1 + draw(sizes.inner) / 4
    )
    projected_BLE = draw(batch, length, sizes.inner + channels + sizes.heads).to(dtype)
    token_BL = torch.arange(length, device=device) >= torch.tensor([[0], [5]], device=device)
    if not gradients:
        window_BVC = draw(batch, WIDTH - 1, channels).to(dtype)
        state_BGNX = draw(batch, sizes.groups, sizes.state, sizes.inner // sizes.groups)
        yield Case(weights, core.Inputs(projected_BLE, window_BVC, state_BGNX, token_BL, None), None)
        yield Case(weights, core.Inputs(projected_BLE, None, None, None, None), None)
        return
    # Documents shorter than the window, one that spans the border of the chunk, one that begins on it.
    ends = ([1, 3, 60], [CHUNK, CHUNK + 20])
    document_BL = torch.stack([torch.bucketize(torch.arange(length), torch.tensor(e), right=True) for e in ends])
    for leaf in _leaves(weights, projected_BLE):
        leaf.requires_grad_()
    d_y_BLI = draw(batch, length, sizes.inner).to(dtype)
    for tokens, documents in ((token_BL, None), (None, document_BL.to(device))):
        yield Case(weights, core.Inputs(projected_BLE, None, None, tokens, documents), d_y_BLI)


def _leaves(weights: core.Weights, projected_BLE: Tensor) -> list[Tensor]:
    return [projected_BLE, *(weight for weight in weights if weight is not None)]


def _ours(sizes: core.Sizes, case: Case) -> dict[str, Tensor]:
    inputs = case.inputs
    if case.d_y_BLI is None:
        return _results(case, *core.forward(sizes, case.weights, inputs, None))
    y_BLI = Core.apply(sizes, inputs.token_BL, inputs.document_BL, inputs.projected_BLE, *case.weights)
    return _results(case, y_BLI, None)


def _results(case: Case, y_BLI: Tensor, state_BGNX: Tensor | None) -> dict[str, Tensor]:
    """By name, what is compared."""
    if case.d_y_BLI is None:
        assert state_BGNX is not None, "without derivatives states are compared"
        return {"output": y_BLI, "state": state_BGNX}
    d_projected_BLE, *d_weights = torch.autograd.grad(
        y_BLI, _leaves(case.weights, case.inputs.projected_BLE), case.d_y_BLI
    )
    inner, channels = y_BLI.shape[-1], case.weights.conv_WC.shape[1]
    parts = d_projected_BLE.tensor_split([inner, inner + channels], -1)  # apart, for they differ in size
    names = [f"gradient of {name}" for name in ("z", "xBC", "dt", *core.Weights._fields)]
    return {"output": y_BLI.detach(), **dict(zip(names, [*parts, *d_weights], strict=True))}


def _error(got: Tensor, wanted: Tensor) -> float:
    """Size of the difference over size of what is wanted: one wrong column of 330 still makes 0.05."""
    error = torch.linalg.vector_norm(got.float() - wanted.float()) / torch.linalg.vector_norm(wanted.float())
    return float(error.nan_to_num(nan=math.inf))
