"""The configuration of transformers' `nemotron_h` and ours: config.json <-> HybridConfig, as plain dictionaries.

Followed: transformers 5.24 `NemotronHConfig`, which took its names from NVIDIA's own files; both name sets are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosmos_reason.errors import UserError
from cosmos_reason.model.config import LAYER_TYPES, HybridConfig, parse_pattern

MODEL_TYPE = "nemotron_h"

# Fields that mean the same on both sides, with the value that stands for a missing one over there.
DEFAULTS: dict[str, Any] = {
    "vocab_size": 131072,
    "hidden_size": 4096,
    "intermediate_size": 21504,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "ssm_state_size": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "conv_kernel": 4,
    "use_conv_bias": True,
    "chunk_size": 128,
    "time_step_min": 0.001,
    "time_step_max": 0.1,
    "time_step_floor": 1e-4,
    "time_step_limit": (0.0, float("inf")),
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
    "rescale_prenorm_residual": True,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
    "eos_token_id": 2,
}
ALIASES = {  # `expand` and `mamba_expand` are left out: the inner width is heads × head dim, also over there
    "attention_head_dim": "head_dim",
    "mamba_n_groups": "n_groups",
    "mamba_d_conv": "conv_kernel",
    "mamba_dt_min": "time_step_min",
    "mamba_dt_max": "time_step_max",
    "mamba_dt_limit": "time_step_limit",
    "mamba_dt_init_floor": "time_step_floor",
    "mamba_conv_bias": "use_conv_bias",
    "mamba_chunk_size": "chunk_size",
    "rms_norm_eps": "layer_norm_epsilon",
}
LAYER_LISTS = ("layers_block_type", "layer_types")
SYMBOLS = {name: symbol for symbol, name in LAYER_TYPES.items()} | {"mamba": "M", "attention": "*"}
# Fields that change results and that we have only one value of; the first is what we write. `residual_in_fp32` and
# `mamba_ssm_cache_dtype` are left out: they are about rounding, and transformers itself does not read them.
ONLY: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "use_bias": (False, None),
    "mamba_proj_bias": (False, None),
    "num_nextn_predict_layers": (0, None),
    "mlp_hidden_act": ("relu2",),
    "mamba_hidden_act": ("silu", "swish"),
    "attention_dropout": (0.0, None),
    "hidden_dropout": (0.0, None),
    "sliding_window": (None,),
    "quantization_config": (None,),
}
CARRIED = ("bos_token_id", "max_position_embeddings")  # of no use here, kept for whoever reads the folder next
# transformers 5.24 clamps time steps to at least `time_step_min` in prefill, though the field is about initialisation.
# `save` therefore writes one that clamps nothing, and the true value under a name of ours.
HARMLESS_STEP, OUR_STEP = 1e-20, "initial_time_step_min"


def config_from_nemotron(theirs: Mapping[str, Any]) -> HybridConfig:
    """Our configuration of a `nemotron_h` config.json, under any of its names; what we lack is refused by its name.

    The time step is clamped to `time_step_limit`; `time_step_min` and `_max` are the range of initial ones only.
    """
    for name, allowed in ONLY.items():
        if name in theirs and theirs[name] not in allowed:
            raise UserError(
                f"{name}: wanted {allowed[0]!r}, got {theirs[name]!r}; a model with it would answer differently here"
            )
    fields = {name: _agreed(theirs, name) for name in DEFAULTS}
    if fields["num_key_value_heads"] is None:  # older files leave out what equals the number of heads
        fields["num_key_value_heads"] = fields["num_attention_heads"]
    if OUR_STEP in theirs:
        fields["time_step_min"] = theirs[OUR_STEP]
    carried = {name: theirs[name] for name in CARRIED if theirs.get(name) is not None}
    return HybridConfig(hybrid_override_pattern=_pattern(theirs), **fields, **carried)


def config_to_nemotron(config: HybridConfig) -> dict[str, Any]:
    """The `nemotron_h` config.json of a configuration; `config_from_nemotron` gives the configuration back.

    transformers 5.24 does not read `time_step_limit`; other readers of the format and this module do.
    """
    fields = {name: getattr(config, name) for name in DEFAULTS}
    fields["time_step_limit"] = list(config.time_step_limit)
    return {
        "model_type": MODEL_TYPE,
        "architectures": ["NemotronHForCausalLM"],
        "hybrid_override_pattern": config.hybrid_override_pattern,
        "layers_block_type": config.layers_block_type,
        "num_hidden_layers": config.num_hidden_layers,
        **fields,
        **{name: allowed[0] for name, allowed in ONLY.items() if allowed[0] is not None},
        **{name: getattr(config, name) for name in CARRIED if hasattr(config, name)},
    }


def _agreed(theirs: Mapping[str, Any], name: str) -> Any:
    """The value of a field under whichever of its names; two names with two values are refused."""
    given = {n: theirs[n] for n in (name, *(a for a, meant in ALIASES.items() if meant == name)) if n in theirs}
    if any(value != next(iter(given.values())) for value in given.values()):
        both = ", ".join(f"{n} {value!r}" for n, value in given.items())
        raise UserError(f"{name}: wanted one value, got {both}; keep one of them")
    return next(iter(given.values()), DEFAULTS[name])


def _pattern(theirs: Mapping[str, Any]) -> str:
    """One character a layer, from the list of layer types or the pattern, which must agree where both are given."""
    given = {name: _symbols(name, theirs[name]) for name in LAYER_LISTS if theirs.get(name) is not None}
    if (pattern := theirs.get("hybrid_override_pattern")) is not None:
        parse_pattern(pattern)
        given["hybrid_override_pattern"] = pattern
    if not given:
        raise UserError("layers_block_type: neither it nor hybrid_override_pattern is given; add one of them")
    if len(set(given.values())) > 1:
        raise UserError(f"{' and '.join(given)}: wanted the same layers in all of them; keep one")
    pattern = next(iter(given.values()))
    layers = theirs.get("num_hidden_layers")
    if layers is not None and layers != len(pattern):
        raise UserError(f"num_hidden_layers: wanted {len(pattern)}, the length of {next(iter(given))}, got {layers!r}")
    return pattern


def _symbols(name: str, types: Any) -> str:
    known = isinstance(types, list | tuple) and bool(types)
    unknown = sorted({str(t) for t in types} - SYMBOLS.keys()) if known else [repr(types)]
    if unknown:
        raise UserError(
            f"{name}: wanted a list of {', '.join(LAYER_TYPES.values())}, got {', '.join(unknown)}; "
            "there are no experts here"
        )
    return "".join(SYMBOLS[str(t)] for t in types)
