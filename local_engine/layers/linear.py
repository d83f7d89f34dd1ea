"""Matrix products with a fixed weight, laid out once for the kernels of the machine, in f32, bf16 or int8. Knows no model."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch.nn import functional

Tensor = torch.Tensor
PACK_ROWS = 16  # the batch that oneDNN lays weights out for
SMALLEST = 1e-30  # a row of zeros is divided by this
WEIGHT_LEVELS = 127


class Quantised(NamedTuple):
    """A weight [out, in] as values * scales[:, None]."""

    values: Tensor  # int8 [out, in]
    scales: Tensor  # f32 [out]


Weight = Tensor | Quantised


def linear(weight: Weight, bias: Tensor | None = None) -> Linear | Int8Linear:
    """The product that the type of the weight asks for."""
    return Int8Linear(weight, bias) if isinstance(weight, Quantised) else Linear(weight, bias)


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

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._bias = bias
        self._packed = weight.device.type == "cpu" and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, PACK_ROWS) if self._packed else weight

    def __call__(self, x: Tensor) -> Tensor:
        if self._packed:
            out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
            return out
        return functional.linear(x, self._weight, self._bias)


class Int8Linear:
    """x [rows, in] f32 -> [rows, out] f32, on a CPU: each row of x is quantised by its own largest value, sums are whole numbers.

    So a row's result is the same bits whoever shares the batch. Measured on one core, all products of a 135M model, CPU ms by rows,
    f32 / oneDNN int8 / FBGEMM int8 (which quantises inside): 1: 40/12.6/8.2, 8: 43/14/10, 16: 53/18/16, 64: 157/45/46, 256: 535/148/189.
    """

    def __init__(self, weight: Quantised, bias: Tensor | None = None) -> None:
        self._bias = bias
        # without VNNI instructions two products are added in 16 bits: 7 bits of activation are what never overflows
        self._levels = 127 if torch.cpu._is_vnni_supported() else 63
        self._product = _Fbgemm(weight) if "fbgemm" in torch.backends.quantized.supported_engines else _OneDnn(weight)

    def __call__(self, x: Tensor) -> Tensor:
        largest = x.abs().amax(-1, keepdim=True).clamp_min_(SMALLEST)
        out = self._product(x / largest, self._levels).mul_(largest)
        return out if self._bias is None else out.add_(self._bias)


class _Fbgemm:
    """x [rows, in] within -1 and 1. Its unsigned activations have `levels` steps on each side of levels + 1."""

    def __init__(self, weight: Quantised) -> None:
        zeros = torch.zeros(len(weight.scales), dtype=torch.int64)
        with warnings.catch_warnings():  # the tensor type is leaving torch, in a release that we do not pin yet
            warnings.simplefilter("ignore", UserWarning)
            tensor = torch._make_per_channel_quantized_tensor(weight.values, weight.scales.double(), zeros, 0)
            engine, torch.backends.quantized.engine = torch.backends.quantized.engine, "fbgemm"
            self._packed = torch.ops.quantized.linear_prepack(tensor, None)
            torch.backends.quantized.engine = engine

    def __call__(self, x: Tensor, levels: int) -> Tensor:
        out: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(x, 1 / levels, levels + 1, self._packed)
        return out


class _OneDnn:
    """As _Fbgemm, for processors that it does not know."""

    def __init__(self, weight: Quantised) -> None:
        self._scales = weight.scales
        self._zeros = torch.zeros(len(weight.scales), dtype=torch.int64)
        self._packed = torch.ops.onednn.qlinear_prepack(weight.values, [PACK_ROWS, weight.values.shape[1]])

    def __call__(self, x: Tensor, levels: int) -> Tensor:
        quantised = (x * levels).round_().add_(levels + 1).to(torch.uint8)
        out: Tensor = torch.ops.onednn.qlinear_pointwise(
            quantised, 1 / levels, levels + 1, self._packed, self._scales, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return out
