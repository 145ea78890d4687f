"""The video-language model as transformers knows it: ids and frames -> embeddings -> decoder -> logits and loss.

ids -> embeddings; frames -> encoder -> projector -> embeddings at the placeholder ids, in order; decoder; head.

B batch, L tokens, F frames of the whole batch, S tokens a frame, E feature width, D width, V vocabulary, N supervised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    GenerationMixin,
    PreTrainedModel,
)
from transformers import initialization as init
from transformers.utils import ModelOutput

from cosmos_reason.errors import UserError
from cosmos_reason.model import vision
from cosmos_reason.model.attention import Attention
from cosmos_reason.model.backbone import Backbone
from cosmos_reason.model.cache import HybridCache
from cosmos_reason.model.config import HybridConfig, HybridVLMConfig, VisionConfig
from cosmos_reason.model.mamba2 import Mamba2
from cosmos_reason.model.norms import GatedGroupNorm, RMSNorm
from cosmos_reason.model.projector import Projector


@dataclass
class HybridOutput(ModelOutput):
    """`logits` is None where only the loss was asked for."""

    loss: Tensor | None = None
    logits: Tensor | None = None  # (B, kept, V)
    cache: HybridCache | None = None


class HybridVLM(PreTrainedModel, GenerationMixin):
    """Vision encoder, projector and hybrid decoder with an untied head."""

    config_class = HybridVLMConfig
    config: HybridVLMConfig
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _no_split_modules = ["Layer", "VisionBlock"]  # noqa: RUF012
    _keep_in_fp32_modules_strict = ["A_log", "D", "dt_bias"]  # noqa: RUF012
    _supports_sdpa = True
    _is_stateful = True  # the recurrent state cannot be cut back: no assisted generation

    def __init__(self, config: HybridVLMConfig) -> None:
        super().__init__(config)
        self.vision = vision.VisionEncoder(config.vision_config)
        self.projector = Projector(config)
        self.backbone = Backbone(config.text_config)
        self.lm_head = nn.Linear(config.text_config.hidden_size, config.text_config.vocab_size, bias=False)
        self.post_init()
        self._set_generation_ids()

    @property
    def tokens_per_frame(self) -> int:
        """Placeholder ids that one frame stands for."""
        return self.config.vision_config.tokens_per_frame

    def get_input_embeddings(self) -> nn.Module:
        """The decoder's embedding table."""
        return self.backbone.embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embedding table."""
        assert isinstance(value, nn.Embedding), f"wanted an embedding table, got {type(value).__name__}"
        self.backbone.embeddings = value

    def normalise(self, pixels_NTHWC: Tensor) -> Tensor:
        """uint8 clips of the encoder's size (N, T, H, W, 3) -> float32 (N · T, C, H, W) as the encoder takes them."""
        if pixels_NTHWC.ndim != 5:
            raise UserError(f"pixels: wanted clips (N, T, H, W, 3), got {tuple(pixels_NTHWC.shape)}")
        pixels = vision.with_past(pixels_NTHWC, self.config.vision_config)
        return vision.normalise(pixels.flatten(0, 1), self.config.vision_config)

    def preprocess(self, pixels_THWC: np.ndarray | Tensor) -> Tensor:
        """uint8 frames of one video, any size -> float32 (T, C, H, W) as the encoder takes them."""
        return vision.preprocess(pixels_THWC, self.config.vision_config)

    def encode_frames(self, pixels_FCHW: Tensor) -> Tensor:
        """Normalised frames -> features (F, S, E), before the projector; feed them back as `vision_features`."""
        return self.vision(pixels_FCHW)

    def reset_language(self, vocab_size: int, **token_ids: int) -> None:
        """Start projector, decoder and head anew for another vocabulary and keep the encoder.

        `token_ids` may set video_token_id, image_token_id, pad_token_id and eos_token_id.
        """
        text = self.config.text_config
        for name, value in token_ids.items():
            owner = self.config if name in ("video_token_id", "image_token_id") else text
            if not hasattr(owner, name):
                raise UserError(f"reset_language: no id is called {name}; see HybridVLMConfig and HybridConfig")
            setattr(owner, name, value)
        text.vocab_size = vocab_size
        self.projector = Projector(self.config)
        self.backbone = Backbone(text)
        self.lm_head = nn.Linear(text.hidden_size, vocab_size, bias=False)
        for part in (self.projector, self.backbone, self.lm_head):
            part.apply(self._init_weights)
            part.to(device=self.device)
        self._set_generation_ids()

    def _set_generation_ids(self) -> None:
        """Tell transformers' `generate` where to stop, and that placeholders are never drawn."""
        settings, text = self.generation_config, self.config.text_config
        settings.pad_token_id, settings.eos_token_id = text.pad_token_id, text.eos_token_id
        settings.suppress_tokens = [self.config.video_token_id, self.config.image_token_id]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        vision_features: Tensor | None = None,
        labels: Tensor | None = None,
        cache: HybridCache | None = None,
        use_cache: bool = False,
        inputs_embeds: Tensor | None = None,
        logits_to_keep: int = 0,
        num_items_in_batch: int | Tensor | None = None,
        return_dict: bool = True,
    ) -> HybridOutput | tuple[Any, ...]:
        """One pass.

        input_ids: int64 (B, L); attention_mask: (B, L), or (B, cached + L), non-zero on tokens.
        pixel_values: (F, C, H, W) frames of the whole batch in order; or vision_features: (F, S, E) of `encode_frames`.
        labels: (B, L), −100 where nothing is learned; shifted here. The loss is the mean negative log-likelihood in
        nats over supervised tokens, or their sum / num_items_in_batch; logits are then computed only there and not
        returned, unless logits_to_keep is set. logits_to_keep: logits of so many last columns, 0 for all.
        """
        embeds_BLD = self._embed(input_ids, inputs_embeds, pixel_values, vision_features)
        if cache is None and use_cache and labels is None:
            rows, length = embeds_BLD.shape[:2]
            cache = HybridCache(self.config.text_config, rows, 2 * length, embeds_BLD.dtype, embeds_BLD.device)
        hidden_BLD = self.backbone(embeds_BLD, attention_mask, cache)
        loss = logits = None
        if labels is not None:
            loss = self._loss(hidden_BLD, labels, num_items_in_batch)
        if labels is None or logits_to_keep:
            logits = self.lm_head(hidden_BLD[:, -logits_to_keep:])
        output = HybridOutput(loss=loss, logits=logits, cache=cache)
        return output if return_dict else output.to_tuple()

    def _embed(
        self, ids_BL: Tensor | None, embeds_BLD: Tensor | None, pixels: Tensor | None, features_FSE: Tensor | None
    ) -> Tensor:
        if (ids_BL is None) == (embeds_BLD is None):
            got = "neither" if ids_BL is None else "both"
            raise UserError(f"wanted either input_ids or inputs_embeds, got {got}")
        if ids_BL is None:
            assert embeds_BLD is not None
            return embeds_BLD
        if pixels is not None and features_FSE is not None:
            raise UserError("wanted either pixel_values or vision_features, got both")
        embeds_BLD = self.backbone.embeddings(ids_BL)
        slots_BL = (ids_BL == self.config.video_token_id) | (ids_BL == self.config.image_token_id)
        if pixels is not None:
            features_FSE = self.encode_frames(pixels)
        slots, tokens = int(slots_BL.sum()), 0 if features_FSE is None else features_FSE.shape[:2].numel()
        assert slots == tokens, f"{slots} placeholder ids for {tokens} features of {self.tokens_per_frame} a frame"
        if features_FSE is None or not slots:
            return embeds_BLD
        projected_FSD = self.projector(features_FSE.to(self.projector.fc1.weight.dtype))
        return embeds_BLD.masked_scatter(slots_BL[..., None], projected_FSD.to(embeds_BLD.dtype))

    def _loss(self, hidden_BLD: Tensor, labels_BL: Tensor, items: int | Tensor | None) -> Tensor:
        targets_BL = labels_BL[:, 1:]
        learned_BL = targets_BL != -100
        logits_NV = self.lm_head(hidden_BLD[:, :-1][learned_BL])
        total = F.cross_entropy(logits_NV.float(), targets_BL[learned_BL], reduction="sum")
        return total / (learned_BL.sum().clamp(min=1) if items is None else items)

    @torch.no_grad()
    def init_weights(self) -> None:
        """As transformers does it, and then what it skips: a module whose parameters are all its children's."""
        super().init_weights()
        for module in self.modules():
            if isinstance(module, Attention):
                _init_attention(module)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Called by transformers for every module; `init` leaves weights alone that came from a checkpoint."""
        text = self.config.text_config
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            if isinstance(module, nn.Linear):
                # Keeps the variance at any width. A fixed 0.02 suits a width of 2,500; at 192 the state of a Mamba-2
                # layer (a product of three projections) starts so weak that nothing is carried from frames to answers.
                std = module.in_features**-0.5
                smaller = text.rescale_prenorm_residual and getattr(module, "writes_residual", False)
                init.trunc_normal_(module.weight, std=std / text.num_hidden_layers**0.5 if smaller else std)
            else:
                init.kaiming_normal_(module.weight)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=text.initializer_range)
        elif isinstance(module, (nn.LayerNorm, nn.GroupNorm)):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, (RMSNorm, GatedGroupNorm)):
            init.ones_(module.weight)
        elif isinstance(module, vision.VisionEncoder):
            init.normal_(module.position, std=self.config.vision_config.initializer_range)
        elif isinstance(module, vision.VisionBlock):
            vision_config = self.config.vision_config
            for scale in (module.scale1, module.scale2):
                init.constant_(scale, vision_config.layer_scale_init)
            # Near the identity: with 1 / √inputs the encoder needs twice the steps to find objects (docs/log.md).
            for linear in (module.qkv, module.proj, module.fc1, module.fc2):
                init.trunc_normal_(linear.weight, std=vision_config.initializer_range)
        elif isinstance(module, Mamba2):
            _init_mamba(module, text)
        elif isinstance(module, Attention):
            _init_attention(module)

    def _prepare_cache_for_generation(  # type: ignore[override]
        self, generation_config: Any, model_kwargs: dict[str, Any], mode: Any, batch_size: int, max_cache_length: int
    ) -> None:
        """transformers' `generate` fills `model_kwargs["cache"]` here; ours is allocated once at full length."""
        if generation_config.cache_implementation not in (None, "dynamic"):
            raise UserError(
                f"cache_implementation {generation_config.cache_implementation!r}: only the hybrid cache fits"
            )
        if generation_config.use_cache is False or model_kwargs.get("cache") is not None:
            return
        rows = batch_size * max(generation_config.num_beams, generation_config.num_return_sequences)
        model_kwargs["cache"] = HybridCache(
            self.config.text_config, rows, max_cache_length, self.lm_head.weight.dtype, self.device
        )

    def prepare_inputs_for_generation(self, input_ids: Tensor, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Frames go in with the first columns only; afterwards they are in the cache."""
        inputs = super().prepare_inputs_for_generation(input_ids, *args, **kwargs)
        if kwargs.get("cache") is not None and kwargs["cache"].seen:
            inputs.pop("pixel_values", None)
            inputs.pop("vision_features", None)
        return inputs

    def _expand_inputs_for_generation(  # type: ignore[override]
        self,
        expand_size: int = 1,
        is_encoder_decoder: bool = False,
        input_ids: torch.LongTensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.LongTensor | None, dict[str, Any]]:
        """Repeat rows for beams; the frames of a row are repeated together, so that they stay in order."""
        frames = {name: kwargs.pop(name) for name in ("pixel_values", "vision_features") if name in kwargs}
        new_ids, kwargs = super()._expand_inputs_for_generation(  # type: ignore[misc]
            expand_size, is_encoder_decoder, input_ids, **kwargs
        )
        for name, value_F in frames.items():
            if value_F is not None and expand_size > 1 and input_ids is not None:
                slots_BL = (input_ids == self.config.video_token_id) | (input_ids == self.config.image_token_id)
                counts = (slots_BL.sum(1) // self.tokens_per_frame).tolist()
                value_F = torch.cat([part for row in value_F.split(counts) for part in [row] * expand_size])
            kwargs[name] = value_F
        return new_ids, kwargs


def _init_attention(mixer: Attention) -> None:
    """The first query head of each group starts equal to its key head: it looks for tokens like its own.

    Finding where a token stood before is the first half of every look back in the text; from independent projections a
    small model needs tens of thousands of looks to begin (docs/log.md). Called after the linear layers have theirs.
    """
    keys = mixer.k_proj.weight.unflatten(0, (-1, mixer.head_dim))
    queries = mixer.q_proj.weight.clone().unflatten(0, (len(keys), -1, mixer.head_dim))
    queries[:, 0] = keys
    init.copy_(mixer.q_proj.weight, queries.flatten(0, 2))


def _init_mamba(mixer: Mamba2, config: HybridConfig) -> None:
    """A uniform in (1, 16), D one, time steps log-uniform in their range, the convolution as PyTorch starts one."""
    init.copy_(mixer.A_log, torch.empty_like(mixer.A_log).uniform_(1, 16).log())
    init.ones_(mixer.D)
    low, high = math.log(config.time_step_min), math.log(config.time_step_max)
    dt_H = torch.empty_like(mixer.dt_bias).uniform_(low, high).exp().clamp(min=config.time_step_floor)
    init.copy_(mixer.dt_bias, dt_H + (-torch.expm1(-dt_H)).log())  # the inverse of softplus
    bound = config.conv_kernel**-0.5
    init.uniform_(mixer.conv1d.weight, -bound, bound)
    if mixer.conv1d.bias is not None:
        init.uniform_(mixer.conv1d.bias, -bound, bound)


def register() -> None:
    """Make the Auto classes know the model. Called on import; a second call changes nothing."""
    for config in (HybridConfig, VisionConfig, HybridVLMConfig):
        AutoConfig.register(config.model_type, config, exist_ok=True)
    for auto in (AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText):
        auto.register(HybridVLMConfig, HybridVLM, exist_ok=True)


register()
