"""Shapes of the hybrid model: a pattern string -> layers; text, vision and composite configurations.

`place` writes the pattern by the Nemotron-H rule, `parse_pattern` reads any pattern over M (Mamba-2), - (FFN) and
* (attention). Field names are those of transformers' `nemotron_h` wherever the meaning is the same.
"""

from __future__ import annotations

import math
from typing import Any

from transformers import PreTrainedConfig

from cosmos_reason.errors import UserError

LAYER_TYPES = {"M": "linear_attention", "-": "mlp", "*": "full_attention"}  # names of `nemotron_h`
_UNSUPPORTED = ("attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias")
_WHOLE = (
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
)
_POSITIVE = ("layer_norm_epsilon", "initializer_range", "time_step_min", "time_step_max", "time_step_floor")
_SWITCHES = ("use_conv_bias", "rescale_prenorm_residual", "tie_word_embeddings")


def parse_pattern(pattern: str) -> list[str]:
    """Layer types of a pattern. Example: ``"M-*-"`` → ["linear_attention", "mlp", "full_attention", "mlp"]."""
    unknown = sorted(set(pattern) - set(LAYER_TYPES)) if isinstance(pattern, str) else [type(pattern).__name__]
    if unknown or not pattern:
        got = f"{' '.join(unknown)} in {pattern!r}" if unknown else "an empty pattern"
        raise UserError(
            f"hybrid_override_pattern: wanted a string over M (Mamba-2), - (FFN) and * (attention), got {got}; "
            "write one character a layer (there are no experts E, and marks such as | and / are no layers)"
        )
    return [LAYER_TYPES[symbol] for symbol in pattern]


