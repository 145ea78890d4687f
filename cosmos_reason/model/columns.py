"""What the columns of a batch hold: tokens or padding, of which document, and what came before them.

B batch, L new columns, K all columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cosmos_reason.errors import UserError
from cosmos_reason.model.cache import HybridCache


@dataclass(frozen=True)
class Columns:
    """Handed to every mixer. None stands for the common case, which then costs nothing."""

    token_BL: Tensor | None = None  # bool, True on tokens; None: every column is one
    document_BL: Tensor | None = None  # int; None: each row is one document
    order_BL: Tensor | None = None  # int, each row's tokens first; None: no padding between them
    look_B1LK: Tensor | None = None  # bool, where attention may look; None: at everything up to itself
    seen: int = 0  # columns in the cache before these

    def in_order(self) -> Columns:
        """The same with each row's tokens first."""
        token_BL, document_BL = (
            None if t is None or self.order_BL is None else t.gather(1, self.order_BL)
            for t in (self.token_BL, self.document_BL)
        )
        return replace(self, token_BL=token_BL, document_BL=document_BL, order_BL=None)


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
    token_BL = _token_columns(shape, mask_BK, 0 if cache is None else cache.seen)
    if document_BL is not None:
        return _packed(shape, token_BL, cache, document_BL)
    if cache is None:
        token_BL = _needed(token_BL)
        look_B1LK = None if token_BL is None else look_mask(token_BL, length)
        return Columns(token_BL, None, _order(token_BL, 0), look_B1LK)
    cache.advance(shape[0], length, token_BL)
    if token_BL is not None and bool(token_BL.all()):
        token_BL = None
    valid_BK = cache.valid_BK[:, : cache.seen + length] if cache.padded else None
    if valid_BK is not None and length == 1 and token_BL is None:
        return Columns(None, None, None, valid_BK[:, None, None], cache.seen)
    look_B1LK = None if valid_BK is None else look_mask(valid_BK, length)
    return Columns(token_BL, None, _order(token_BL, cache.seen), look_B1LK, cache.seen)


def _packed(shape: torch.Size, token_BL: Tensor | None, cache: HybridCache | None, document_BL: Tensor) -> Columns:
    if cache is not None:
        raise UserError("seq_idx: packed rows are for training and have no cache; generate from a padded batch")
    if tuple(document_BL.shape) != tuple(shape[:2]):
        raise UserError(f"seq_idx: wanted {tuple(shape[:2])}, one number a column, got {tuple(document_BL.shape)}")
    if bool((document_BL < 0).any()) or bool((document_BL[:, 1:] < document_BL[:, :-1]).any()):
        raise UserError("seq_idx: wanted numbers from 0 that never fall along a row; documents stand one after another")
    valid_BL = token_BL if token_BL is not None else torch.ones_like(document_BL, dtype=torch.bool)
    same_BLL = document_BL[:, :, None] == document_BL[:, None, :]
    token_BL = _needed(token_BL)
    look_B1LK = look_mask(valid_BL, shape[1]) & same_BLL[:, None]
    return Columns(token_BL, document_BL, _order(token_BL, 0), look_B1LK)


def _token_columns(shape: torch.Size, mask_BK: Tensor | None, seen: int) -> Tensor | None:
    rows, length = shape[:2]
    if not length:
        raise UserError("wanted at least one column, got an empty piece; leave it out")
    if mask_BK is None:
        return None
    if mask_BK.ndim != 2 or mask_BK.shape[0] != rows or mask_BK.shape[1] not in (length, seen + length):
        wanted = f"({rows}, {length})" + (f" or ({rows}, {seen + length})" if seen else "")
        raise UserError(f"attention_mask: wanted {wanted}, non-zero on tokens, got {tuple(mask_BK.shape)}")
    return mask_BK[:, -length:].bool()


def _order(token_BL: Tensor | None, seen: int) -> Tensor | None:
    """None where padding stands before the first token of a row or behind its last, which needs no moving."""
    if token_BL is None:
        return None
    begins_BL = token_BL[:, 1:] & ~token_BL[:, :-1]
    before_B = token_BL[:, 0].int() if not seen else 1  # tokens in the cache, too, are followed by padding
    if not bool((begins_BL.sum(1) + before_B > 1).any()):
        return None
    return (~token_BL).int().argsort(dim=1, stable=True)


def _needed(token_BL: Tensor | None) -> Tensor | None:
    """None where no token can see padding: every mixer is causal, so padding on the right changes no token."""
    if token_BL is None or bool((token_BL[:, 1:] <= token_BL[:, :-1]).all()):
        return None
    return token_BL
