"""Rotary positions: the table of a model, and turning heads by it."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


def rotary_table(context_tokens: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """cos and sin, each [context_tokens, head_dim], halves repeated; the second half's sign is in `sin` (see `rotate`)."""
    frequencies = 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim))
    angles = torch.outer(torch.arange(context_tokens).float(), frequencies)
    return torch.cat((angles.cos(), angles.cos()), -1), torch.cat((-angles.sin(), angles.sin()), -1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: x [tokens, heads, head_dim], cos and signed sin [tokens, 1, head_dim]."""
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin
