"""Chunked = stepwise = twin, for every length 1…40 and around chunk borders, with and without padding.

fp64 throughout unless a test is about another precision, so 1e-10 separates summation order from mistakes.
"""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch.func import functional_call

from cosmos_reason.model import core
from cosmos_reason.model.cache import HybridCache, MambaState
from cosmos_reason.model.columns import Columns
from cosmos_reason.model.mamba2 import Mamba2
from tests.model import twin

TIGHT = {"atol": 1e-10, "rtol": 1e-10}


def mixer(seed: int = 0, **changes) -> Mamba2:
    torch.manual_seed(seed)
    model = twin.tiny(seed, hybrid_override_pattern="M", **changes)
    return model.backbone.layers[0].mixer.requires_grad_(False)


def state_of(layer: Mamba2, rows: int) -> MambaState:
    return MambaState(layer.config, rows, torch.float64, torch.device("cpu"))


def heads_first(state: MambaState) -> torch.Tensor:
    """(B, G, N, X) -> (B, H, P, N) of the tiny mixer, whose heads have 3 channels."""
    return state.ssm_BGNX.unflatten(-1, (-1, 3)).permute(0, 1, 3, 4, 2).flatten(1, 2)


def by_steps(layer: Mamba2, x_BLD, state: MambaState, seen: int = 0):
    return torch.cat([layer(x_BLD[:, t : t + 1], Columns(seen=seen + t), state) for t in range(x_BLD.shape[1])], dim=1)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_every_length_chunked_stepwise_and_twin_agree(groups):
    layer = mixer(n_groups=groups)
    x_BLD = torch.randn(2, 40, 8, dtype=torch.float64)
    expected = torch.stack([twin.mamba(layer, x)[0] for x in x_BLD])
    steps = by_steps(layer, x_BLD, state_of(layer, 2))
    torch.testing.assert_close(steps, expected, **TIGHT)
    for length in range(1, 41):  # chunk is 8
        torch.testing.assert_close(layer(x_BLD[:, :length], Columns(), None), expected[:, :length], **TIGHT)


@pytest.mark.parametrize("length", [63, 64, 65, 127, 128, 129, 131])
def test_around_the_borders_of_long_chunks(length):
    layer = mixer(chunk_size=64)
    x_BLD = torch.randn(1, length, 8, dtype=torch.float64)
    state = state_of(layer, 1)
    expected, last_HPN = twin.mamba(layer, x_BLD[0])
    torch.testing.assert_close(layer(x_BLD, Columns(), state)[0], expected, **TIGHT)
    torch.testing.assert_close(heads_first(state)[0], last_HPN, **TIGHT)


@pytest.mark.parametrize("chunk", [1, 2, 5, 16, 256])
def test_chunk_size_does_not_matter(chunk):
    layer = mixer()
    x_BLD = torch.randn(2, 21, 8, dtype=torch.float64)
    expected = layer(x_BLD, Columns(), None)
    layer.config = copy.deepcopy(layer.config)
    layer.config.chunk_size = chunk
    torch.testing.assert_close(layer(x_BLD, Columns(), None), expected, **TIGHT)


@pytest.mark.parametrize("padding", [1, 2, 3, 4, 8, 11])
def test_left_padding_changes_no_token(padding):
    layer = mixer()
    x_BLD = torch.randn(1, 17, 8, dtype=torch.float64)
    noise = torch.randn(1, padding, 8, dtype=torch.float64) * 100
    mask_BL = torch.cat([torch.zeros(1, padding), torch.ones(1, 17)], dim=1).bool()
    alone, padded = state_of(layer, 1), state_of(layer, 1)
    expected = layer(x_BLD, Columns(), alone)
    got = layer(torch.cat([noise, x_BLD], dim=1), Columns(mask_BL), padded)
    torch.testing.assert_close(got[:, padding:], expected, **TIGHT)
    torch.testing.assert_close(padded.ssm_BGNX, alone.ssm_BGNX, **TIGHT)
    torch.testing.assert_close(padded.window(17 + padding), alone.window(17), **TIGHT)


@pytest.mark.parametrize("padding", [0, 1, 5])
def test_left_padding_of_every_length(padding):
    layer = mixer()
    x_BLD = torch.randn(1, 40 + padding, 8, dtype=torch.float64)
    expected, _ = twin.mamba(layer, x_BLD[0, padding:])
    for length in range(1, 41):
        mask_BL = torch.arange(length + padding)[None] >= padding
        got = layer(x_BLD[:, : length + padding], Columns(mask_BL), None)
        torch.testing.assert_close(got[0, padding:], expected[:length], **TIGHT)


def test_rows_padded_on_the_right_go_on_as_if_alone():
    layer = mixer()
    x_BLD, more_BLD = (torch.randn(3, n, 8, dtype=torch.float64) for n in (9, 4))
    lengths = torch.tensor([5, 9, 2])  # the last is shorter than the window
    state = state_of(layer, 3)
    layer(x_BLD, Columns(torch.arange(9)[None] < lengths[:, None]), state)
    got = by_steps(layer, more_BLD, state, 9)
    for row, length in enumerate(lengths.tolist()):
        whole = torch.cat([x_BLD[row, :length], more_BLD[row]])
        torch.testing.assert_close(got[row], twin.mamba(layer, whole)[0][length:], **TIGHT)


