"""How fresh weights are drawn: one rule a kind of module.

`draw` is called by transformers for every module; the functions of `init` leave weights alone that came from a
checkpoint.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from transformers import initialization as init

from cosmos_reason.model import vision
from cosmos_reason.model.attention import Attention
from cosmos_reason.model.config import HybridConfig
from cosmos_reason.model.mamba2 import Mamba2
from cosmos_reason.model.norms import GatedGroupNorm, RMSNorm


@torch.no_grad()
def draw(module: nn.Module, text: HybridConfig) -> None:
    """The parameters that this module itself holds."""
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        _init_projection(module, text)
    elif isinstance(module, nn.Embedding):
        # Tied, the same numbers make the logits, whose spread should be about one.
        init.normal_(module.weight, std=text.hidden_size**-0.5 if text.tie_word_embeddings else text.initializer_range)
    elif isinstance(module, (nn.LayerNorm, nn.GroupNorm)):
        init.ones_(module.weight)
        init.zeros_(module.bias)
    elif isinstance(module, (RMSNorm, GatedGroupNorm)):
        init.ones_(module.weight)
    elif isinstance(module, vision.VisionEncoder):
        init.normal_(module.position, std=module.config.initializer_range)
    elif isinstance(module, vision.VisionBlock):
        _init_vision_block(module)
    elif isinstance(module, Mamba2):
        _init_mamba(module, text)
    elif isinstance(module, Attention):
        init_attention(module)


def _init_projection(module: nn.Linear | nn.Conv2d, text: HybridConfig) -> None:
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


def _init_vision_block(module: vision.VisionBlock) -> None:
    for scale in (module.scale1, module.scale2):
        init.constant_(scale, module.config.layer_scale_init)
    # Near the identity: with 1 / √inputs the encoder needs twice the steps to find objects (docs/log.md).
    for linear in (module.qkv, module.proj, module.fc1, module.fc2):
        init.trunc_normal_(linear.weight, std=module.config.initializer_range)


def init_attention(mixer: Attention) -> None:
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
