"""Norms of the decoder: RMSNorm before every mixer, and the gated one, per group, inside Mamba-2. Both compute in fp32.

B batch, L tokens, D width, I Mamba inner width.
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
    """RMSNorm(y · silu(z)), the gate first, each of the groups of inner width / groups channels by itself."""

    def __init__(self, width: int, groups: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.groups, self.eps = groups, eps

    def forward(self, y_BLI: Tensor, z_BLI: Tensor) -> Tensor:
        """(…, I) and (…, I) -> (…, I) in the dtype of z."""
        gated_BLI = at_least_fp32(y_BLI) * F.silu(at_least_fp32(z_BLI))
        grouped = gated_BLI.unflatten(-1, (self.groups, -1))
        normed_BLI = F.rms_norm(grouped, (grouped.shape[-1],), eps=self.eps).flatten(-2)
        return (normed_BLI * self.weight).to(z_BLI.dtype)
