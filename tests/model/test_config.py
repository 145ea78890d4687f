"""The placement rule against the released pattern strings, the parser's words, and what the configurations refuse."""

from __future__ import annotations

import math

import pytest
from transformers import AutoConfig

from cosmos_reason.errors import UserError
from cosmos_reason.model.config import HybridConfig, HybridVLMConfig, VisionConfig, parse_pattern, place
from cosmos_reason.model.sizes import nano

RELEASED_8B = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"


def test_rule_gives_the_released_8b():
    assert place(24, 4, 4, 5) == RELEASED_8B


def test_rule_puts_attention_of_the_56b_where_it_is():
    pattern = place(54, 10, 4, 5)
    assert len(pattern) == 118
    assert [i for i, c in enumerate(pattern) if c == "*"] == [7, 18, 29, 40, 51, 62, 73, 84, 95, 106]


def test_rule_puts_attention_of_the_12b_where_it_is():
    pattern = place(28, 6, 4, 4)
    assert len(pattern) == 62
    assert [i for i, c in enumerate(pattern) if c == "*"] == [7, 16, 25, 34, 43, 52]


@pytest.mark.parametrize("pairs", range(1, 9))
def test_rule_by_default(pairs):
    for attention in range(pairs + 1):
        pattern = place(pairs, attention)
        assert (pattern.count("M"), pattern.count("-"), pattern.count("*")) == (pairs, pairs, attention)
        assert pattern[0] == "M" and pattern[-1] == "-"
        assert pattern.count("*-") == attention


@pytest.mark.parametrize("arguments", [(0, 0), (2, 3), (4, 2, 4, 2)])
def test_rule_refuses_what_does_not_fit(arguments):
    with pytest.raises(UserError, match="pair"):
        place(*arguments)


def test_parser_takes_any_order():
    assert parse_pattern("*--MM") == ["full_attention", "mlp", "mlp", "linear_attention", "linear_attention"]


@pytest.mark.parametrize("pattern", ["M-|M-", "M/-", "MX", "", "m-"])
def test_parser_explains_what_it_refuses(pattern):
    with pytest.raises(UserError, match="hybrid_override_pattern: wanted a string over M"):
        parse_pattern(pattern)


def test_inner_width_is_heads_times_head_dim():
    config = HybridConfig(hidden_size=3072, mamba_num_heads=112, mamba_head_dim=64, n_groups=8, ssm_state_size=128)
    assert config.mamba_inner_size == 7168  # not 2 · 3072
    assert config.conv_channels == 9216


@pytest.mark.parametrize(
    "fields",
    [
        {"n_groups": 3},
        {"num_key_value_heads": 3},
        {"time_step_limit": (1.0, 0.5)},
        {"time_step_min": 0.0},
        {"chunk_size": 0},
        {"hybrid_override_pattern": "M|-"},
        {"attention_bias": True},
        {"tie_word_embeddings": True},
    ],
)
def test_decoder_refuses(fields):
    with pytest.raises(UserError):
        HybridConfig(**fields)


@pytest.mark.parametrize(
    "fields", [{"stem": "linear"}, {"patch_size": 4}, {"image_size": 60}, {"num_attention_heads": 5}]
)
def test_encoder_refuses(fields):
    with pytest.raises(UserError):
        VisionConfig(**fields)


def test_placeholder_must_be_in_the_vocabulary():
    with pytest.raises(UserError, match="placeholder id 6 is outside the vocabulary of 6"):
        HybridVLMConfig(text_config=HybridConfig(vocab_size=6))


def test_saved_and_loaded_configuration_is_the_same(tmp_path):
    config = nano()
    config.text_config.time_step_limit = (0.01, math.inf)
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(loaded, HybridVLMConfig) and isinstance(loaded.text_config, HybridConfig)
    assert loaded.text_config.time_step_limit == (0.01, math.inf)
    assert loaded.text_config.hybrid_override_pattern == config.text_config.hybrid_override_pattern
    assert loaded.vision_config.image_std == config.vision_config.image_std
    assert loaded.to_diff_dict() == config.to_diff_dict()


def test_frame_tokens():
    vision = VisionConfig(image_size=64, patch_size=8, downsample=2, hidden_size=96)
    assert (vision.grid, vision.tokens_per_frame, vision.feature_size) == (8, 16, 384)
