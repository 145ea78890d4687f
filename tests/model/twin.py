"""The slow twin of the decoder: one sequence, one token, one head at a time, in fp64, from the formulas alone.

Nothing here is shared with the library but the weights. L tokens, D width, H heads, P head dim, N state size, W window.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cosmos_reason.model.config import HybridConfig, HybridVLMConfig, VisionConfig
from cosmos_reason.model.vlm import HybridVLM


def text_config(**changes) -> HybridConfig:
    """A decoder of a few hundred weights whose inner width (4 · 3) differs from 2 · hidden."""
    fields = {
        "vocab_size": 40,
        "hidden_size": 8,
        "hybrid_override_pattern": "M-M*-",
        "intermediate_size": 12,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 2,
        "ssm_state_size": 5,
        "mamba_num_heads": 4,
        "mamba_head_dim": 3,
        "n_groups": 2,
        "chunk_size": 8,
    }
    return HybridConfig(**{**fields, **changes})


def tiny(seed: int = 0, **changes) -> HybridVLM:
    """A tiny model in fp64 with every weight drawn anew, so that no part of it is near zero or one."""
    vision = VisionConfig(
        image_size=16, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8
    )
    torch.manual_seed(seed)
    config = HybridVLMConfig(text_config=text_config(**changes), vision_config=vision, projector_size=10)
    return stirred(HybridVLM(config)).double().eval()


def stirred(model: torch.nn.Module) -> torch.nn.Module:
    """Weights from a normal distribution of deviation 0.4 around what they are."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
    return model


def mamba(mixer, x_LD: Tensor) -> tuple[Tensor, Tensor]:
    """Output (L, D) and the last state (H, P, N) of a Mamba-2 mixer."""
    config = mixer.config
    H, P, N, G, W = (
        config.mamba_num_heads,
        config.mamba_head_dim,
        config.ssm_state_size,
        config.n_groups,
        config.conv_kernel,
    )
    inner = H * P
    low, high = config.time_step_limit
    state = torch.zeros(H, P, N, dtype=torch.float64)
    inputs, outputs = [], []
    for x_D in x_LD.double():
        projected = mixer.in_proj.weight.double() @ x_D
        z, raw, dt_raw = projected[:inner], projected[inner:-H], projected[-H:]
        inputs.append(raw)
        mixed = mixer.conv1d.bias.double().clone()
        for lag in range(min(W, len(inputs))):
            mixed += mixer.conv1d.weight.double()[:, 0, W - 1 - lag] * inputs[-1 - lag]
        mixed = mixed * torch.sigmoid(mixed)
        x, B, C = mixed[:inner], mixed[inner : inner + G * N], mixed[inner + G * N :]
        y = torch.zeros(inner, dtype=torch.float64)
        for h in range(H):
            group = slice(h // (H // G) * N, (h // (H // G) + 1) * N)
            dt = min(max(math.log1p(math.exp(float(dt_raw[h] + mixer.dt_bias.double()[h]))), low), high)
            x_P = x[h * P : (h + 1) * P]
            decay = math.exp(-dt * math.exp(float(mixer.A_log.double()[h])))
            state[h] = decay * state[h] + dt * torch.outer(x_P, B[group])
            y[h * P : (h + 1) * P] = state[h] @ C[group] + mixer.D.double()[h] * x_P
        outputs.append(mixer.out_proj.weight.double() @ gated_norm(mixer.norm, y, z))
    return torch.stack(outputs), state


def gated_norm(norm, y_I: Tensor, z_I: Tensor) -> Tensor:
    """Gate first, then each group by itself."""
    gated = y_I * z_I * torch.sigmoid(z_I)
    size = len(gated) // norm.groups
    parts = [g / torch.sqrt((g * g).mean() + norm.eps) for g in gated.split(size)]
    return torch.cat(parts) * norm.weight.double()


def attention(mixer, x_LD: Tensor) -> Tensor:
    """Every query head by itself, over what came before and itself."""
    dim = mixer.head_dim
    q, k, v = (x_LD.double() @ p.weight.double().T for p in (mixer.q_proj, mixer.k_proj, mixer.v_proj))
    heads, shared = q.shape[1] // dim, q.shape[1] // k.shape[1]
    out = torch.zeros_like(q)
    for h in range(heads):
        mine, theirs = slice(h * dim, (h + 1) * dim), slice(h // shared * dim, (h // shared + 1) * dim)
        for t in range(len(x_LD)):
            scores = k[: t + 1, theirs] @ q[t, mine] / math.sqrt(dim)
            weights = torch.exp(scores - scores.max())
            out[t, mine] = (weights / weights.sum()) @ v[: t + 1, theirs]
    return out @ mixer.o_proj.weight.double().T


def mlp(mixer, x_LD: Tensor) -> Tensor:
    """Squared ReLU between two projections."""
    up = x_LD @ mixer.up_proj.weight.double().T
    return torch.where(up > 0, up, 0.0) ** 2 @ mixer.down_proj.weight.double().T


def rms_norm(norm, x_LD: Tensor) -> Tensor:
    """x / √(mean x² + eps) · weight."""
    return x_LD / torch.sqrt((x_LD * x_LD).mean(-1, keepdim=True) + norm.eps) * norm.weight.double()


def backbone(decoder, embeds_LD: Tensor) -> Tensor:
    """All layers of the pattern, then the final norm."""
    x_LD = embeds_LD.double()
    for symbol, layer in zip(decoder.config.hybrid_override_pattern, decoder.layers, strict=True):
        normed = rms_norm(layer.norm, x_LD)
        if symbol == "M":
            x_LD = x_LD + mamba(layer.mixer, normed)[0]
        else:
            x_LD = x_LD + (attention if symbol == "*" else mlp)(layer.mixer, normed)
    return rms_norm(decoder.norm_f, x_LD)
