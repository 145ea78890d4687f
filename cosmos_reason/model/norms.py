"""Norms of the decoder: RMSNorm before every mixer, and the gated one, per group, inside Mamba-2. They compute in fp32.

B batch, L tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def at_least_fp32(x: Tensor) -> Tensor:
    """fp32 for half precisions; fp32 and fp64 stay what they are, so that gradients can be checked in fp64."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


class RMSNorm(nn.Module):
    """x / rms(x) · weight over the last axis."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x_BLD: Tensor) -> Tensor:
        """Same shape and dtype as the input."""
        x = at_least_fp32(x_BLD)
        if torch.is_grad_enabled():
            y_BLD = F.rms_norm(x, (x.shape[-1],), eps=self.eps) * self.weight
        else:
            norm_BL1 = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
            y_BLD = (x * (norm_BL1.square_() / x.shape[-1]).add_(self.eps).rsqrt_()).mul_(self.weight)
        return y_BLD.to(x_BLD.dtype)


class GatedGroupNorm(nn.Module):
    """The weight of RMSNorm(y · silu(z)), each of `groups` parts of the width by itself; computed in `core.py`."""

    def __init__(self, width: int, groups: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.groups, self.eps = groups, eps
