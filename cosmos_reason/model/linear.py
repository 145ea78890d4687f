"""Linear layers as the decoder calls them.

A CPU without bf16 instructions multiplies bf16 matrices six times slower than fp32 ones. There, products of many rows
are made in fp32 from the same weights, which is also more exact; a layer that something has wrapped is called as it is.
"""

from __future__ import annotations

import functools
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MANY = 32  # rows from which converting the weight is cheap beside the product


@functools.cache
def multiplies_bf16() -> bool:
    """Whether this CPU has instructions for products in bf16."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) and (
        torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )


def is_plain(layer: nn.Module) -> TypeGuard[nn.Linear]:
    """A bare linear layer without bias on the CPU, which nothing has wrapped or hooked."""
    if type(layer) is not nn.Linear or layer.bias is not None or layer.weight.device.type != "cpu":
        return False
    if type(layer.weight) is not nn.Parameter or "forward" in vars(layer) or hasattr(layer, "parametrizations"):
        return False
    hooks = torch.nn.modules.module
    return not (
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        or hooks._global_forward_hooks
        or hooks._global_forward_pre_hooks
    )


def project(layer: nn.Module, x: Tensor) -> Tensor:
    """layer(x), (…, inputs) -> (…, outputs)."""
    if x.dtype != torch.bfloat16 or x.shape[:-1].numel() < MANY or torch.is_autocast_enabled(x.device.type):
        return layer(x)
    if multiplies_bf16() or not is_plain(layer):
        return layer(x)
    return F.linear(x.float(), layer.weight.float()).to(x.dtype)
