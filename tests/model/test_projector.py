"""The projector by its formula."""

from __future__ import annotations

import math

import torch

from tests.model.twin import tiny


def test_equals_the_formula():
    projector = tiny().projector.requires_grad_(False)
    x = torch.randn(2, 1, 64, dtype=torch.float64)
    centred = x - x.mean(-1, keepdim=True)
    normed = (
        centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-6) * projector.norm.weight + projector.norm.bias
    )
    inner = normed @ projector.fc1.weight.T + projector.fc1.bias
    gelu = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    got = projector(x)
    assert got.shape == (2, 1, 8)
    torch.testing.assert_close(got, gelu @ projector.fc2.weight.T + projector.fc2.bias)
