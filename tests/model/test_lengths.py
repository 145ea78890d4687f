"""Long sequences, pieces of any size, and inputs that do not lie in memory as one would expect."""

from __future__ import annotations

import pytest
import torch

from cosmos_reason.errors import UserError
from cosmos_reason.model.cache import HybridCache
from tests.model import twin

TIGHT = {"atol": 1e-9, "rtol": 1e-9}


def decoder(**changes):
    return twin.tiny(**changes).backbone.requires_grad_(False)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 15, 17, 30])
def test_prompts_in_pieces_of_any_size(size):
    """Chunk is 8, the convolution looks back 3."""
    model = decoder()
    x_BLD = torch.randn(2, 33, 8, dtype=torch.float64)
    cache = HybridCache(model.config, 2, 33, torch.float64)
    got = torch.cat([model(piece, None, cache) for piece in x_BLD.split(size, dim=1)], dim=1)
    torch.testing.assert_close(got, model(x_BLD), **TIGHT)


@pytest.mark.parametrize("sizes", [[2, 1, 1, 17, 12], [5, 1, 8, 1, 18], [1, 32]])
def test_pieces_of_left_padded_rows(sizes):
    model = decoder()
    x_BLD = torch.randn(3, 33, 8, dtype=torch.float64)
    padding = [0, 4, 9]
    token_BL = torch.arange(33)[None] >= torch.tensor(padding)[:, None]
    cache = HybridCache(model.config, 3, 33, torch.float64)
    pieces = zip(x_BLD.split(sizes, dim=1), token_BL.split(sizes, dim=1), strict=True)
    got = torch.cat([model(piece, mask, cache) for piece, mask in pieces], dim=1)
    for row, left in enumerate(padding):
        torch.testing.assert_close(got[row, left:], twin.backbone(model, x_BLD[row, left:]), **TIGHT)


def test_padding_before_the_tokens_of_a_later_piece_and_between_tokens():
    """As in a second turn of a batch: 11111 | 0011 | 1, and holes inside a piece."""
    model = decoder()
    pieces = [[[1] * 5, [1] * 5, [0, 1, 1, 0, 1]], [[0, 0, 1, 1], [1, 0, 0, 1], [0, 0, 0, 0]], [[1], [1], [1]]]
    pieces += [[[0, 1], [1, 1], [1, 0]]]
    cache = HybridCache(model.config, 3, 12, torch.float64)
    fed: list[list[torch.Tensor]] = [[], [], []]
    out: list[list[torch.Tensor]] = [[], [], []]
    for piece in pieces:
        mask_BL = torch.tensor(piece).bool()
        x_BLD = torch.randn(*mask_BL.shape, 8, dtype=torch.float64)
        got = model(x_BLD, mask_BL if not mask_BL.all() else None, cache)
        for row in range(3):
            fed[row].append(x_BLD[row][mask_BL[row]])
            out[row].append(got[row][mask_BL[row]])
    for row in range(3):
        torch.testing.assert_close(torch.cat(out[row]), twin.backbone(model, torch.cat(fed[row])), **TIGHT)


def test_holes_without_a_cache_and_their_gradients():
    model = twin.tiny().backbone
    x_BLD = torch.randn(2, 9, 8, dtype=torch.float64)
    mask_BL = torch.tensor([[0, 1, 1, 0, 0, 1, 1, 1, 0], [1, 0, 1, 0, 1, 0, 1, 0, 1]]).bool()
    out = model(x_BLD, mask_BL)
    gradients = []
    for row in range(2):
        alone = model(x_BLD[row][mask_BL[row]][None])[0]
        torch.testing.assert_close(out[row][mask_BL[row]], alone, **TIGHT)
    for loss in (out[mask_BL].sum(), sum(model(x[m][None]).sum() for x, m in zip(x_BLD, mask_BL, strict=True))):
        model.zero_grad()
        loss.backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(*gradients, **TIGHT)


@pytest.mark.parametrize(
    ("length", "mask", "sentence"),
    [
        (4, (2, 3), r"attention_mask: wanted \(2, 4\), non-zero on tokens, got \(2, 3\)"),
        (4, (2, 1), r"got \(2, 1\)"),
        (4, (2, 1, 4, 4), r"got \(2, 1, 4, 4\)"),
        (0, (2, 0), "at least one column"),
    ],
)
def test_masks_and_pieces_that_fit_nothing_are_refused(length, mask, sentence):
    with pytest.raises(UserError, match=sentence):
        decoder()(torch.zeros(2, length, 8, dtype=torch.float64), torch.ones(mask))


def test_sixty_five_thousand_tokens_equal_the_streamed_state():
    """Beyond 61,000 tokens 32-bit offsets have been seen to overflow; tiny sizes, against pieces through a cache."""
    model = decoder(hybrid_override_pattern="M-", chunk_size=64).float()
    torch.manual_seed(1)
    x_BLD = torch.randn(1, 65_536, 8)
    cache = HybridCache(model.config, 1, 65_536)
    streamed = torch.cat([model(piece, None, cache) for piece in x_BLD.split(5_000, dim=1)], dim=1)
    torch.testing.assert_close(model(x_BLD), streamed, atol=2e-5, rtol=1e-4)  # fp32 sums in another order


@pytest.mark.parametrize("cached", [False, True])
def test_inputs_that_are_not_contiguous(cached):
    model = decoder()
    base = torch.randn(9, 3, 16, dtype=torch.float64)
    x_BLD = base.transpose(0, 1)[..., ::2]
    caches = [HybridCache(model.config, 3, 9, torch.float64) if cached else None for _ in range(2)]
    torch.testing.assert_close(model(x_BLD, None, caches[0]), model(x_BLD.contiguous(), None, caches[1]), **TIGHT)


def test_a_pass_that_fills_a_cache_is_not_one_to_learn_from():
    """States are written in place; a loss that depends on them fails loudly, not by wrong gradients."""
    model = twin.tiny()
    ids_BL = torch.randint(10, 40, (1, 5))
    logits = model(input_ids=ids_BL, use_cache=True).logits
    with pytest.raises(RuntimeError, match="does not require grad"):
        logits.sum().backward()
    cache = HybridCache(model.text_config, 1, 5, torch.float64)
    with pytest.raises(UserError, match="not one to learn from; leave out the cache"):
        model(input_ids=ids_BL, labels=ids_BL, cache=cache)
