"""Muon for matrices, AdamW for everything else, as one optimiser; encoder and decoder learn by it.

Muon (Keller Jordan et al., 2024) steps along the momentum with its singular values set to about one, so that rare
directions (a colour, a place) move as fast as common ones. On read-outs and notes it needs far fewer steps than
AdamW (docs/log.md). `torch.optim.Muon` multiplies in bfloat16, which CPUs without it emulate ten times slower; here the
iteration runs in the matrix's own precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_QUINTIC = (3.4445, -4.7750, 2.0315)  # steepest at zero; singular values end within 0.7..1.2


def orthogonal(matrix_MN: Tensor, steps: int = 5) -> Tensor:
    """U·Vᵀ of the matrix's singular value decomposition, roughly, by a quintic Newton-Schulz iteration."""
    a, b, c = _QUINTIC
    x = matrix_MN / (matrix_MN.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.mT if tall else x
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Groups with "muon" take orthogonal steps of `lr` · 10 · √max(1, rows / columns); the others AdamW steps of `lr`.

    Decay is decoupled. Momentum 0.95 with Nesterov's look ahead; β 0.9 and 0.95 as in `run.adamw`.
    """

    def __init__(self, groups: list[dict[str, Any]], lr: float) -> None:
        super().__init__(groups, {"lr": lr, "muon": False, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        assert closure is None, "losses are not evaluated again"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                move = self._orthogonal_move if group["muon"] else self._adam_move
                parameter.add_(move(parameter), alpha=-group["lr"])

    def _orthogonal_move(self, parameter: Tensor) -> Tensor:
        state, grad = self.state[parameter], parameter.grad
        assert grad is not None
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].mul_(0.95).add_(grad)
        rows, columns = parameter.shape
        return orthogonal(grad + 0.95 * state["momentum"]) * (10 * max(1.0, rows / columns) ** 0.5)

    def _adam_move(self, parameter: Tensor) -> Tensor:
        state, grad = self.state[parameter], parameter.grad
        assert grad is not None
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["mean"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] += 1
        state["mean"].lerp_(grad, 0.1)
        state["square"].lerp_(grad * grad, 0.05)
        mean, square = state["mean"] / (1 - 0.9 ** state["step"]), state["square"] / (1 - 0.95 ** state["step"])
        return mean / (square.sqrt() + 1e-8)


def muon(model: nn.Module, lr: float, weight_decay: float) -> Muon:
    """Muon over trainable matrices but embeddings, positions and `lm_head`; AdamW, without decay, over the rest."""
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            hidden = parameter.ndim == 2 and not any(part in name for part in ("embed", "lm_head", "position"))
            (matrices if hidden else rest).append(parameter)
    return Muon(
        [{"params": matrices, "muon": True, "weight_decay": weight_decay * 10}, {"params": rest}],
        lr,
    )
