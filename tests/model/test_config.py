"""The placement rule against the released pattern strings, the parser's words, and what the configurations refuse."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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


@settings(deadline=None, derandomize=True)
@given(depth=st.integers(8, 200), share=st.floats(0, 0.3))
def test_rule_over_depths(depth, share):
    """Asked for a depth and a share of attention: the form of the released patterns, and about that share."""
    attention = round(share * depth)
    pattern = place((depth - attention) // 2, attention)
    assert len(pattern) in (depth, depth - 1)
    assert pattern[0] == "M" and pattern[-1] == "-"
    assert pattern.count("*-") == pattern.count("*") == attention
    assert pattern.count("M") == pattern.count("-")
    assert abs(attention / len(pattern) - share) <= 1 / len(pattern)
    at = [i for i, symbol in enumerate(pattern) if symbol == "*"]
    assert len({b - a for a, b in itertools.pairwise(at)}) <= 1


@pytest.mark.parametrize("arguments", [(0, 0), (2, 3), (4, 2, 4, 2)])
def test_rule_refuses_what_does_not_fit(arguments):
    with pytest.raises(UserError, match="pair"):
        place(*arguments)


def test_parser_takes_any_order():
    assert parse_pattern("*--MM") == ["full_attention", "mlp", "mlp", "linear_attention", "linear_attention"]


@pytest.mark.parametrize("pattern", ["M-|M-", "M/-", "MX", "ME*-", "", "m-", None, ["M", "-"]])
def test_parser_explains_what_it_refuses(pattern):
    with pytest.raises(UserError, match="hybrid_override_pattern: wanted a string over M"):
        parse_pattern(pattern)


def test_inner_width_is_heads_times_head_dim():
    config = HybridConfig(hidden_size=3072, mamba_num_heads=112, mamba_head_dim=64, n_groups=8, ssm_state_size=128)
    assert config.mamba_inner_size == 7168  # not 2 · 3072
    assert config.conv_channels == 9216


WHOLE = [
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "ssm_state_size",
    "mamba_num_heads",
    "mamba_head_dim",
    "n_groups",
    "conv_kernel",
    "chunk_size",
]


def refusal(fields: dict) -> str:
    with pytest.raises(UserError) as caught:
        HybridConfig(**fields)
    sentence = str(caught.value)
    assert "\n" not in sentence and ". " not in sentence
    return sentence


@pytest.mark.parametrize("value", [0, -8, 64.0, "64", None, True])
@pytest.mark.parametrize("name", WHOLE)
def test_sizes_must_be_whole_and_positive(name, value):
    assert refusal({name: value}).startswith(f"{name}: wanted a whole number, 1 or more, got {value!r}")


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "0.1", None, True])
@pytest.mark.parametrize("name", ["layer_norm_epsilon", "initializer_range", "time_step_min", "time_step_max"])
def test_numbers_must_be_above_zero(name, value):
    assert refusal({name: value}).startswith(f"{name}: wanted a number above 0")


@pytest.mark.parametrize("name", ["use_conv_bias", "rescale_prenorm_residual", "tie_word_embeddings"])
def test_switches_are_on_or_off(name):
    assert refusal({name: "no"}).startswith(f"{name}: wanted true or false, got 'no'")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"n_groups": 3}, "mamba_num_heads 8 is not a multiple of n_groups 3"),
        ({"num_key_value_heads": 3}, "num_attention_heads 8 is not a multiple of num_key_value_heads 3"),
        ({"time_step_limit": (1.0, 0.5)}, "time_step_limit: wanted 0 ≤ low < high"),
        ({"time_step_limit": (math.nan, 0.5)}, "time_step_limit: wanted 0 ≤ low < high"),
        ({"time_step_limit": (0.0,)}, "time_step_limit: wanted two numbers"),
        ({"time_step_limit": None}, "time_step_limit: wanted two numbers"),
        ({"time_step_min": 0.2}, "time_step_min, time_step_max: wanted min ≤ max"),
        ({"hybrid_override_pattern": "M|-"}, "hybrid_override_pattern: wanted a string over M"),
        ({"attention_bias": True}, "attention_bias: linear layers have no bias here"),
        ({"use_bias": True, "mlp_bias": True}, "mlp_bias, use_bias: linear layers have no bias here"),
        ({"pad_token_id": 2048}, "pad_token_id: 2048 is outside the vocabulary of vocab_size 2048"),
        ({"pad_token_id": -1}, "pad_token_id: wanted a whole number, 0 or more"),
        ({"eos_token_id": [2, 5000]}, "eos_token_id: 5000 is outside the vocabulary"),
        ({"eos_token_id": "2"}, "eos_token_id: wanted a whole number"),
        ({"vocab_size": 2}, "eos_token_id: 2 is outside the vocabulary of vocab_size 2"),
    ],
)
def test_decoder_refuses(fields, sentence):
    assert refusal(fields).startswith(sentence)


def test_ids_may_be_missing_or_several():
    config = HybridConfig(pad_token_id=None, eos_token_id=[2, 11])
    assert (config.pad_token_id, config.eos_token_id) == (None, [2, 11])


def test_head_of_the_video_model_is_untied():
    for fields in ({"text_config": {"tie_word_embeddings": True}}, {"tie_word_embeddings": True}):
        with pytest.raises(UserError, match="tie_word_embeddings: the head of the video model is untied"):
            HybridVLMConfig(**fields)


@pytest.mark.parametrize(
    "fields", [{"stem": "linear"}, {"patch_size": 4}, {"image_size": 60}, {"num_attention_heads": 5}]
)
def test_encoder_refuses(fields):
    with pytest.raises(UserError):
        VisionConfig(**fields)


def test_placeholder_must_be_in_the_vocabulary():
    with pytest.raises(UserError, match="placeholder id 6 is outside the vocabulary of 6"):
        HybridVLMConfig(text_config=HybridConfig(vocab_size=6))
    with pytest.raises(UserError, match="video_token_id: wanted a whole number, 0 or more, got -1"):
        HybridVLMConfig(video_token_id=-1)


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
