"""RMSNorm by hand, and the precision it computes in (the gated norm is compared with its twin beside Mamba-2)."""

from __future__ import annotations

import pytest
import torch

from cosmos_reason.model.norms import RMSNorm, at_least_fp32


def test_rms_norm_by_hand():
    norm = RMSNorm(2, 0.0)
    norm.weight.data = torch.tensor([1.0, 2.0])
    # rms of (3, 4) is √12.5
    assert norm(torch.tensor([3.0, 4.0])).tolist() == pytest.approx([3 / 12.5**0.5, 8 / 12.5**0.5])


@pytest.mark.parametrize("learning", [True, False])
def test_configured_epsilon_counts(learning):
    with torch.set_grad_enabled(learning):
        got = RMSNorm(4, 0.1)(torch.full((4,), 0.01))
    assert got.tolist() == pytest.approx([0.01 / (1e-4 + 0.1) ** 0.5] * 4)  # with eps 1e-5 it would be near 1


def test_large_half_precision_values_do_not_overflow():
    x = torch.full((4,), 1e30, dtype=torch.bfloat16)
    x[0] = 0
    got = RMSNorm(4, 1e-5)(x * 1e-12)
    assert got.dtype == torch.bfloat16 and torch.isfinite(got).all()
    assert got[1].item() == pytest.approx((4 / 3) ** 0.5, rel=0.01)


def test_precision_is_never_lowered():
    wide = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.float64: torch.float64}
    assert {kind: at_least_fp32(torch.zeros(1, dtype=kind)).dtype for kind in wide} == wide
