"""What the columns of a batch hold: tokens or padding, of which document, and what came before them.

B batch, L new columns, K all columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cosmos_reason.errors import UserError
from cosmos_reason.model.cache import HybridCache


@dataclass(frozen=True)
class Columns:
    """Handed to every mixer. None stands for the common case, which then costs nothing."""

    token_BL: Tensor | None = None  # bool, True on tokens; None: every column is one
    document_BL: Tensor | None = None  # int; None: each row is one document
    look_B1LK: Tensor | None = None  # bool, where attention may look; None: at everything up to itself
    seen: int = 0  # columns in the cache before these


def look_mask(valid_BK: Tensor, length: int) -> Tensor:
    """(B, 1, L, K) bool, True where a query may look: earlier valid columns and its own.

    A padding query sees at least itself, so that no row of the softmax is empty.
    ```
    valid 0 1 1   query 0: 1 . .
                  query 1: . 1 .
                  query 2: . 1 1
    ```
    """
    columns = valid_BK.shape[1]
    at_L = torch.arange(columns - length, columns, device=valid_BK.device)[:, None]
    at_K = torch.arange(columns, device=valid_BK.device)[None, :]
    return (((at_K < at_L) & valid_BK[:, None, :]) | (at_K == at_L))[:, None]


def describe(
    shape: torch.Size, mask_BK: Tensor | None, cache: HybridCache | None, document_BL: Tensor | None
) -> Columns:
    """Columns of a pass over (B, L, …) embeddings; the cache takes note of them.

    `mask_BK` covers the new columns, or cached and new ones; non-zero on tokens. Padding may stand on either side.
    """
    length = shape[1]
    token_BL = None if mask_BK is None else mask_BK[:, -length:].bool()
    if document_BL is not None:
        return _packed(shape, token_BL, cache, document_BL)
    if cache is None:
        token_BL = _needed(token_BL)
        return Columns(token_BL, None, None if token_BL is None else look_mask(token_BL, length))
    cache.advance(shape[0], length, token_BL)
    if token_BL is not None and bool(token_BL.all()):
        token_BL = None
    valid_BK = cache.valid_BK[:, : cache.seen + length] if cache.padded else None
    if valid_BK is not None and length == 1 and token_BL is None:
        return Columns(None, None, valid_BK[:, None, None], cache.seen)
    return Columns(token_BL, None, None if valid_BK is None else look_mask(valid_BK, length), cache.seen)


def _packed(shape: torch.Size, token_BL: Tensor | None, cache: HybridCache | None, document_BL: Tensor) -> Columns:
    if cache is not None:
        raise UserError("seq_idx: packed rows are for training and have no cache; generate from a padded batch")
    if tuple(document_BL.shape) != tuple(shape[:2]):
        raise UserError(f"seq_idx: wanted {tuple(shape[:2])}, one number a column, got {tuple(document_BL.shape)}")
    if bool((document_BL < 0).any()) or bool((document_BL[:, 1:] < document_BL[:, :-1]).any()):
        raise UserError("seq_idx: wanted numbers from 0 that never fall along a row; documents stand one after another")
    valid_BL = token_BL if token_BL is not None else torch.ones_like(document_BL, dtype=torch.bool)
    same_BLL = document_BL[:, :, None] == document_BL[:, None, :]
    return Columns(_needed(token_BL), document_BL, look_mask(valid_BL, shape[1]) & same_BLL[:, None])


def _needed(token_BL: Tensor | None) -> Tensor | None:
    """None where no token can see padding: every mixer is causal, so padding on the right changes no token."""
    if token_BL is None or bool((token_BL[:, 1:] <= token_BL[:, :-1]).all()):
        return None
    return token_BL
