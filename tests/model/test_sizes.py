"""Every named size can be built, trained a step on and asked; nano keeps its promises."""

from __future__ import annotations

import pytest
import torch

from cosmos_reason.errors import UserError
from cosmos_reason.model.sizes import SIZES, build


@pytest.mark.parametrize("name", SIZES)
def test_size_trains_and_answers(name):
    torch.manual_seed(0)
    model = build(name)
    config = model.config
    ids_BL = torch.full((1, config.video_frames * model.tokens_per_frame + 4), config.video_token_id)
    ids_BL[0, :2], ids_BL[0, -2:] = 10, 11
    frames = torch.zeros(config.video_frames, 100, 80, 3, dtype=torch.uint8)
    labels_BL = torch.where(ids_BL == 11, ids_BL, -100)
    loss = model(input_ids=ids_BL, pixel_values=model.preprocess(frames), labels=labels_BL).loss
    loss.backward()
    assert 0 < loss.item() < 12
    assert all(p.grad is not None for p in model.parameters())


def test_nano_is_small_and_sees_enough():
    model = build("nano")
    config = model.config
    assert sum(p.numel() for p in model.parameters()) <= 15_000_000
    assert config.video_frames >= 8 and config.vision_config.image_size >= 64
    pattern = config.text_config.hybrid_override_pattern
    assert pattern[0] == "M" and pattern[-1] == "-" and pattern.count("*") == pattern.count("*-") > 0


def test_unknown_size_lists_the_known():
    with pytest.raises(UserError, match="no size 'mega': wanted one of nano"):
        build("mega")
