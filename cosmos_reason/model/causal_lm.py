"""The hybrid language model as transformers knows it: ids -> embeddings -> decoder -> logits and loss.

B batch, L tokens, D width, V vocabulary, N supervised tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, GenerationMixin, PreTrainedModel
from transformers.utils import ModelOutput

from cosmos_reason.errors import UserError
from cosmos_reason.model import initial
from cosmos_reason.model.attention import Attention
from cosmos_reason.model.backbone import Backbone
from cosmos_reason.model.cache import HybridCache
from cosmos_reason.model.config import HybridConfig
from cosmos_reason.model.linear import project


@dataclass
class HybridOutput(ModelOutput):
    """`logits` is None where only the loss was asked for."""

    loss: Tensor | None = None
    logits: Tensor | None = None  # (B, kept, V)
    cache: HybridCache | None = None


class HybridForCausalLM(PreTrainedModel, GenerationMixin):
    """Hybrid decoder with a head, tied to the embeddings where the configuration says so."""

    config_class: type[Any] = HybridConfig
    config: Any
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _no_split_modules = ["Layer"]  # noqa: RUF012
    _keep_in_fp32_modules_strict = ["A_log", "D", "dt_bias"]  # noqa: RUF012
    _tied_weights_keys = {"lm_head.weight": "backbone.embeddings.weight"}  # noqa: RUF012
    _supports_sdpa = True
    _is_stateful = True  # the recurrent state cannot be cut back: no assisted generation

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._build()
        self.post_init()
        self._set_generation_ids()

    def _build(self) -> None:
        self.backbone = Backbone(self.text_config)
        self.lm_head = nn.Linear(self.text_config.hidden_size, self.text_config.vocab_size, bias=False)

    @property
    def text_config(self) -> HybridConfig:
        """The decoder's part of the configuration, or all of it."""
        return self.config.get_text_config()

    @property
    def placeholder_ids(self) -> list[int]:
        """Ids that stand for something else than text and are never drawn."""
        return []

    def get_input_embeddings(self) -> nn.Module:
        """The decoder's embedding table."""
        return self.backbone.embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embedding table."""
        assert isinstance(value, nn.Embedding), f"wanted an embedding table, got {type(value).__name__}"
        self.backbone.embeddings = value

    def _set_generation_ids(self) -> None:
        """Tell transformers' `generate` where to stop, and that placeholders are never drawn."""
        settings, text = self.generation_config, self.text_config
        settings.pad_token_id, settings.eos_token_id = text.pad_token_id, text.eos_token_id
        settings.suppress_tokens = self.placeholder_ids or None

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        cache: HybridCache | None = None,
        use_cache: bool = False,
        inputs_embeds: Tensor | None = None,
        logits_to_keep: int = 0,
        num_items_in_batch: int | Tensor | None = None,
        return_dict: bool = True,
        seq_idx: Tensor | None = None,
    ) -> HybridOutput | tuple[Any, ...]:
        """One pass.

        input_ids: int64 (B, L); attention_mask: (B, L), or (B, cached + L), non-zero on tokens.
        labels: (B, L), −100 where nothing is learned; shifted here. The loss is the mean negative log-likelihood in
        nats over supervised tokens, or their sum / num_items_in_batch; logits are then computed only there and not
        returned, unless logits_to_keep is set. logits_to_keep: logits of so many last columns, 0 for all.
        seq_idx: int (B, L), the number of the document in a packed row; documents stand one after another, do not see
        each other, and no token is learned across their border. Not together with a cache.
        """
        embeds_BLD = self._embed(input_ids, inputs_embeds)
        if cache is not None and labels is not None and torch.is_grad_enabled():
            raise UserError("labels: a pass that fills a cache is not one to learn from; leave out the cache")
        if cache is None and use_cache and labels is None:
            rows, length = embeds_BLD.shape[:2]
            cache = HybridCache(self.text_config, rows, 2 * length, embeds_BLD.dtype, embeds_BLD.device)
        hidden_BLD = self.backbone(embeds_BLD, attention_mask, cache, seq_idx)
        loss = logits = None
        if labels is not None:
            loss = self._loss(hidden_BLD, labels, num_items_in_batch, seq_idx)
        if labels is None or logits_to_keep:
            with torch.set_grad_enabled(torch.is_grad_enabled() and cache is None):
                logits = project(self.lm_head, hidden_BLD[:, -logits_to_keep:])
        output = HybridOutput(loss=loss, logits=logits, cache=cache)
        return output if return_dict else output.to_tuple()

    def _embed(self, ids_BL: Tensor | None, embeds_BLD: Tensor | None) -> Tensor:
        if (ids_BL is None) == (embeds_BLD is None):
            got = "neither" if ids_BL is None else "both"
            raise UserError(f"wanted either input_ids or inputs_embeds, got {got}")
        return self.backbone.embeddings(ids_BL) if embeds_BLD is None else embeds_BLD

    def _loss(
        self, hidden_BLD: Tensor, labels_BL: Tensor, items: int | Tensor | None, seq_idx_BL: Tensor | None
    ) -> Tensor:
        targets_BL = labels_BL[:, 1:]
        learned_BL = targets_BL != -100
        if seq_idx_BL is not None:
            learned_BL = learned_BL & (seq_idx_BL[:, 1:] == seq_idx_BL[:, :-1])
        logits_NV = project(self.lm_head, hidden_BLD[:, :-1][learned_BL])
        total = F.cross_entropy(logits_NV.float(), targets_BL[learned_BL], reduction="sum")
        return total / (learned_BL.sum().clamp(min=1) if items is None else items)

    @torch.no_grad()
    def init_weights(self) -> None:
        """As transformers does it, and then what it skips: a module whose parameters are all its children's."""
        super().init_weights()
        for module in self.modules():
            if isinstance(module, Attention):
                initial.init_attention(module)

    def _init_weights(self, module: nn.Module) -> None:
        initial.draw(module, self.text_config)

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
            self.text_config, rows, max_cache_length, self.lm_head.weight.dtype, self.device
        )


AutoConfig.register(HybridConfig.model_type, HybridConfig, exist_ok=True)
for _auto in (AutoModel, AutoModelForCausalLM):
    _auto.register(HybridConfig, HybridForCausalLM, exist_ok=True)
