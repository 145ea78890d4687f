"""Configurations of `nemotron_h` and ours: every name, both directions, and what is refused by its field."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from transformers import NemotronHConfig

from cosmos_reason.errors import UserError
from cosmos_reason.model import nemotron
from cosmos_reason.model.config import HybridConfig
from cosmos_reason.model.nemotron import config_from_nemotron, config_to_nemotron
from cosmos_reason.model.sizes import SIZES
from tests.model import twin

ODD = {  # every field away from its default, on either side
    "vocab_size": 41,
    "conv_kernel": 3,
    "use_conv_bias": False,
    "chunk_size": 5,
    "time_step_min": 0.002,
    "time_step_max": 0.2,
    "time_step_floor": 3e-4,
    "time_step_limit": (0.01, 4.0),
    "layer_norm_epsilon": 1e-6,
    "initializer_range": 0.03,
    "rescale_prenorm_residual": False,
    "tie_word_embeddings": True,
    "pad_token_id": None,
    "eos_token_id": [2, 11],
}
# config.json as NVIDIA wrote it for the 8B: older names, and much that concerns other code.
RELEASED_8B = {
    "architectures": ["NemotronHForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attention_head_dim": 128,
    "auto_map": {"AutoConfig": "configuration_nemotron_h.NemotronHConfig"},
    "bos_token_id": 1,
    "chunk_size": 128,
    "conv_kernel": 4,
    "eos_token_id": 2,
    "expand": 2,
    "hidden_dropout": 0.0,
    "hidden_size": 4096,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    "initializer_range": 0.02,
    "intermediate_size": 21504,
    "layer_norm_epsilon": 1e-05,
    "mamba_head_dim": 64,
    "mamba_hidden_act": "silu",
    "mamba_num_heads": 128,
    "mamba_proj_bias": False,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "mlp_hidden_act": "relu2",
    "model_type": "nemotron_h",
    "n_groups": 8,
    "num_attention_heads": 32,
    "num_hidden_layers": 52,
    "num_key_value_heads": 8,
    "num_logits_to_keep": 1,
    "pad_token_id": 0,
    "rescale_prenorm_residual": True,
    "residual_in_fp32": False,
    "rms_norm_eps": 1e-05,
    "sliding_window": None,
    "ssm_state_size": 128,
    "tie_word_embeddings": False,
    "time_step_floor": 0.0001,
    "time_step_limit": [0.0, math.inf],
    "time_step_max": 0.1,
    "time_step_min": 0.001,
    "time_step_rank": 256,
    "torch_dtype": "bfloat16",
    "use_bias": False,
    "use_cache": True,
    "use_conv_bias": True,
    "use_mamba_kernels": True,
    "vocab_size": 131072,
}


def theirs(**changes) -> dict:
    fields = config_to_nemotron(twin.text_config()) | changes
    return {name: value for name, value in fields.items() if value != "left out"}


def refusal(fields: dict) -> str:
    with pytest.raises(UserError) as caught:
        config_from_nemotron(fields)
    sentence = str(caught.value)
    assert "\n" not in sentence and ". " not in sentence
    return sentence


def test_missing_fields_have_the_value_they_have_over_there():
    fields = {f.name: f.default for f in dataclasses.fields(NemotronHConfig)}
    assert {name: fields[name] for name in nemotron.DEFAULTS} == nemotron.DEFAULTS


def test_the_released_8b_is_our_8b():
    config = config_from_nemotron(RELEASED_8B)
    expected = SIZES["nemotron-h-8b"]().to_dict() | {"bos_token_id": 1, "max_position_embeddings": 8192}
    assert config.to_dict() == expected


@pytest.mark.parametrize("name", [name for name, size in SIZES.items() if isinstance(size(), HybridConfig)])
def test_every_size_comes_back(name):
    config = SIZES[name]()
    assert config_from_nemotron(config_to_nemotron(config)).to_dict() == config.to_dict()


def test_every_field_comes_back():
    config = twin.text_config(**ODD)
    again = config_from_nemotron(json.loads(json.dumps(config_to_nemotron(config))))
    assert again.to_dict() == config.to_dict()
    assert again.time_step_limit == (0.01, 4.0)
    changed = {name for name, value in nemotron.DEFAULTS.items() if getattr(config, name) != value}
    assert changed == nemotron.DEFAULTS.keys()


def test_what_they_wrote_comes_back():
    again = config_to_nemotron(config_from_nemotron(RELEASED_8B))
    of_others = {"attention_head_dim", "auto_map", "expand", "num_logits_to_keep", "residual_in_fp32", "rms_norm_eps"}
    of_others |= {"sliding_window", "time_step_rank", "torch_dtype", "use_cache", "use_mamba_kernels"}
    assert {name: again.get(name) for name in RELEASED_8B.keys() - of_others} == {
        name: value for name, value in RELEASED_8B.items() if name not in of_others
    }


def test_transformers_reads_the_same_from_what_we_write():
    config = twin.text_config(**ODD)
    read = NemotronHConfig(**config_to_nemotron(config))
    assert read.hybrid_override_pattern == config.hybrid_override_pattern
    for name in nemotron.DEFAULTS:
        want = getattr(config, name)
        assert getattr(read, name) == (list(want) if isinstance(want, tuple) else want), name
    theirs_of_their_own = {"bos_token_id": 1, "max_position_embeddings": 4096}
    assert config_from_nemotron(read.to_dict()).to_dict() == config.to_dict() | theirs_of_their_own


@pytest.mark.parametrize(
    ("alias", "name", "value"),
    [
        ("attention_head_dim", "head_dim", 6),
        ("mamba_n_groups", "n_groups", 4),
        ("mamba_d_conv", "conv_kernel", 3),
        ("mamba_dt_min", "time_step_min", 0.003),
        ("mamba_dt_max", "time_step_max", 0.3),
        ("mamba_dt_limit", "time_step_limit", [0.1, 2.0]),
        ("mamba_dt_init_floor", "time_step_floor", 0.002),
        ("mamba_conv_bias", "use_conv_bias", False),
        ("mamba_chunk_size", "chunk_size", 16),
        ("rms_norm_eps", "layer_norm_epsilon", 1e-6),
    ],
)
def test_older_names(alias, name, value):
    config = config_from_nemotron(theirs(**{name: "left out", alias: value}))
    assert getattr(config, name) == (tuple(value) if isinstance(value, list) else value)
    assert refusal(theirs(**{alias: value})).startswith(f"{name}: wanted one value, got {name} ")


@pytest.mark.parametrize("name", ["layers_block_type", "layer_types"])
@pytest.mark.parametrize("words", [("linear_attention", "full_attention"), ("mamba", "attention")])
def test_lists_of_layers(name, words):
    mamba, attention = words
    layers = [mamba, "mlp", mamba, attention, "mlp"]
    others = {"layers_block_type": "left out", "hybrid_override_pattern": "left out"}
    assert config_from_nemotron(theirs(**others | {name: layers})).hybrid_override_pattern == "M-M*-"


def test_pattern_alone_and_beside_the_list():
    assert config_from_nemotron(theirs(layers_block_type="left out")).hybrid_override_pattern == "M-M*-"
    assert config_from_nemotron(theirs(layers_block_type=None)).hybrid_override_pattern == "M-M*-"
    assert "wanted the same layers in all" in refusal(theirs(hybrid_override_pattern="MMM*-"))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"layers_block_type": ["mamba", "moe"]},
            "layers_block_type: wanted a list of linear_attention, mlp, full_att",
        ),
        ({"layers_block_type": []}, "layers_block_type: wanted a list"),
        ({"layers_block_type": "M-"}, "layers_block_type: wanted a list"),
        ({"layers_block_type": [["mamba"]]}, "layers_block_type: wanted a list"),
        ({"layers_block_type": None, "hybrid_override_pattern": "ME*-"}, "hybrid_override_pattern: wanted a string"),
        ({"layers_block_type": None, "hybrid_override_pattern": "M-|M-"}, "hybrid_override_pattern: wanted a string"),
        ({"layers_block_type": None, "hybrid_override_pattern": None}, "layers_block_type: neither it nor"),
        ({"num_hidden_layers": 7}, "num_hidden_layers: wanted 5, the length of layers_block_type, got 7"),
    ],
)
def test_layers_that_are_refused(fields, sentence):
    assert refusal(theirs(**fields)).startswith(sentence)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attention_bias", True),
        ("mlp_bias", True),
        ("use_bias", True),
        ("mamba_proj_bias", True),
        ("num_nextn_predict_layers", 1),
        ("mlp_hidden_act", "silu"),
        ("mamba_hidden_act", "gelu"),
        ("attention_dropout", 0.1),
        ("hidden_dropout", 0.1),
        ("sliding_window", 4096),
        ("quantization_config", {"quant_method": "fp8"}),
    ],
)
def test_what_we_lack_is_refused_by_name(name, value):
    assert refusal(theirs(**{name: value})).startswith(f"{name}: wanted ")


@pytest.mark.parametrize("name", ["hidden_size", "n_groups", "head_dim", "vocab_size", "conv_kernel", "chunk_size"])
def test_bad_numbers_are_refused_by_name(name):
    assert refusal(theirs(**{name: 0})).startswith(f"{name}: wanted a whole number")
    assert refusal(theirs(**{name: None})).startswith(f"{name}: wanted a whole number")


def test_rounding_of_residuals_and_of_the_cache_is_not_ours_to_refuse():
    fields = theirs(residual_in_fp32=True, mamba_ssm_cache_dtype="bfloat16", num_key_value_heads=None)
    assert config_from_nemotron(fields).num_key_value_heads == 4
