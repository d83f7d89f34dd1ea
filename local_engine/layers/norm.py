"""RMS norm over the last dimension."""

from __future__ import annotations

import torch
from torch.nn import functional

Tensor = torch.Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight, eps)
