"""Named sizes: name -> configuration -> fresh model with random weights."""

from __future__ import annotations

from collections.abc import Callable

from cosmos_reason.errors import UserError
from cosmos_reason.model.config import HybridConfig, HybridVLMConfig, VisionConfig, place
from cosmos_reason.model.vlm import HybridVLM


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


SIZES: dict[str, Callable[[], HybridVLMConfig]] = {"nano": nano}


def build(name: str) -> HybridVLM:
    """A fresh model of a named size; seed torch before for repeatable weights."""
    if name not in SIZES:
        raise UserError(f"no size {name!r}: wanted one of {', '.join(SIZES)}")
    return HybridVLM(SIZES[name]())
