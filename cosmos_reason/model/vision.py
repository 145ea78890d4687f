"""The frame encoder, shaped like InternViT: uint8 frames -> pixels -> stem -> blocks -> pixel shuffle -> features.

Departures from InternViT: no class token (the pixel shuffle would drop it), and an optional convolutional stem, which
a small encoder needs to learn shapes quickly. Each frame is encoded by itself, or, with `stem_frames` above 1, together
with the frames just before it, which lets the stem see motion (Qwen2-VL, arXiv 2409.12191, fuses pairs of frames).

F frames, T frames of one clip, C channels, H height, W width, P patches, S tokens a frame, D width, E feature width.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosmos_reason.errors import UserError
from cosmos_reason.model.config import VisionConfig


def with_past(pixels_NTHWC: Tensor, config: VisionConfig) -> Tensor:
    """(…, T, H, W, C) -> (…, T, H, W, stem_frames · C): every frame and those before it, the first one repeated."""
    at_T = torch.arange(pixels_NTHWC.shape[-4], device=pixels_NTHWC.device)
    past = [pixels_NTHWC.index_select(-4, (at_T - k).clamp(min=0)) for k in range(config.stem_frames)]
    return torch.cat(past, dim=-1)


def normalise(pixels_FHWC: Tensor, config: VisionConfig) -> Tensor:
    """uint8 (F, H, W, C) of `with_past` -> float32 (F, C, H, W), (pixel / 255 − mean) / std."""
    if pixels_FHWC.dtype != torch.uint8 or pixels_FHWC.shape[-1] != config.stem_channels:
        got = f"{pixels_FHWC.dtype} {tuple(pixels_FHWC.shape)}"
        raise UserError(f"pixels: wanted uint8 (frames, height, width, {config.stem_channels}), got {got}")
    mean_C, std_C = (
        torch.tensor(v, device=pixels_FHWC.device).repeat(config.stem_frames)
        for v in (config.image_mean, config.image_std)
    )
    return ((pixels_FHWC.float() / 255 - mean_C) / std_C).permute(0, 3, 1, 2).contiguous()


def preprocess(pixels_THWC: np.ndarray | Tensor, config: VisionConfig) -> Tensor:
    """uint8 frames of one video -> what the encoder takes: resized to a square (antialiased, bilinear), normalised."""
    if isinstance(pixels_THWC, np.ndarray):
        pixels_THWC = np.require(pixels_THWC, requirements="W")  # torch warns of memory that it may not write
    pixels = torch.as_tensor(pixels_THWC)
    size = (config.image_size, config.image_size)
    if pixels.ndim == 4 and pixels.dtype == torch.uint8 and tuple(pixels.shape[1:3]) != size:
        resized = F.interpolate(pixels.permute(0, 3, 1, 2), size, mode="bilinear", antialias=True)
        pixels = resized.permute(0, 2, 3, 1)
    return normalise(with_past(pixels, config), config)


def pixel_shuffle(patches_FPD: Tensor, factor: int) -> Tensor:
    """Space to channels: factor × factor neighbouring patches of a square grid become one token, row by row."""
    side = int(patches_FPD.shape[1] ** 0.5)
    grid = patches_FPD.unflatten(1, (side // factor, factor, side // factor, factor))
    return grid.permute(0, 1, 3, 2, 4, 5).flatten(3).flatten(1, 2)


def conv_stem(config: VisionConfig) -> nn.Sequential:
    """Three 3×3 convolutions of stride 2, widths D/4, D/2, D, GELU (and GroupNorm) between them."""
    layers: list[nn.Module] = []
    channels = config.stem_channels
    for width in (config.hidden_size // 4, config.hidden_size // 2):
        layers.append(nn.Conv2d(channels, width, 3, stride=2, padding=1))
        if config.stem_norm:
            layers.append(nn.GroupNorm(1, width))
        layers.append(nn.GELU())
        channels = width
    return nn.Sequential(*layers, nn.Conv2d(channels, config.hidden_size, 3, stride=2, padding=1))


class VisionBlock(nn.Module):
    """Pre-norm attention and GELU MLP, each scaled per channel (LayerScale) before it is added."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.head_dim = width // config.num_attention_heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=config.layer_norm_eps) for _ in range(2))
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, config.intermediate_size), nn.Linear(config.intermediate_size, width)
        self.scale1, self.scale2 = (nn.Parameter(torch.empty(width)) for _ in range(2))

    def forward(self, x_FPD: Tensor) -> Tensor:
        """(F, P, D) -> (F, P, D)."""
        qkv = self.qkv(self.norm1(x_FPD)).unflatten(-1, (3, -1, self.head_dim)).permute(2, 0, 3, 1, 4)
        mixed_FPD = F.scaled_dot_product_attention(*qkv).transpose(1, 2).flatten(2)
        x_FPD = x_FPD + self.proj(mixed_FPD) * self.scale1
        return x_FPD + self.fc2(F.gelu(self.fc1(self.norm2(x_FPD)))) * self.scale2


class VisionEncoder(nn.Module):
    """Pixels (F, C, H, W) -> features (F, S, E)."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.config = config
        width, patch = config.hidden_size, config.patch_size
        self.stem = (
            conv_stem(config) if config.stem == "conv" else nn.Conv2d(config.stem_channels, width, patch, stride=patch)
        )
        self.position = nn.Parameter(torch.empty(config.grid**2, width))
        self.blocks = nn.ModuleList(VisionBlock(config) for _ in range(config.num_hidden_layers))

    def forward(self, pixels_FCHW: Tensor) -> Tensor:
        """Features before the projector; cache these when the encoder is frozen."""
        size, channels = self.config.image_size, self.config.stem_channels
        if tuple(pixels_FCHW.shape[1:]) != (channels, size, size):
            got = tuple(pixels_FCHW.shape)
            raise UserError(f"pixel_values: wanted (frames, {channels}, {size}, {size}), got {got}; use preprocess")
        x_FPD = self.stem(pixels_FCHW.to(self.position.dtype)).flatten(2).mT + self.position
        for block in self.blocks:
            x_FPD = block(x_FPD)
        return pixel_shuffle(x_FPD, self.config.downsample)