def place(pairs: int, attention: int, first: int | None = None, step: int | None = None) -> str:
    """The Nemotron-H rule: `pairs` times ``M-``, and ``M*-`` in pair number first + step · k, k = 0 … attention − 1.

    Mamba-2 comes first, an FFN last, attention stands directly before an FFN and is evenly spread. The released 8B is
    ``place(24, 4, 4, 5)`` and the 56B ``place(54, 10, 4, 5)``. By default the step is pairs // attention (at least 1)
    and the first attention pair is the one that leaves equal room at both ends.
    """
    if not 0 <= attention <= pairs or pairs < 1:
        raise UserError(f"wanted at least one pair and at most one attention layer a pair, got {pairs} and {attention}")
    step = max(1, pairs // max(attention, 1)) if step is None else step
    spread = step * (attention - 1)
    first = max(1, (pairs - spread + 1) // 2) if first is None else first
    at = {first + step * k for k in range(attention)}
    if at and not 1 <= min(at) <= max(at) <= pairs:
        raise UserError(f"attention in pairs {sorted(at)} does not fit into {pairs} pairs; lower first or step")
    return "".join("M*-" if pair in at else "M-" for pair in range(1, pairs + 1))


class HybridConfig(PreTrainedConfig):
    """The decoder. Widths in channels, `time_step_*` in tokens; the Mamba inner width is heads × head_dim."""

    model_type = "cosmos_reason_hybrid_text"
    base_config_key = "text_config"

    vocab_size: int = 2048
    hidden_size: int = 256
    hybrid_override_pattern: str = "M-M*-"
    intermediate_size: int = 768
    num_attention_heads: int = 8
    num_key_value_heads: int = 2
    head_dim: int = 32
    ssm_state_size: int = 64
    mamba_num_heads: int = 8
    mamba_head_dim: int = 64
    n_groups: int = 1
    conv_kernel: int = 4
    use_conv_bias: bool = True
    chunk_size: int = 64  # longest chunk of the scan; the result does not depend on it
    time_step_min: float = 0.001  # range of the initial time steps
    time_step_max: float = 0.1
    time_step_floor: float = 1e-4
    time_step_limit: list[float] | tuple[float, float] = (0.0, math.inf)  # clamp of the time step, on every path
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.5  # of embeddings; linear layers start with a spread of 1 / √inputs
    rescale_prenorm_residual: bool = True  # output projections start smaller by sqrt(number of layers)
    tie_word_embeddings: bool = False  # the head reads out with the embedding table; not in the video model
    pad_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 2

    def __post_init__(self, **kwargs: Any) -> None:
        if refused := [name for name in _UNSUPPORTED if kwargs.get(name)]:
            raise UserError(f"{', '.join(refused)}: linear layers have no bias here; leave it out")
        parse_pattern(self.hybrid_override_pattern)
        self._check_kinds()
        self._check_relations()
        super().__post_init__(**kwargs)

    def _check_kinds(self) -> None:
        """Every field by itself."""
        for name in _WHOLE:
            whole(name, getattr(self, name), 1)
        for name in _POSITIVE:
            if not (_is_number(value := getattr(self, name)) and 0 < value < math.inf):
                raise UserError(f"{name}: wanted a number above 0, got {value!r}")
        for name in _SWITCHES:
            if not isinstance(value := getattr(self, name), bool):
                raise UserError(f"{name}: wanted true or false, got {value!r}")
        limit = self.time_step_limit
        if not (isinstance(limit, list | tuple) and len(limit) == 2 and all(_is_number(end) for end in limit)):
            raise UserError(f"time_step_limit: wanted two numbers, low and high, got {limit!r}")
        self.time_step_limit = (float(limit[0]), float(limit[1]))

    def _check_relations(self) -> None:
        """What must hold between fields."""
        _divides("n_groups", self.n_groups, "mamba_num_heads", self.mamba_num_heads)
        _divides("num_key_value_heads", self.num_key_value_heads, "num_attention_heads", self.num_attention_heads)
        if not 0 <= self.time_step_limit[0] < self.time_step_limit[1]:
            raise UserError(f"time_step_limit: wanted 0 ≤ low < high, got {self.time_step_limit}")
        if self.time_step_min > self.time_step_max:
            raise UserError(
                f"time_step_min, time_step_max: wanted min ≤ max, got {self.time_step_min}, {self.time_step_max}"
            )
        ends = self.eos_token_id if isinstance(self.eos_token_id, list | tuple) else [self.eos_token_id]
        for name, ids in (("pad_token_id", [self.pad_token_id]), ("eos_token_id", ends)):
            for token in ids:
                if token is not None and whole(name, token, 0) >= self.vocab_size:
                    raise UserError(f"{name}: {token} is outside the vocabulary of vocab_size {self.vocab_size}")

    @property
    def layers_block_type(self) -> list[str]:
        """One of "linear_attention", "mlp", "full_attention" a layer."""
        return parse_pattern(self.hybrid_override_pattern)

    @property
    def num_hidden_layers(self) -> int:
        """Layers, one norm + one mixer + one residual each."""
        return len(self.hybrid_override_pattern)

    @property
    def mamba_inner_size(self) -> int:
        """Channels inside a Mamba-2 layer."""
        return self.mamba_num_heads * self.mamba_head_dim

    @property
    def conv_channels(self) -> int:
        """Channels of the causal convolution: x, B and C."""
        return self.mamba_inner_size + 2 * self.n_groups * self.ssm_state_size


class VisionConfig(PreTrainedConfig):
    """The frame encoder. Sizes in pixels; `stem` is "patch" (one strided convolution) or "conv" (three of stride 2)."""

    model_type = "cosmos_reason_hybrid_vision"
    base_config_key = "vision_config"

    image_size: int = 64
    num_channels: int = 3
    stem_frames: int = 1  # frames the stem sees at once: the frame itself and those before it; 2 or more show motion
    stem: str = "conv"
    patch_size: int = 8  # of either stem; the convolutional one has stride 2 · 2 · 2
    stem_norm: bool = True  # GroupNorm after each stride-2 convolution but the last
    hidden_size: int = 192
    num_hidden_layers: int = 4
    num_attention_heads: int = 6
    intermediate_size: int = 576
    layer_norm_eps: float = 1e-6
    layer_scale_init: float = 0.1
    initializer_range: float = 0.02
    downsample: int = 2  # pixel shuffle: downsample² neighbouring patches become one token
    image_mean: list[float] | tuple[float, ...] = (0.485, 0.456, 0.406)
    image_std: list[float] | tuple[float, ...] = (0.229, 0.224, 0.225)

    def __post_init__(self, **kwargs: Any) -> None:
        if self.stem not in ("patch", "conv"):
            raise UserError(f'stem: wanted "patch" or "conv", got {self.stem!r}')
        if self.stem == "conv" and self.patch_size != 8:
            raise UserError(f"patch_size: the conv stem reduces by 8, got {self.patch_size}; set 8 or take stem patch")
        if self.stem_frames < 1:
            raise UserError(f"stem_frames: wanted 1 or more, got {self.stem_frames}")
        _divides("patch_size × downsample", self.patch_size * self.downsample, "image_size", self.image_size)
        _divides("num_attention_heads", self.num_attention_heads, "hidden_size", self.hidden_size)
        self.image_mean, self.image_std = tuple(self.image_mean), tuple(self.image_std)
        super().__post_init__(**kwargs)

    @property
    def grid(self) -> int:
        """Patches along one side."""
        return self.image_size // self.patch_size

    @property
    def stem_channels(self) -> int:
        """Channels of the encoder's input."""
        return self.num_channels * self.stem_frames

    @property
    def tokens_per_frame(self) -> int:
        """Tokens that one frame costs in the decoder."""
        return (self.grid // self.downsample) ** 2

    @property
    def feature_size(self) -> int:
        """Channels of one feature after the pixel shuffle."""
        return self.hidden_size * self.downsample**2


class HybridVLMConfig(PreTrainedConfig):
    """Vision encoder, projector and decoder, and the ids at which features replace embeddings."""

    model_type = "cosmos_reason_hybrid"
    sub_configs_defaults = {"text_config": HybridConfig, "vision_config": VisionConfig}  # type: ignore[dict-item]  # noqa: RUF012

    # None or a dict, as read from JSON, becomes the configuration object on construction.
    text_config: HybridConfig = None  # type: ignore[assignment]
    vision_config: VisionConfig = None  # type: ignore[assignment]
    projector_size: int = 512
    video_token_id: int = 5
    image_token_id: int = 6
    video_frames: int = 8  # frames a clip is sampled to

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        if kwargs.get("tie_word_embeddings") or self.text_config.tie_word_embeddings:
            raise UserError("tie_word_embeddings: the head of the video model is untied; leave it out")
        for name in ("projector_size", "video_frames"):
            whole(name, getattr(self, name), 1)
        largest = max(whole(name, getattr(self, name), 0) for name in ("video_token_id", "image_token_id"))
        if largest >= self.text_config.vocab_size:
            raise UserError(f"placeholder id {largest} is outside the vocabulary of {self.text_config.vocab_size}")


def whole(name: str, value: object, least: int) -> int:
    """`value` if it is a whole number of at least `least`; otherwise the caller's mistake."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"{name}: wanted a whole number, {least} or more, got {value!r}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _divides(small_name: str, small: int, large_name: str, large: int) -> None:
    if small < 1 or large % small:
        raise UserError(f"{large_name} {large} is not a multiple of {small_name} {small}; change one of them")
