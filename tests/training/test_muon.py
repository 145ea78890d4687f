"""Muon: orthogonal steps against a singular value decomposition and PyTorch's, Adam steps against PyTorch's."""

import pytest
import torch
from torch import nn

from cosmos_reason.training.muon import Muon, muon, orthogonal


@pytest.mark.parametrize("shape", [(20, 50), (50, 20), (32, 32)])
def test_singular_values_become_about_one(shape):
    torch.manual_seed(0)
    matrix = torch.randn(shape) @ torch.diag(torch.linspace(0.2, 3, shape[1]))
    got = orthogonal(matrix)
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    assert torch.nn.functional.cosine_similarity(got.flatten(), (u @ vh).flatten(), dim=0) > 0.93
    values = torch.linalg.svdvals(got)
    assert values.max() < 1.25 and values.median() > 0.65


def test_a_step_is_that_of_torch():
    torch.manual_seed(0)
    ours, theirs = (nn.Parameter(torch.linspace(-1, 1, 24 * 16).view(24, 16).sin()) for _ in range(2))
    first = Muon([{"params": [ours], "muon": True, "weight_decay": 0.1}], lr=0.002)
    second = torch.optim.Muon([theirs], lr=0.02, weight_decay=0.01, momentum=0.95, nesterov=True)
    for _ in range(3):
        grad = torch.randn(24, 16)
        ours.grad, theirs.grad = grad.clone(), grad.clone()
        first.step()
        second.step()
    # PyTorch averages the momentum (a scale, which falls out) and multiplies in bfloat16
    assert torch.allclose(ours, theirs, atol=2e-3)


def test_other_parameters_take_adam_steps():
    torch.manual_seed(0)
    ours, theirs = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
    first, second = Muon([{"params": [ours]}], 0.01), torch.optim.AdamW([theirs], 0.01, (0.9, 0.95), weight_decay=0.0)
    for _ in range(6):
        grad = torch.randn(5)
        ours.grad, theirs.grad = grad.clone(), grad.clone()
        first.step()
        second.step()
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_matrices_between_embedding_and_head_are_muons():
    class Tiny(nn.Module):
        def __init__(self):
            super().__init__()
            self.embeddings, self.mixer, self.lm_head = nn.Embedding(5, 4), nn.Linear(4, 4), nn.Linear(4, 5)
            self.frozen = nn.Linear(4, 4).requires_grad_(False)

    model = Tiny()
    matrices, rest = muon(model, 0.01, 0.05).param_groups
    assert matrices["muon"] and [id(p) for p in matrices["params"]] == [id(model.mixer.weight)]
    assert len(rest["params"]) == 4 and rest["weight_decay"] == 0.0 and not rest["muon"]
