"""The frame encoder: normalising, resizing, pixel shuffle and blocks against values computed here."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image

from cosmos_reason.errors import UserError
from cosmos_reason.model.config import VisionConfig
from cosmos_reason.model.vision import VisionBlock, VisionEncoder, normalise, pixel_shuffle, preprocess, with_past
from tests.model.twin import stirred


def config(**changes) -> VisionConfig:
    fields = {"image_size": 32, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    return VisionConfig(**{**fields, "intermediate_size": 6, **changes})


def encoder(**changes) -> VisionEncoder:
    torch.manual_seed(0)
    model = VisionEncoder(config(**changes))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.double().eval().requires_grad_(False)


def test_normalise_by_hand():
    pixels = torch.zeros(1, 1, 2, 3, dtype=torch.uint8)
    pixels[0, 0, 1] = torch.tensor([255, 51, 0])
    got = normalise(pixels, config(image_mean=(0.5, 0.2, 0.0), image_std=(0.25, 0.1, 1.0)))
    assert got.shape == (1, 3, 1, 2)
    assert got[0, :, 0, 1].tolist() == pytest.approx([2.0, 0.0, 0.0], abs=1e-6)
    assert got[0, :, 0, 0].tolist() == pytest.approx([-2.0, -2.0, 0.0], abs=1e-6)


def test_preprocess_resizes_antialiased_to_a_square():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (2, 90, 130, 3), dtype=np.uint8)
    got = preprocess(pixels, config(image_mean=(0.0,) * 3, image_std=(1.0,) * 3)) * 255
    expected = [np.asarray(Image.fromarray(p).resize((32, 32), Image.Resampling.BILINEAR)) for p in pixels]
    assert got.shape == (2, 3, 32, 32)
    assert np.abs(got.permute(0, 2, 3, 1).numpy() - np.stack(expected)).max() <= 1.01  # a grey level of rounding


def test_frames_of_the_right_size_are_taken_as_they_are():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    expected = normalise(torch.from_numpy(pixels.copy()), config())
    pixels.flags.writeable = False  # as the frames of a store are
    assert torch.equal(preprocess(pixels, config()), expected)


@pytest.mark.parametrize("pixels", [np.zeros((2, 8, 8, 3), np.float32), np.zeros((2, 3, 8, 8), np.uint8)])
def test_other_pixels_are_refused(pixels):
    with pytest.raises(UserError, match="pixels: wanted uint8"):
        preprocess(pixels, config())


def test_encoder_names_the_size_it_wants():
    with pytest.raises(UserError, match=r"wanted \(frames, 3, 32, 32\), got \(2, 3, 64, 64\)"):
        encoder()(torch.zeros(2, 3, 64, 64))


def test_pixel_shuffle_joins_neighbours():
    """A grid of 4 × 4 patches, numbered row by row, two channels each."""
    patches = torch.stack([torch.arange(16), torch.arange(16) + 100], dim=-1)[None]
    got = pixel_shuffle(patches, 2)
    assert got.shape == (1, 4, 8)
    assert got[0, 0].tolist() == [0, 100, 1, 101, 4, 104, 5, 105]
    assert got[0, 1].tolist() == [2, 102, 3, 103, 6, 106, 7, 107]
    assert got[0, 3].tolist() == [10, 110, 11, 111, 14, 114, 15, 115]


def test_patch_stem_places_patches_row_by_row():
    """Without blocks the encoder is a linear map of each patch plus its position, then the shuffle."""
    model = encoder(stem="patch", num_hidden_layers=0)
    pixels = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    rows = []
    for y in range(4):
        for x in range(4):
            patch = pixels[:, :, 8 * y : 8 * y + 8, 8 * x : 8 * x + 8].flatten(1)
            rows.append(patch @ model.stem.weight.flatten(1).T + model.stem.bias + model.position[4 * y + x])
    torch.testing.assert_close(model(pixels), pixel_shuffle(torch.stack(rows, 1), 2))


@pytest.mark.parametrize("norm", [True, False])
def test_conv_stem_reduces_by_eight(norm):
    model = encoder(stem_norm=norm)
    assert model.stem(torch.zeros(1, 3, 32, 32, dtype=torch.float64)).shape == (1, 8, 4, 4)
    assert sum(isinstance(m, torch.nn.GroupNorm) for m in model.stem) == 2 * norm
    assert model(torch.zeros(5, 3, 32, 32, dtype=torch.float64)).shape == (5, 4, 32)


def test_block_equals_the_formulas():
    torch.manual_seed(0)
    block = stirred(VisionBlock(config()))
    for scale in (block.scale1, block.scale2):
        torch.nn.init.normal_(scale)
    block.double().requires_grad_(False)
    x = torch.randn(1, 5, 8, dtype=torch.float64)

    def layer_norm(norm, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + norm.eps) * norm.weight + norm.bias

    q, k, v = (layer_norm(block.norm1, x[0]) @ block.qkv.weight.T + block.qkv.bias).split(8, dim=-1)
    heads = []
    for h in (slice(0, 4), slice(4, 8)):
        weights = torch.exp(q[:, h] @ k[:, h].T / 2)
        heads.append(weights / weights.sum(-1, keepdim=True) @ v[:, h])
    y = x[0] + (torch.cat(heads, -1) @ block.proj.weight.T + block.proj.bias) * block.scale1
    inner = layer_norm(block.norm2, y) @ block.fc1.weight.T + block.fc1.bias
    gelu = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    expected = y + (gelu @ block.fc2.weight.T + block.fc2.bias) * block.scale2
    torch.testing.assert_close(block(x)[0], expected)


def test_frames_do_not_see_each_other():
    model = encoder()
    pixels = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(model(pixels)[1], model(pixels[1:2])[0])


def test_the_stem_sees_the_frames_before():
    clips = torch.arange(2 * 3, dtype=torch.uint8).view(2, 3, 1, 1, 1).expand(2, 3, 16, 16, 3)
    seen = with_past(clips, config(stem_frames=2))[:, :, 0, 0]
    assert seen.shape == (2, 3, 6)
    assert seen[..., 0].tolist() == [[0, 1, 2], [3, 4, 5]] and seen[..., 3].tolist() == [[0, 0, 1], [3, 3, 4]]
    tower = encoder(stem_frames=2)
    frames = torch.randint(0, 256, (4, 16, 16, 3), dtype=torch.uint8)
    changed = frames.clone()
    changed[1] = 255 - changed[1]
    before, after = (tower(preprocess(pixels, tower.config)) for pixels in (frames, changed))
    assert [not torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [False, True, True, False]