def test_a_row_of_padding_is_finite_and_leaves_the_state_alone():
    layer = mixer()
    x_BLD = torch.randn(2, 6, 8, dtype=torch.float64)
    mask_BL = torch.tensor([[False] * 6, [True] * 6])
    state = state_of(layer, 2)
    layer(torch.randn(2, 5, 8, dtype=torch.float64), Columns(), state)
    before = (state.ssm_BGNX[0].clone(), state.window(5)[0].clone())
    assert torch.isfinite(layer(x_BLD, Columns(mask_BL, seen=5), state)).all()
    torch.testing.assert_close((state.ssm_BGNX[0], state.window(11)[0]), before, atol=0, rtol=0)


@pytest.mark.parametrize("pieces", [[21], [2, 1, 1, 17], [8, 8, 5], [1] * 21, [3, 18]])
def test_pieces_equal_the_whole(pieces):
    layer = mixer()
    x_BLD = torch.randn(2, 21, 8, dtype=torch.float64)
    state, seen, out = state_of(layer, 2), 0, []
    for piece in x_BLD.split(pieces, dim=1):
        out.append(layer(piece, Columns(seen=seen), state))
        seen += piece.shape[1]
    torch.testing.assert_close(torch.cat(out, dim=1), layer(x_BLD, Columns(), None), **TIGHT)


@pytest.mark.parametrize("bias", [0.0, -12.0])
@pytest.mark.parametrize("limit", [(0.0, math.inf), (0.001, 0.1), (0.5, 0.6)])
def test_time_steps_are_limited_alike_on_every_path(bias, limit):
    layer = mixer(time_step_limit=limit)
    layer.dt_bias.fill_(bias)
    x_BLD = torch.randn(1, 20, 8, dtype=torch.float64)
    expected, _ = twin.mamba(layer, x_BLD[0])
    torch.testing.assert_close(layer(x_BLD, Columns(), None)[0], expected, **TIGHT)
    torch.testing.assert_close(by_steps(layer, x_BLD, state_of(layer, 1))[0], expected, **TIGHT)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_gated_norm_is_per_group_gates_first_and_knows_its_epsilon(groups):
    layer = mixer(n_groups=groups, layer_norm_epsilon=0.3)
    x_BLD = torch.randn(1, 11, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(x_BLD, Columns(), None)[0], twin.mamba(layer, x_BLD[0])[0], **TIGHT)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 13])
