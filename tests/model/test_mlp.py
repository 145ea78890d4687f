"""The squared ReLU layer by hand."""

from __future__ import annotations

import torch

from cosmos_reason.model.mlp import MLP
from tests.model.twin import text_config


def test_by_hand():
    layer = MLP(text_config(hidden_size=2, intermediate_size=3))
    layer.up_proj.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    layer.down_proj.weight.data = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 10.0]])
    # up (2, -3) -> (2, -3, -2) -> squared ReLU (4, 0, 0)
    assert layer(torch.tensor([[[2.0, -3.0]]])).tolist() == [[[4.0, 4.0]]]
    assert {name for name, _ in layer.named_parameters()} == {"up_proj.weight", "down_proj.weight"}
