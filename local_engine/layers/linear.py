"""Weights as they are, or rounded to int8; and torch's products with a fixed one, in f32 and bf16. Knows no model."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from local_engine.errors import ConfigError

Tensor = torch.Tensor
PACK_ROWS = 16  # the batch that oneDNN lays weights out for
SMALLEST = 1e-30  # a row of zeros is divided by this
WEIGHT_LEVELS = 127


class Quantised(NamedTuple):
    """A weight [out, in] as values * scales[:, None]."""

    values: Tensor  # int8 [out, in]
    scales: Tensor  # f32 [out]


Weight = Tensor | Quantised


def join(weights: list[Weight]) -> Weight:
    """Weights of one input, one after the other: their products are one. All of one kind."""
    quantised = [weight for weight in weights if isinstance(weight, Quantised)]
    if quantised:
        return Quantised(torch.cat([weight.values for weight in quantised]), torch.cat([weight.scales for weight in quantised]))
    return torch.cat([weight for weight in weights if isinstance(weight, Tensor)])


def quantise(weight: Tensor) -> Quantised:
    """To int8, symmetric, with one scale for each output channel."""
    weight = weight.float()
    scales = weight.abs().amax(1).clamp_min_(SMALLEST) / WEIGHT_LEVELS
    return Quantised((weight / scales[:, None]).round_().to(torch.int8), scales)


class Linear:
    """x [rows, in] -> [rows, out], in the type of the weight. On a CPU with oneDNN the weight is laid out once for its kernels.

    Measured on one core, all products of a 135M model, ms by rows, plain against packed: 1: 37/40, 8: 97/54, 16: 95/66, 128: 282/249.
    """

    def __init__(self, weight: Weight, bias: Tensor | None = None) -> None:
        if isinstance(weight, Quantised):
            raise ConfigError("int8 is computed by the compiled step: it wants numba, a CPU and heads of a multiple of 16 channels")
        self._bias = bias
        self._packed = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, PACK_ROWS) if self._packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        if self._packed:
            out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
            return out
        return functional.linear(x, self._weight, self._bias)
