"""Named sizes: name -> configuration -> fresh model with random weights, and what a model of a configuration takes.

`nano` is ours and sees videos; the others are the released Nemotron-H decoders (arXiv 2504.03624; the 47B is pruned
from the 56B, the 4B from the 8B, arXiv 2504.11409) and read text only. `SIZES` lists them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cosmos_reason.errors import UserError
from cosmos_reason.model.causal_lm import HybridForCausalLM
from cosmos_reason.model.config import HybridConfig, HybridVLMConfig, VisionConfig, place
from cosmos_reason.model.vlm import HybridVLM

# The 47B and the 9B are results of a search: no rule gives their patterns.
_PATTERN_47B = (
    "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-M-M---MM---M-M*-M-M-M-M-M-"  # 98 layers
)
_PATTERN_9B = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"


def nano() -> HybridVLMConfig:
    """The shipped model: 8 frames of 64×64, 16 tokens a frame, small enough to be trained on two cores."""
    text = HybridConfig(
        vocab_size=2048,
        hidden_size=192,
        hybrid_override_pattern=place(4, 2, first=2, step=2),
        intermediate_size=576,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        ssm_state_size=64,
        mamba_num_heads=4,
        mamba_head_dim=64,
        n_groups=1,
    )
    vision = VisionConfig(
        stem_frames=2,
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=384,
        layer_scale_init=1.0,
    )
    return HybridVLMConfig(text_config=text, vision_config=vision, projector_size=384)


def _released(**fields: Any) -> HybridConfig:
    """What all released sizes share, and what one has of its own."""
    shared = {
        "vocab_size": 131072,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "ssm_state_size": 128,
        "mamba_head_dim": 64,
        "n_groups": 8,
        "chunk_size": 128,
        "initializer_range": 0.02,
    }
    return HybridConfig(**{**shared, **fields})


def nemotron_h_8b() -> HybridConfig:
    """24 Mamba-2, 24 FFN and 4 attention layers."""
    return _released(
        hidden_size=4096,
        hybrid_override_pattern=place(24, 4, first=4, step=5),
        intermediate_size=21504,
        num_attention_heads=32,
        mamba_num_heads=128,
    )


def nemotron_h_56b() -> HybridConfig:
    """54 Mamba-2, 54 FFN and 10 attention layers."""
    return _released(
        hidden_size=8192,
        hybrid_override_pattern=place(54, 10, first=4, step=5),
        intermediate_size=32768,
        num_attention_heads=64,
        ssm_state_size=256,
        mamba_num_heads=256,
    )


def nemotron_h_47b() -> HybridConfig:
    """The 56B without 9 Mamba-2, 6 FFN and 5 attention layers and with narrower FFNs (MiniPuzzle)."""
    return _released(
        hidden_size=8192,
        hybrid_override_pattern=_PATTERN_47B,
        intermediate_size=30720,
        num_attention_heads=64,
        ssm_state_size=256,
        mamba_num_heads=256,
    )


def nemotron_h_4b() -> HybridConfig:
    """The 8B, narrower; the Mamba inner width, 112 · 64, is not 2 · hidden."""
    return _released(
        hidden_size=3072,
        hybrid_override_pattern=place(24, 4, first=4, step=5),
        intermediate_size=12288,
        num_attention_heads=32,
        mamba_num_heads=112,
    )


def nemotron_nano_9b_v2() -> HybridConfig:
    """27 Mamba-2, 25 FFN and 4 attention layers, pruned from the 12B."""
    return _released(
        hidden_size=4480,
        hybrid_override_pattern=_PATTERN_9B,
        intermediate_size=15680,
        num_attention_heads=40,
        mamba_num_heads=128,
        mamba_head_dim=80,
    )


def nemotron_nano_12b_v2() -> HybridConfig:
    """28 Mamba-2, 28 FFN and 6 attention layers."""
    return _released(
        hidden_size=5120,
        hybrid_override_pattern=place(28, 6, first=4, step=4),
        intermediate_size=20480,
        num_attention_heads=40,
        mamba_num_heads=128,
        mamba_head_dim=80,
    )


SIZES: dict[str, Callable[[], HybridVLMConfig] | Callable[[], HybridConfig]] = {
    "nano": nano,
    "nemotron-h-4b": nemotron_h_4b,
    "nemotron-h-8b": nemotron_h_8b,
    "nemotron-h-47b": nemotron_h_47b,
    "nemotron-h-56b": nemotron_h_56b,
    "nemotron-nano-9b-v2": nemotron_nano_9b_v2,
    "nemotron-nano-12b-v2": nemotron_nano_12b_v2,
}


def build(name: str) -> Any:  # the name decides: a HybridVLM for a size that sees, a HybridForCausalLM for one of text
    """A fresh model of a named size in fp32, 4 bytes a parameter; seed torch before for repeatable weights."""
    if name not in SIZES:
        raise UserError(f"no size {name!r}: wanted one of {', '.join(SIZES)}")
    config = SIZES[name]()
    return HybridVLM(config) if isinstance(config, HybridVLMConfig) else HybridForCausalLM(config)


def parameters(config: HybridConfig) -> int:
    """Parameters with embeddings and head, a tied head counted once; the model is made without memory."""
    with torch.device("meta"):
        model = HybridForCausalLM(config)
    return sum(p.numel() for p in model.parameters())


def kv_bytes_per_token(config: HybridConfig, dtype_bytes: int = 2) -> int:
    """Keys and values that one token adds to the cache, over all attention layers; by default in bf16."""
    layers = config.hybrid_override_pattern.count("*")
    return layers * 2 * config.num_key_value_heads * config.head_dim * dtype_bytes


def ssm_state_bytes(config: HybridConfig, dtype_bytes: int = 4) -> int:
    """Recurrent state of one sequence of any length, over all Mamba-2 layers; by default in fp32."""
    layers = config.hybrid_override_pattern.count("M")
    return layers * config.mamba_num_heads * config.mamba_head_dim * config.ssm_state_size * dtype_bytes


def conv_state_bytes(config: HybridConfig, columns: int | None = None, dtype_bytes: int = 2) -> int:
    """Convolution windows of one sequence, over all Mamba-2 layers; by default in bf16.

    columns: what one layer keeps. By default conv_kernel, as published figures and transformers count them; with the
    newest column at hand, conv_kernel − 1 are enough.
    """
    layers = config.hybrid_override_pattern.count("M")
    kept = config.conv_kernel if columns is None else columns
    return layers * kept * config.conv_channels * dtype_bytes
