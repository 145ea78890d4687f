"""Encoder features -> decoder embeddings: LayerNorm, Linear, GELU, Linear.

F frames, S tokens a frame, E feature width, D width.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from cosmos_reason.model.config import HybridVLMConfig


class Projector(nn.Module):
    """(F, S, E) -> (F, S, D)."""

    def __init__(self, config: HybridVLMConfig) -> None:
        super().__init__()
        features = config.vision_config.feature_size
        self.norm = nn.LayerNorm(features, eps=config.vision_config.layer_norm_eps)
        self.fc1 = nn.Linear(features, config.projector_size)
        self.fc2 = nn.Linear(config.projector_size, config.text_config.hidden_size)

    def forward(self, features_FSE: Tensor) -> Tensor:
        """Embeddings that replace those of the placeholder ids, in order."""
        return self.fc2(F.gelu(self.fc1(self.norm(features_FSE))))
