"""The throughput claim: equal models, bytes as caches have them, a budget that is kept, and one tiny measurement."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from types import ModuleType

import pytest
import torch

from cosmos_reason import config
from cosmos_reason.model.cache import HybridCache
from cosmos_reason.model.sizes import nemotron_h_8b, parameters


@pytest.fixture(scope="module")
def claim() -> ModuleType:
    """The script as a module; what it defines needs no command line."""
    path = config.data_folder("benchmarks") / "claims" / "hybrid_throughput.py"
    spec = importlib.util.spec_from_file_location("hybrid_throughput_claim", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def configs(claim):
    hybrid = claim.hybrid_config()
    return {"hybrid": hybrid, "transformer": claim.transformer_config(hybrid)}


def test_the_models_are_of_one_size(configs):
    hybrid, transformer = configs["hybrid"], configs["transformer"]
    counts = {name: parameters(shape) for name, shape in configs.items()}
    assert abs(counts["transformer"] / counts["hybrid"] - 1) < 0.01, counts
    for name in ("vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"):
        assert getattr(hybrid, name) == getattr(transformer, name), name
    assert set(transformer.hybrid_override_pattern) == {"*", "-"}
    layers = hybrid.hybrid_override_pattern
    assert 0.07 < layers.count("*") / len(layers) < 0.09


def test_the_hybrid_has_the_ratios_of_the_8b(configs):
    ours, released = configs["hybrid"], nemotron_h_8b()
    for upper, lower in (
        ("intermediate_size", "hidden_size"),
        ("num_attention_heads", "num_key_value_heads"),
        ("mamba_inner_size", "hidden_size"),
        ("conv_channels", "hidden_size"),
    ):
        ratio, wanted = (getattr(c, upper) / getattr(c, lower) for c in (ours, released))
        assert ratio == wanted, f"{upper} / {lower}: {ratio}, in the 8B {wanted}"
    tables = [2 * c.vocab_size * c.hidden_size / parameters(c) for c in (ours, released)]
    assert tables[0] == pytest.approx(tables[1], abs=0.005)  # the share of embeddings and head


def test_the_rule_gives_the_papers_baseline(claim):
    """32 layers of attention and FFN, 4096 wide, with the 8B's own FFN width: near that without being told."""
    released = nemotron_h_8b()
    baseline = claim.transformer_config(released)
    assert baseline.hybrid_override_pattern == "*-" * 32
    assert baseline.intermediate_size == pytest.approx(21504, rel=0.02)
    assert parameters(baseline) == pytest.approx(parameters(released), rel=0.001)


@pytest.mark.parametrize("name", ["hybrid", "transformer"])
@pytest.mark.parametrize("columns", [1, 17, 1000])
@pytest.mark.parametrize("rows", [1, 3])
def test_bytes_by_formula_are_those_of_a_cache(claim, configs, name, columns, rows):
    shape = configs[name]
    assert claim.cache_bytes(HybridCache(shape, rows, columns)) == rows * claim.bytes_by_formula(shape, columns)


@pytest.mark.parametrize("name", ["hybrid", "transformer"])
@pytest.mark.parametrize("columns", [64, 66560])
def test_the_budget_is_used_up_and_kept(claim, configs, name, columns):
    budget = 2 * claim.bytes_by_formula(configs["transformer"], columns)
    rows = claim.rows_within(budget, configs[name], columns)
    one = claim.bytes_by_formula(configs[name], columns)
    assert rows * one <= budget < (rows + 1) * one
    assert rows == {"transformer": 2, "hybrid": {64: 0, 66560: 15}[columns]}[name]  # a state outweighs 64 columns


def test_a_filled_cache_is_at_its_length(claim, configs):
    cache = claim.filled_cache(configs["hybrid"], 2, 40, 50)
    keys = next(layer.keys for layer in cache.layers if hasattr(layer, "keys"))
    assert (cache.seen, keys.shape[2]) == (40, 50)
    assert bool((keys[:, :, :40] != 0).all()) and not keys[:, :, 40:].any()
    assert cache.valid_BK.sum(1).tolist() == [40, 40]


def test_a_tiny_measurement(claim, tmp_path):
    threads = torch.get_num_threads()
    setting = claim.Setting(1024, 8, 2, (64, 1024), 64, 2, curve_steps=2, rounds=2)
    figures = claim.measure(setting)
    assert torch.get_num_threads() == threads
    json.dumps(figures)
    assert figures["rows"] == {"transformer": 2, "hybrid": 6}
    assert all(taken <= figures["budget_bytes"] for taken in figures["cache_bytes"].values())
    assert figures["formula_is_exact"]
    assert all(rate > 0 for rate in figures["tokens_per_s"].values())
    claim.draw(figures["by_length"], tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_each_bar_decides(claim):
    good = {"tokens_ratio": 3.0, "parameters_within": 0.01, "formula_is_exact": True}
    full = {**good, "context": claim.FULL.context, "new_tokens": claim.FULL.new_tokens}
    assert claim.holds(full, quick=False)
    for name, bad in {"tokens_ratio": 2.99, "parameters_within": 0.011, "formula_is_exact": False}.items():
        assert not claim.holds({**full, name: bad}, quick=True), name
    short = {**good, "context": claim.QUICK.context, "new_tokens": claim.QUICK.new_tokens}
    assert claim.holds(short, quick=True) and not claim.holds(short, quick=False)


def test_the_settings_are_whole(claim):
    for setting in (claim.FULL, claim.QUICK, replace(claim.QUICK, blocks=2)):
        assert setting.new_tokens % setting.blocks == 0
        assert setting.context in setting.lengths
