"""The selective scan of Mamba-2: h_t = exp(dt_t A) h_{t−1} + dt_t x_t ⊗ B_t and y_t = C_t h_t (arXiv 2405.21060).

Sequences go through it in chunks (`chunked_scan`), single tokens by one step (`single_step`); both take the same dt.

B batch, L tokens, H heads, P head dim, G groups, R heads a group, N state size, c chunks, Q chunk length.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def chunked_scan(
    x_BLHP: Tensor,
    dt_BLH: Tensor,
    A_H: Tensor,
    B_BLGN: Tensor,
    C_BLGN: Tensor,
    chunk: int,
    state_BHPN: Tensor | None,
    document_BL: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The scan over whole sequences: y (B, L, H, P) and the state after the last column.

    Columns with dt = 0 neither decay nor change the state. The state starts at zero with every document. The result
    does not depend on `chunk`: chunks are made equally long, at most `chunk` each.
    """
    (length, _, width), groups = x_BLHP.shape[1:], B_BLGN.shape[2]
    count = max(1, math.ceil(length / chunk))
    size = math.ceil(length / count)
    if missing := count * size - length:
        x_BLHP, B_BLGN, C_BLGN = (F.pad(t, (0, 0, 0, 0, 0, missing)) for t in (x_BLHP, B_BLGN, C_BLGN))
        dt_BLH = F.pad(dt_BLH, (0, 0, 0, missing))
    x_BcQHP, dt_BcQH = (t.unflatten(1, (count, size)) for t in (x_BLHP, dt_BLH))
    B_BcGQN, C_BcGQN = (t.unflatten(1, (count, size)).transpose(2, 3) for t in (B_BLGN, C_BLGN))
    log_BcQH = (dt_BcQH * A_H).cumsum(2)  # logarithm of the decay since the start of the chunk
    borders = None if document_BL is None else _Borders(document_BL, missing, size)

    # Inside a chunk: column q reads x of column k ≤ q with weight (C_q · B_k) exp(log_q − log_k) dt_k.
    log_BcHQ, dt_BcHQ = log_BcQH.transpose(2, 3), dt_BcQH.transpose(2, 3)
    hidden_QQ = torch.ones(size, size, dtype=torch.bool, device=x_BLHP.device).triu(1)
    if borders is not None:
        hidden_QQ = hidden_QQ | borders.other_Bc1QQ
    between_BcHQQ = (log_BcHQ[..., :, None] - log_BcHQ[..., None, :]).masked_fill(hidden_QQ, -math.inf)
    read_BcHQQ = (between_BcHQQ.exp() * dt_BcHQ[..., None, :]).unflatten(2, (groups, -1))
    weight_BcHQQ = (read_BcHQQ * (C_BcGQN @ B_BcGQN.mT)[:, :, :, None]).flatten(2, 3)
    inside_BcQHP = (weight_BcHQQ @ x_BcQHP.transpose(2, 3)).transpose(2, 3)

    # Between chunks: what each adds to the state, the states before each, and what is read from those. Heads of a
    # group share one product with its B or C.
    to_end_BcQH = (log_BcQH[:, :, -1:] - log_BcQH).exp() * dt_BcQH
    from_start_BcQH, through_BcH = log_BcQH.exp(), log_BcQH[:, :, -1].exp()
    if borders is not None:
        to_end_BcQH = to_end_BcQH * borders.of_last_BcQ1
        from_start_BcQH = from_start_BcQH * borders.of_state_BcQ1
        through_BcH = through_BcH * borders.through_Bc1
    scaled = (x_BcQHP * to_end_BcQH[..., None]).unflatten(3, (groups, -1)).transpose(2, 3).flatten(4)
    added = scaled.mT @ B_BcGQN  # B c G R·P N
    decay = through_BcH.repeat_interleave(width, dim=2).unflatten(2, (groups, -1))[..., None]
    state = torch.zeros_like(added[:, 0])
    if state_BHPN is not None:
        state = state_BHPN.flatten(1, 2).unflatten(1, (groups, -1))
    before = []
    for index in range(count):
        before.append(state)
        state = torch.addcmul(added[:, index], decay[:, index], state)
    carried = (C_BcGQN @ torch.stack(before, 1).mT).transpose(2, 3).flatten(3).unflatten(3, (-1, width))
    y_BcQHP = torch.addcmul(inside_BcQHP, carried, from_start_BcQH[..., None])
    return y_BcQHP.flatten(1, 2)[:, :length], state.flatten(1, 2).unflatten(1, (-1, width))


class _Borders:
    """Where documents of packed rows meet, as factors of the scan."""

    def __init__(self, document_BL: Tensor, missing: int, size: int) -> None:
        filled_BL = torch.cat([document_BL, document_BL[:, -1:].expand(-1, missing)], dim=1)
        document_BcQ = filled_BL.unflatten(1, (-1, size))
        last_Bc = document_BcQ[:, :, -1]
        before_Bc = F.pad(last_Bc, (1, -1), value=-1)  # document of the state that a chunk starts from
        self.other_Bc1QQ = (document_BcQ[..., :, None] != document_BcQ[..., None, :])[:, :, None]
        self.of_last_BcQ1 = (document_BcQ == last_Bc[..., None])[..., None]
        self.of_state_BcQ1 = (document_BcQ == before_Bc[..., None])[..., None]
        self.through_Bc1 = (last_Bc == before_Bc)[..., None]


def single_step(x_BHP: Tensor, dt_BH: Tensor, A_H: Tensor, B_BGN: Tensor, C_BGN: Tensor, state_BHPN: Tensor) -> Tensor:
    """The scan for one token: y (B, H, P); the state is updated in place."""
    groups = B_BGN.shape[1]
    state = state_BHPN.unflatten(1, (groups, -1))
    x_BGRP = (x_BHP * dt_BH[..., None]).unflatten(1, (groups, -1))
    state.mul_((dt_BH * A_H).exp().unflatten(1, (groups, -1))[..., None, None])
    state.add_(x_BGRP[..., None] * B_BGN[:, :, None, None, :])
    return (state @ C_BGN[:, :, None, :, None]).squeeze(-1).flatten(1, 2)
