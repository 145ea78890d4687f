"""Packed rows: documents side by side in a row equal each document alone, in values, loss and gradients."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from cosmos_reason.errors import UserError
from cosmos_reason.model.cache import HybridCache
from cosmos_reason.model.causal_lm import HybridForCausalLM
from tests.model import twin

TIGHT = {"atol": 1e-9, "rtol": 1e-9}
LENGTHS = [1, 2, 9, 3, 6]  # shorter than the convolution's window, borders inside chunks of 8


def model(**changes) -> HybridForCausalLM:
    torch.manual_seed(0)
    return twin.stirred(HybridForCausalLM(twin.text_config(**changes))).double().eval()


def packed(lengths=LENGTHS) -> torch.Tensor:
    """(1, L), the number of each column's document."""
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[None]


@pytest.mark.parametrize("pattern", ["M-M*-", "*-", "M", "M*M*"])
def test_documents_equal_the_twin_alone(pattern):
    decoder = model(hybrid_override_pattern=pattern).backbone.requires_grad_(False)
    x_BLD = torch.randn(1, sum(LENGTHS), 8, dtype=torch.float64)
    got = decoder(x_BLD, None, None, packed())
    for mine, alone in zip(got[0].split(LENGTHS), x_BLD[0].split(LENGTHS), strict=True):
        torch.testing.assert_close(mine, twin.backbone(decoder, alone), **TIGHT)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_loss_and_gradients_are_those_of_the_documents(checkpointing):
    """Also that no token is learned across a border."""
    lm = model().train()
    lm.backbone._gradient_checkpointing_func = lambda *a: checkpoint(*a, use_reentrant=False)
    ids_BL = torch.randint(40, (1, sum(LENGTHS)))
    gradients = []
    lm.backbone.gradient_checkpointing = checkpointing
    lm(input_ids=ids_BL, labels=ids_BL, seq_idx=packed(), num_items_in_batch=1).loss.backward()
    gradients.append({name: p.grad.clone() for name, p in lm.named_parameters()})
    lm.zero_grad()
    lm.backbone.gradient_checkpointing = False
    parts = [p for p in ids_BL.split(LENGTHS, dim=1) if p.shape[1] > 1]
    sum(lm(input_ids=part, labels=part, num_items_in_batch=1).loss for part in parts).backward()
    gradients.append({name: p.grad.clone() for name, p in lm.named_parameters()})
    torch.testing.assert_close(*gradients, **TIGHT)


def test_rows_of_different_documents_and_padding_on_the_right():
    decoder = model().backbone.requires_grad_(False)
    x_BLD = torch.randn(2, 12, 8, dtype=torch.float64)
    numbers = torch.cat([packed([5, 4, 3]), packed([2, 10])])
    token_BL = torch.ones(2, 12, dtype=torch.long)
    token_BL[0, 10:] = 0  # of the third document one column is left
    got = decoder(x_BLD, token_BL, None, numbers)
    for row, lengths in enumerate(([5, 4, 1], [2, 10])):
        parts = x_BLD[row, : sum(lengths)].split(lengths)
        expected = torch.cat([twin.backbone(decoder, part) for part in parts])
        torch.testing.assert_close(got[row, : sum(lengths)], expected, **TIGHT)


def test_one_document_is_a_plain_row():
    decoder = model().backbone.requires_grad_(False)
    x_BLD = torch.randn(2, 20, 8, dtype=torch.float64)
    got = decoder(x_BLD, None, None, torch.zeros(2, 20, dtype=torch.long))
    torch.testing.assert_close(got, decoder(x_BLD), **TIGHT)


@pytest.mark.parametrize(
    ("seq_idx", "sentence"),
    [
        (torch.tensor([[0, 0, 1]]), r"wanted \(1, 4\), one number a column, got \(1, 3\)"),
        (torch.tensor([[0, 1, 0, 1]]), "numbers from 0 that never fall"),
        (torch.tensor([[-1, 0, 0, 0]]), "numbers from 0 that never fall"),
    ],
)
def test_numbers_that_fit_no_row_are_refused(seq_idx, sentence):
    with pytest.raises(UserError, match=f"seq_idx: .*{sentence}"):
        model().backbone(torch.zeros(1, 4, 8, dtype=torch.float64), None, None, seq_idx)


def test_a_cache_takes_no_packed_rows():
    decoder = model().backbone.requires_grad_(False)
    with pytest.raises(UserError, match="packed rows are for training and have no cache"):
        decoder(
            torch.zeros(1, 4, 8, dtype=torch.float64), None, HybridCache(decoder.config, 1, 4), torch.zeros(1, 4).long()
        )