def test_gradients_are_finite_at_chunk_borders(length):
    layer = mixer().requires_grad_(True)
    x_BLD = torch.randn(2, length, 8, dtype=torch.float64, requires_grad=True)
    layer.A_log.data.fill_(math.log(16.0))
    layer.dt_bias.data.fill_(20.0)  # strong decay: exponents of −300 and less inside a chunk
    layer(x_BLD, Columns(), None).sum().backward()
    assert torch.isfinite(x_BLD.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


@pytest.mark.parametrize("kind", ["plain", "left padding", "packed", "limited", "no bias"])
@pytest.mark.parametrize("length", [1, 2, 8, 13])
def test_gradients_against_differences(kind, length):
    """The derivative is written by hand; chunk 4, two rows."""
    limit = (0.3, 0.9) if kind == "limited" else (0.0, math.inf)
    layer = mixer(chunk_size=4, time_step_limit=limit, use_conv_bias=kind != "no bias").requires_grad_(True)
    x_BLD = torch.randn(2, length, 8, dtype=torch.float64, requires_grad=True)
    columns = Columns()
    if kind == "left padding":
        columns = Columns(torch.arange(length)[None] >= torch.tensor([[0], [2]]))
    if kind == "packed":
        columns = Columns(document_BL=documents(length))
    names = [name for name, _ in layer.named_parameters()]

    def run(x, *weights):
        return functional_call(layer, dict(zip(names, weights, strict=True)), (x, columns, None))

    assert torch.autograd.gradcheck(run, (x_BLD, *layer.parameters()), fast_mode=True)


def documents(length: int) -> torch.Tensor:
    """Two rows of documents of 1, 2, 3, 6 … and 5, 7 … columns: shorter than the window, borders inside chunks."""
    return torch.stack([torch.bucketize(torch.arange(length), torch.tensor(ends)) for ends in ([0, 2, 5, 11], [4, 11])])


@pytest.mark.parametrize("chunk", [4, 8, 64])
def test_packed_documents_equal_separate_ones(chunk):
    layer = mixer(chunk_size=chunk)
    x_BLD = torch.randn(2, 21, 8, dtype=torch.float64)
    document_BL = documents(21)
    got = layer(x_BLD, Columns(document_BL=document_BL), None)
    for row in range(2):
        for number in document_BL[row].unique():
            here = document_BL[row] == number
            torch.testing.assert_close(got[row, here], twin.mamba(layer, x_BLD[row, here])[0], **TIGHT)


@pytest.mark.parametrize(("rows", "length"), [(1, 700), (5, 90), (40, 13), (3, 257)])
def test_segments_do_not_matter(rows, length, monkeypatch):
    """Values and gradients of several rows and columns a segment, against a single column of chunks a segment."""
    results = []
    for elements in (2000, 1):  # about 160 columns, and one chunk
        monkeypatch.setattr(core, "ELEMENTS", elements)
        layer = mixer(chunk_size=16).requires_grad_(True)
        torch.manual_seed(3)
        x_BLD = torch.randn(rows, length, 8, dtype=torch.float64, requires_grad=True)
        y_BLD = layer(x_BLD, Columns(), None)
        (y_BLD * torch.linspace(-1, 1, length, dtype=torch.float64)[:, None]).sum().backward()
        results.append([y_BLD.detach(), x_BLD.grad, *(p.grad for p in layer.parameters())])
    torch.testing.assert_close(results[0], results[1], **TIGHT)


@pytest.mark.parametrize("width", [1, 2, 6])
@pytest.mark.parametrize("elements", [12, 2000])
def test_padded_and_packed_rows_over_several_segments(width, elements, monkeypatch):
    """Convolutions of other widths; a segment of a single chunk, or of several rows; values and gradients."""
    monkeypatch.setattr(core, "ELEMENTS", elements)
    layer = mixer(chunk_size=3, conv_kernel=width).requires_grad_(True)
    x_BLD = torch.randn(2, 13, 8, dtype=torch.float64, requires_grad=True)
    document_BL = documents(13)
    packed = layer(x_BLD, Columns(document_BL=document_BL), None)
    alone = torch.zeros_like(packed)
    for row in range(2):
        for number in document_BL[row].unique():
            here = document_BL[row] == number
            alone[row, here] = layer(x_BLD[row, here][None], Columns(), None)[0]
    torch.testing.assert_close(packed, alone, **TIGHT)
    weight, inputs = torch.randn_like(packed), [x_BLD, *layer.parameters()]
    got, expected = (torch.autograd.grad((y * weight).sum(), inputs, retain_graph=True) for y in (packed, alone))
    torch.testing.assert_close(got, expected, **TIGHT)
    padded = layer(x_BLD, Columns(torch.arange(13)[None] >= torch.tensor([[0], [4]])), None)
    torch.testing.assert_close(padded[1, 4:], layer(x_BLD[1:, 4:], Columns(), None)[0], **TIGHT)


@pytest.mark.parametrize("batch", [1, 3, 300])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 255, 256, 257, 1000])
@pytest.mark.parametrize("segment", [1, 512, 5000])
def test_places_cover_every_column_once(batch, length, segment):
    seen = torch.zeros(batch, length)
    for place in core.places(batch, length, 64, segment):
        seen[place.rows, place.start : place.end] += 1
        size, rest = divmod(place.end - place.start, place.chunks)
        assert rest == 0 and size <= 64
    assert (seen == 1).all()


def test_state_stays_fp32_when_activations_are_bf16():
    config = twin.text_config()
    cache = HybridCache(config, 1, 4, torch.bfloat16)
    assert cache.layers[0].ssm_BGNX.dtype == torch.float32
    assert cache.layers[0].ring_BWC.dtype == torch.bfloat16


def test_two_thousand_steps_do_not_drift():
    exact = mixer()
    layer = copy.deepcopy(exact).float()
    x_BLD = torch.randn(1, 2000, 8, dtype=torch.float64)
    state = MambaState(layer.config, 1, torch.float32, torch.device("cpu"))
    # fp32 rounding of 2,000 sums; a 16-bit state is off by more than 0.01 here
    got = by_steps(layer, x_BLD.float(), state).double()
    torch.testing.assert_close(got, exact(x_BLD, Columns(), None), atol=1e-4, rtol=1e-4)


def test_bf16_autocast_keeps_the_scan_in_fp32():
    layer = copy.deepcopy(mixer()).float()
    x_BLD = torch.randn(1, 20, 8)
    full = layer(x_BLD, Columns(), None)
    state = MambaState(layer.config, 1, torch.bfloat16, torch.device("cpu"))
    with torch.autocast("cpu", torch.bfloat16):
        whole = layer(x_BLD, Columns(), None)
        steps = by_steps(layer, x_BLD, state)
    assert whole.dtype == torch.bfloat16 and state.ssm_BGNX.dtype == torch.float32
    scale = full.abs().max()
    assert (whole.float() - full).abs().max() / scale < 0.03  # eight bits in the projections
    assert (steps.float() - whole.float()).abs().max() / scale < 0.02


def test_sensitive_parameters_are_marked_against_decay():
    layer = mixer()
    marked = {name for name, p in layer.named_parameters() if getattr(p, "_no_weight_decay", False)}
    assert marked == {"A_log", "D", "dt_bias"}
