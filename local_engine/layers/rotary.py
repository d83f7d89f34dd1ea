"""Rotary positions as turns of complex numbers: the table of a model, and turning heads by it.

A head's pairs stand side by side (Hugging Face weights have them half a head apart: `pairs` is the order that puts them together), so that
turning is one product. Queries and keys are reordered alike, which leaves their products what they were.
"""

from __future__ import annotations

import math

import torch
from msgspec import Struct

Tensor = torch.Tensor


class RopeScaling(Struct, frozen=True, kw_only=True):
    """Positions stretched beyond the trained context: `linear` by `factor`, `llama3` for the slow pairs only."""

    kind: str
    factor: float
    low_factor: float = 1.0
    high_factor: float = 1.0
    trained_tokens: int = 0


def rotary_table(context_tokens: int, head_dim: int, theta: float, scaling: RopeScaling | None = None) -> Tensor:
    """complex64 [context_tokens, head_dim / 2]: how far each pair is turned at each position."""
    frequencies = 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim))
    if scaling is not None:
        frequencies = _scaled(frequencies, scaling)
    angles = torch.outer(torch.arange(context_tokens).float(), frequencies)
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """x [tokens, heads, head_dim] with pairs side by side, turns [tokens, 1, head_dim / 2] -> a new tensor like x."""
    pairs = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


def pairs(heads: int, head_dim: int) -> Tensor:
    """The order of rows [heads * head_dim] that brings the halves of each pair together."""
    return torch.arange(heads * head_dim).view(heads, 2, head_dim // 2).transpose(1, 2).flatten()


def _scaled(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    slow = frequencies / scaling.factor
    if scaling.kind == "linear":
        return slow
    turns = scaling.trained_tokens * frequencies / (2 * math.pi)  # within the trained context
    share = ((turns - scaling.low_factor) / (scaling.high_factor - scaling.low_factor)).clamp(0, 1)
    return (1 - share) * slow + share * frequencies
