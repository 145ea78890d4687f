"""Every named size: what it takes, equal to the published figures; nano trains, answers and keeps its promises."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest
import torch

from cosmos_reason.errors import UserError
from cosmos_reason.model import sizes
from cosmos_reason.model.cache import HybridCache, KeyValues, MambaState
from cosmos_reason.model.causal_lm import HybridForCausalLM
from cosmos_reason.model.config import HybridConfig, HybridVLMConfig
from cosmos_reason.model.sizes import SIZES, build
from cosmos_reason.model.vlm import HybridVLM

MIB = 2**20


class Figures(NamedTuple):
    """Computed from the released configurations, independently of this code."""

    layers: tuple[int, int, int]  # Mamba-2, FFN, attention
    attention_at: list[int]
    layer_parameters: tuple[int, int, int]
    parameters: int
    in_proj: int
    conv_channels: int
    kv_bytes: int  # a token, bf16
    ssm_bytes: int  # a sequence, fp32
    conv_bytes: int  # a sequence, bf16, 4 columns a layer


RELEASED = {
    "nemotron-h-8b": Figures(
        (24, 24, 4),
        [7, 18, 29, 40],
        (109_640_064, 176_164_864, 41_947_136),
        8_100_852_736,
        18_560,
        10_240,
        16_384,
        96 * MIB,
        1_966_080,
    ),
    "nemotron-h-56b": Figures(
        (54, 54, 10),
        [7, 18, 29, 40, 51, 62, 73, 84, 95, 106],
        (438_432_512, 536_879_104, 151_003_136),
        56_324_350_464,
        37_120,
        20_480,
        40_960,
        864 * MIB,
        8_847_360,
    ),
    "nemotron-h-47b": Figures(
        (45, 48, 5),
        [17, 38, 49, 60, 86],
        (438_432_512, 503_324_672, 151_003_136),
        46_791_554_816,
        37_120,
        20_480,
        20_480,
        720 * MIB,
        7_372_800,
    ),
    "nemotron-h-4b": Figures(
        (24, 24, 4),
        [7, 18, 29, 40],
        (72_752_464, 75_500_544, 31_460_352),
        4_489_223_040,
        16_496,
        9_216,
        16_384,
        84 * MIB,
        1_769_472,
    ),
    "nemotron-nano-9b-v2": Figures(
        (27, 25, 4),
        [14, 21, 30, 39],
        (147_450_624, 140_497_280, 55_054_720),
        8_888_227_328,
        22_656,
        12_288,
        16_384,
        135 * MIB,
        2_654_208,
    ),
    "nemotron-nano-12b-v2": Figures(
        (28, 28, 6),
        [7, 16, 25, 34, 43, 52],
        (168_504_704, 209_720_320, 62_919_680),
        12_310_001_152,
        22_656,
        12_288,
        24_576,
        140 * MIB,
        2_752_512,
    ),
}


def text_size(name: str) -> HybridConfig:
    config = SIZES[name]()
    assert isinstance(config, HybridConfig)
    return config


def test_every_size_is_measured_here_or_sees():
    assert {name for name, size in SIZES.items() if not isinstance(size(), HybridVLMConfig)} == RELEASED.keys()


@pytest.mark.parametrize("name", RELEASED)
def test_layers_stand_where_they_were_released(name):
    pattern = text_size(name).hybrid_override_pattern
    assert tuple(pattern.count(symbol) for symbol in "M-*") == RELEASED[name].layers
    assert [i for i, symbol in enumerate(pattern) if symbol == "*"] == RELEASED[name].attention_at
    assert pattern[0] == "M" and pattern[-1] == "-" and pattern.count("*-") == pattern.count("*")


@pytest.mark.parametrize("name", RELEASED)
def test_parameters_are_as_released(name):
    config = text_size(name)
    assert sizes.parameters(config) == RELEASED[name].parameters
    with torch.device("meta"):
        layers = HybridForCausalLM(config).backbone.layers
    for symbol, expected in zip("M-*", RELEASED[name].layer_parameters, strict=True):
        counts = {
            sum(p.numel() for p in layer.parameters())
            for layer, kind in zip(layers, config.hybrid_override_pattern, strict=True)
            if kind == symbol
        }
        assert counts == {expected}
    assert layers[0].mixer.in_proj.out_features == RELEASED[name].in_proj
    assert config.conv_channels == RELEASED[name].conv_channels


@pytest.mark.parametrize("name", RELEASED)
def test_what_a_sequence_takes_is_as_published(name):
    config = text_size(name)
    assert sizes.kv_bytes_per_token(config) == RELEASED[name].kv_bytes
    assert sizes.kv_bytes_per_token(config, dtype_bytes=1) * 2 == RELEASED[name].kv_bytes
    assert sizes.ssm_state_bytes(config) == RELEASED[name].ssm_bytes
    assert sizes.conv_state_bytes(config) == sizes.conv_state_bytes(config, columns=4) == RELEASED[name].conv_bytes
    assert sizes.conv_state_bytes(config, columns=3) * 4 == RELEASED[name].conv_bytes * 3


@pytest.mark.parametrize("name", [*RELEASED, "nano"])
def test_the_cache_takes_what_the_functions_say(name):
    config = SIZES[name]().get_text_config()
    cache = HybridCache(config, 3, 7, torch.bfloat16, "meta")
    taken: dict[tuple[type, torch.dtype], int] = Counter()
    columns = 0
    for layer in filter(None, cache.layers):
        for tensor in vars(layer).values():
            taken[type(layer), tensor.dtype] += tensor.nbytes
            columns = tensor.shape[1] if tensor.ndim == 3 else columns  # of a convolution's window
    assert columns in (config.conv_kernel, config.conv_kernel - 1)
    assert taken == {
        (MambaState, torch.float32): 3 * sizes.ssm_state_bytes(config),
        (MambaState, torch.bfloat16): 3 * sizes.conv_state_bytes(config, columns),
        (KeyValues, torch.bfloat16): 3 * 7 * sizes.kv_bytes_per_token(config),
    }


def test_a_tied_head_is_counted_once():
    fields = {"vocab_size": 50, "hidden_size": 8, "hybrid_override_pattern": "-"}
    untied = sizes.parameters(HybridConfig(**fields))
    assert untied - sizes.parameters(HybridConfig(**fields, tie_word_embeddings=True)) == 50 * 8


@pytest.mark.parametrize("name", RELEASED)
def test_text_sizes_are_built_as_language_models(name):
    with torch.device("meta"):
        model = build(name)
    assert type(model) is HybridForCausalLM
    assert sum(p.numel() for p in model.parameters()) == RELEASED[name].parameters


def test_nano_trains_and_answers():
    torch.manual_seed(0)
    model = build("nano")
    assert type(model) is HybridVLM
    config = model.config
    ids_BL = torch.full((1, config.video_frames * model.tokens_per_frame + 4), config.video_token_id)
    ids_BL[0, :2], ids_BL[0, -2:] = 10, 11
    frames = torch.zeros(config.video_frames, 100, 80, 3, dtype=torch.uint8)
    labels_BL = torch.where(ids_BL == 11, ids_BL, -100)
    loss = model(input_ids=ids_BL, pixel_values=model.preprocess(frames), labels=labels_BL).loss
    loss.backward()
    assert 0 < loss.item() < 12
    assert all(p.grad is not None for p in model.parameters())


def test_nano_is_small_and_sees_enough():
    model = build("nano")
    config = model.config
    assert sum(p.numel() for p in model.parameters()) <= 15_000_000
    assert config.video_frames >= 8 and config.vision_config.image_size >= 64
    pattern = config.text_config.hybrid_override_pattern
    assert pattern[0] == "M" and pattern[-1] == "-" and pattern.count("*") == pattern.count("*-") > 0


def test_unknown_size_lists_the_known():
    with pytest.raises(UserError, match=r"no size 'mega': wanted one of nano, .*nemotron-h-8b"):
        build("mega")
