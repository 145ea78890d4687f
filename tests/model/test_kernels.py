"""The kernel path against our own, with the stand-ins of `stand_ins.py` for the two packages.

fp64 where paths are compared directly, so 1e-10 separates summation order from mistakes; fp32 and bf16 where the check
at start-up runs.
"""

from __future__ import annotations

import math
import sys
import warnings
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch

from cosmos_reason.model import core, kernels
from cosmos_reason.model.cache import MambaState
from cosmos_reason.model.columns import Columns
from cosmos_reason.model.core_backward import Core
from cosmos_reason.model.kernels import Kernels
from cosmos_reason.model.mamba2 import Mamba2
from tests.model import stand_ins, twin
from tests.model.stand_ins import GOOD, convolve, scan, without

TIGHT = {"atol": 1e-10, "rtol": 1e-10}
CPU, CARD = torch.device("cpu"), torch.device("cuda", 0)


def mixer(**changes) -> Mamba2:
    return twin.tiny(hybrid_override_pattern="M", **changes).backbone.layers[0].mixer


KINDS = ("plain", "padded", "packed", "padded and packed", "limited", "no bias", "cached")


def case_of(kind: str, length: int) -> tuple[core.Sizes, core.Weights, core.Inputs]:
    limit = (0.3, 0.9) if kind == "limited" else (0.0, math.inf)
    layer = mixer(time_step_limit=limit, use_conv_bias=kind != "no bias")
    sizes, weights = layer.sizes(), core.Weights(*(w if w is None else w.detach() for w in layer.weights()))
    draw = partial(torch.randn, dtype=torch.float64)
    token_BL = document_BL = window_BVC = state_BGNX = None
    if "padded" in kind or kind in ("limited", "cached"):
        token_BL = torch.arange(length)[None] >= torch.tensor([[0], [2]])
    if "packed" in kind:
        document_BL = torch.bucketize(torch.arange(length), torch.tensor([1, 3, 8])).expand(2, -1)
    if kind == "cached":
        window_BVC, state_BGNX = draw(2, 3, weights.conv_WC.shape[1]), draw(2, sizes.groups, sizes.state, 6)
    projected_BLE = draw(2, length, layer.in_proj.out_features)
    return sizes, weights, core.Inputs(projected_BLE, window_BVC, state_BGNX, token_BL, document_BL)


@pytest.mark.parametrize("length", [2, 3, 13])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_states_equal_ours(kind, length):
    sizes, weights, inputs = case_of(kind, length)
    ours, theirs = core.forward(sizes, weights, inputs, None), GOOD.forward(sizes, weights, inputs)
    torch.testing.assert_close(theirs, ours, **TIGHT)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "cached"])
def test_gradients_equal_ours(kind):
    sizes, weights, inputs = case_of(kind, 13)
    leaves = [t.requires_grad_() for t in (inputs.projected_BLE, *weights) if t is not None]
    ours = Core.apply(sizes, inputs.token_BL, inputs.document_BL, inputs.projected_BLE, *weights)
    d_y_BLI = torch.randn_like(ours)
    theirs, state_BGNX = GOOD.forward(sizes, weights, inputs)
    assert not state_BGNX.requires_grad  # a cache that held on to it would hold on to every piece before
    torch.testing.assert_close(*(torch.autograd.grad(y, leaves, d_y_BLI) for y in (theirs, ours)), **TIGHT)


@pytest.fixture
def install(monkeypatch):
    """Takes a card for what it is not, and has these kernels load; the models under test are then on that card."""

    def put(found, load=None) -> list[str]:
        calls: list[str] = []
        monkeypatch.setattr(kernels, "DEVICE", "cpu")
        monkeypatch.setattr(kernels, "_load", load or (lambda: calls.append("load") or found))
        kernels._verified.cache_clear()
        return calls

    yield put
    kernels._verified.cache_clear()


SIZES = {
    "tiny": mixer().sizes(),
    "limited": mixer(time_step_limit=(0.001, 0.1)).sizes(),
    "as shipped": core.Sizes(heads=4, head_dim=64, groups=1, state=64, chunk=64, eps=1e-5, dt_limit=(0.0, math.inf)),
}


