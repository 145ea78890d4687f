"""The video-language model as transformers knows it: ids and frames -> embeddings -> decoder -> logits and loss.

ids -> embeddings; frames -> encoder -> projector -> embeddings at the placeholder ids, in order; decoder; head.

B batch, L tokens, F frames of the whole batch, S tokens a frame, E feature width, D width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText

from cosmos_reason.errors import UserError
from cosmos_reason.model import vision
from cosmos_reason.model.backbone import Backbone
from cosmos_reason.model.cache import HybridCache
from cosmos_reason.model.causal_lm import HybridForCausalLM, HybridOutput
from cosmos_reason.model.config import HybridVLMConfig, VisionConfig
from cosmos_reason.model.projector import Projector


class HybridVLM(HybridForCausalLM):
    """Vision encoder, projector and hybrid decoder with an untied head."""

    config_class = HybridVLMConfig
    config: HybridVLMConfig
    _no_split_modules = ["Layer", "VisionBlock"]  # noqa: RUF012

    def _build(self) -> None:
        self.vision = vision.VisionEncoder(self.config.vision_config)
        self.projector = Projector(self.config)
        super()._build()

    @property
    def tokens_per_frame(self) -> int:
        """Placeholder ids that one frame stands for."""
        return self.config.vision_config.tokens_per_frame

    @property
    def placeholder_ids(self) -> list[int]:
        """The ids at which features replace embeddings."""
        return [self.config.video_token_id, self.config.image_token_id]

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

    def forward(  # type: ignore[override]
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
        seq_idx: Tensor | None = None,
    ) -> HybridOutput | tuple[Any, ...]:
        """One pass, as `HybridForCausalLM.forward`; videos come with it once, before they are in a cache.

        pixel_values: (F, C, H, W) frames of the whole batch in order; or vision_features: (F, S, E) of `encode_frames`.
        """
        embeds_BLD = self._embed(input_ids, inputs_embeds)
        drawn = cache is not None and cache.seen > 0 and embeds_BLD.shape[1] == 1  # never a placeholder
        if input_ids is not None and not drawn:
            embeds_BLD = self._place(input_ids, embeds_BLD, pixel_values, vision_features)
        return super().forward(
            attention_mask=attention_mask,
            labels=labels,
            cache=cache,
            use_cache=use_cache,
            inputs_embeds=embeds_BLD,
            logits_to_keep=logits_to_keep,
            num_items_in_batch=num_items_in_batch,
            return_dict=return_dict,
            seq_idx=seq_idx,
        )

    def _place(self, ids_BL: Tensor, embeds_BLD: Tensor, pixels: Tensor | None, features_FSE: Tensor | None) -> Tensor:
        if pixels is not None and features_FSE is not None:
            raise UserError("wanted either pixel_values or vision_features, got both")
        slots_BL = (ids_BL == self.config.video_token_id) | (ids_BL == self.config.image_token_id)
        if pixels is not None:
            features_FSE = self.encode_frames(pixels)
        slots, tokens = int(slots_BL.sum()), 0 if features_FSE is None else features_FSE.shape[:2].numel()
        assert slots == tokens, f"{slots} placeholder ids for {tokens} features of {self.tokens_per_frame} a frame"
        if features_FSE is None or not slots:
            return embeds_BLD
        projected_FSD = self.projector(features_FSE.to(self.projector.fc1.weight.dtype))
        return embeds_BLD.masked_scatter(slots_BL[..., None], projected_FSD.to(embeds_BLD.dtype))

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


for _config in (VisionConfig, HybridVLMConfig):
    AutoConfig.register(_config.model_type, _config, exist_ok=True)
for _auto in (AutoModel, AutoModelForCausalLM, AutoModelForImageTextToText):
    _auto.register(HybridVLMConfig, HybridVLM, exist_ok=True)