@pytest.mark.parametrize("stand_in", [scan, stand_ins.rounding_scan], ids=["exact", "rounding"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_right_kernels_are_used_and_checked_once(install, monkeypatch, sizes, stand_in):
    """Even at half the tolerance: rounding depends on the card and the sizes."""
    monkeypatch.setattr(kernels, "TOLERANCE", {dtype: bar / 2 for dtype, bar in kernels.TOLERANCE.items()})
    good = Kernels(stand_in, convolve)
    calls = install(good)
    random_state = torch.get_rng_state()
    for _ in range(3):
        assert kernels.available(CPU, sizes) is good  # warnings are errors here
        assert kernels.available(CPU, sizes, gradients=True) is good
    assert calls == ["load"] * 2 and torch.equal(torch.get_rng_state(), random_state)


WRONG = {
    "zeros": (Kernels(stand_ins.zeros, convolve), "is off by 1 of its size in float32"),
    "silent convolution": (Kernels(scan, lambda x, *a, **n: x * 0), "is off by"),
    "limits of its own": (Kernels(without(scan, dt_limit=(0.001, math.inf)), convolve), "is off by"),
    "softplus twice": (Kernels(without(scan, dt_softplus=True), convolve), "is off by"),
    "no initial states": (Kernels(without(scan, initial_states=None), convolve), "is off by"),
    "no window": (Kernels(scan, without(convolve, initial_states=None)), "is off by"),
    "not a number": (Kernels(stand_ins.not_a_number, convolve), "their state is off by inf"),
    "one column": (Kernels(stand_ins.one_column_wrong, convolve), "their output is off by"),
    "heads in turn": (Kernels(stand_ins.heads_in_turn, convolve), "is off by"),
    "raises": (Kernels(stand_ins.raises, convolve), "they raise RuntimeError: no kernel image is available;"),
}


@pytest.mark.parametrize(("stub", "says"), WRONG.values(), ids=WRONG)
def test_wrong_kernels_are_refused_with_one_warning(install, stub, says):
    layer = mixer().float()
    x_BLD = torch.randn(2, 9, 8)
    expected = layer(x_BLD, Columns(), None)
    install(stub)
    with pytest.warns(RuntimeWarning, match=says) as caught:
        got = [layer(x_BLD, Columns(), None) for _ in range(2)]
    assert len(caught) == 1
    text = str(caught[0].message)
    assert text.startswith("mamba_ssm and causal_conv1d are not used on cpu for any sequence: ")
    assert text.endswith("; our own slower code is used instead") and "\n" not in text
    assert all(torch.equal(y, expected) for y in got)


TRAINED_WRONG = {
    "documents": Kernels(without(scan, seq_idx=None), convolve),
    "documents in the convolution": Kernels(scan, without(convolve, seq_idx=None)),
    "derivative": Kernels(stand_ins.no_gradient_of_B, convolve),
}


@pytest.mark.parametrize("stub", TRAINED_WRONG.values(), ids=TRAINED_WRONG)
def test_what_only_training_needs_is_refused_for_training_only(install, stub):
    layer, (x_BLD,) = mixer().float(), torch.randn(1, 2, 9, 8)
    install(stub)
    with torch.no_grad():
        layer(x_BLD, Columns(), None)  # no warning, which would be an error
    with pytest.warns(RuntimeWarning, match=r"for training: their .* is off by"):
        layer(x_BLD, Columns(), None)
    sizes = layer.sizes()
    assert kernels.available(CPU, sizes) is stub and kernels.available(CPU, sizes, gradients=True) is None


def test_limits_are_ours_to_keep(install):
    """A scan that knows no limits is right, for dt arrives limited; limits given to it would move the 0 of padding."""
    unlimited = Kernels(without(scan, dt_limit=(0.0, math.inf)), convolve)
    install(unlimited)
    assert kernels.available(CPU, SIZES["limited"]) is unlimited
    sizes, weights, inputs = case_of("limited", 13)
    torch.testing.assert_close(
        unlimited.forward(sizes, weights, inputs), core.forward(sizes, weights, inputs, None), **TIGHT
    )


def test_the_mixer_calls_them_for_sequences_and_not_for_single_tokens(install):
    """Pieces into a cache, one of them padded on the left and one shorter than the window; fp32, hence the bars."""
    layer, lengths = mixer().float().requires_grad_(False), []

    def counting(x, *args, **named):
        lengths.append(x.shape[1])
        return scan(x, *args, **named)

    x_BLD, results = torch.randn(2, 20, 8), []
    for found in (None, Kernels(counting, convolve)):
        install(found)
        kernels.available(CPU, layer.sizes())
        lengths.clear()
        state, seen, out = MambaState(layer.config, 2, torch.float32, CPU), 0, []
        for piece_BLD in x_BLD.split([11, 1, 2, 6], 1):
            token_BL = torch.arange(piece_BLD.shape[1])[None] >= torch.tensor([[0], [3]]) if seen == 0 else None
            out.append(layer(piece_BLD, Columns(token_BL, seen=seen), state))
            seen += piece_BLD.shape[1]
        results.append([torch.cat(out, 1), state.ssm_BGNX, state.window(seen)])
    assert lengths == [11, 2, 6]
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("columns", ["plain", "padded", "packed"])
def test_the_mixer_trains_through_them(install, columns):
    _, _, inputs = case_of(columns, 20)
    layer, x_BLD, results = mixer().float(), torch.randn(2, 20, 8), []
    for found in (None, GOOD):
        install(found)
        layer.zero_grad()
        layer(x_BLD, Columns(inputs.token_BL, inputs.document_BL), None).square().sum().backward()
        results.append([p.grad.clone() for p in layer.parameters()])
    torch.testing.assert_close(*results, atol=1e-3, rtol=1e-4)  # sums of fp32 in another order


def test_only_what_was_checked_is_taken():
    sizes, weights, inputs = case_of("plain", 4)
    weights = core.Weights(*(w.float() for w in weights))

    def takes(projected, weights=weights):
        return kernels.takes(sizes, weights, inputs._replace(projected_BLE=projected))

    projected = inputs.projected_BLE
    assert takes(projected.float()) and takes(projected.bfloat16())
    assert not takes(projected) and not takes(projected.half())
    assert not takes(projected[:, :1].float())
    assert not takes(projected.float(), weights._replace(conv_WC=weights.conv_WC[:3]))
    assert not takes(projected.float(), weights._replace(conv_WC=weights.conv_WC[:, :31]))
    long = torch.empty(1, 1).bfloat16().expand(1, 2**21, projected.shape[-1])  # no memory behind it
    assert takes(long) and not takes(long.expand(2, -1, -1))  # 4 heads · a chunk of 128 · 2²² columns = 2³¹


def loaded() -> set[str]:
    return {name.partition(".")[0] for name in sys.modules} & set(kernels.PACKAGES)


def test_without_the_packages_nothing_is_imported_and_nothing_said(monkeypatch):
    kernels._verified.cache_clear()
    monkeypatch.setattr(kernels, "find_spec", lambda name: None if name == "causal_conv1d" else ModuleSpec(name, None))
    with warnings.catch_warnings(action="error"):
        assert kernels.available(CARD, SIZES["tiny"]) is kernels.available(CARD, SIZES["tiny"], gradients=True) is None
    assert not loaded()
    kernels._verified.cache_clear()


def test_on_a_processor_nothing_is_even_looked_for(monkeypatch):
    monkeypatch.setattr(kernels, "find_spec", lambda name: pytest.fail(f"looked for {name}"))
    mixer().float()(torch.randn(1, 5, 8), Columns(), None)
    assert kernels.available(CPU, SIZES["tiny"]) is None and not loaded()


def packages(monkeypatch, **functions) -> None:
    """Modules under the packages' names; a missing function is an ImportError."""
    homes = {"mamba_chunk_scan_combined": "mamba_ssm.ops.triton.ssd_combined", "causal_conv1d_fn": "causal_conv1d"}
    for function, home in homes.items():
        parts = home.split(".")
        for count in range(1, len(parts) + 1):
            name = ".".join(parts[:count])
            module = ModuleType(name)
            module.__spec__, module.__path__ = ModuleSpec(name, None, is_package=True), []
            monkeypatch.setitem(sys.modules, name, module)
        if function in functions:
            setattr(sys.modules[home], function, functions[function])


def test_the_packages_are_found_under_their_own_names(install, monkeypatch):
    install(None, kernels._load)
    packages(monkeypatch, mamba_chunk_scan_combined=scan, causal_conv1d_fn=convolve)
    assert kernels.available(CPU, SIZES["tiny"]) == GOOD


def test_packages_that_do_not_load_are_named(install, monkeypatch):
    install(None, kernels._load)
    packages(monkeypatch, mamba_chunk_scan_combined=scan)
    with pytest.warns(RuntimeWarning, match=r"they do not load \(ImportError: .*causal_conv1d_fn") as caught:
        assert kernels.available(CPU, SIZES["tiny"]) is kernels.available(CPU, SIZES["tiny"], gradients=True) is None
    assert len(caught) == 1
