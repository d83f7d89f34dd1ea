"""Attention of single rows, compiled for the CPU by numba: keys and values are read where they lie, where torch would gather them first.

f32 and few threads only; elsewhere `attention.py` does the same with torch alone. A row's result is the same bits whoever shares the
batch. Measured on one core, 30 layers of 9 heads on 3 of 64, CPU ms against torch over contiguous views: 1 row of 100 tokens 0.3/0.8,
16 of 100 7/20, 16 of 512 25/53.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import torch

F = np.float32
C0, C1, C2, C3, C4, C5 = (F(c) for c in (1.0, 0.69314718, 0.24022651, 0.05550411, 0.00961813, 0.00133336))  # 2^x in [-0.5, 0.5], to 2e-7

_Function = TypeVar("_Function", bound=Callable[..., None])
_inlined = cast(
    Callable[[_Function], _Function], numba.njit(inline="always")
)  # before it is compiled, so that the caller's sizes are constants


class Rows:
    """The kernel for one shape of heads; compiled when made (a second or two), or found on disk where it was kept."""

    def __init__(self, group: int, head_dim: int) -> None:
        self._run = _compile(group, head_dim)
        self._scale = F(math.log2(math.e) / math.sqrt(head_dim))
        self._group = group
        self._scratch = np.empty((group + 1, 0), F)
        nothing = torch.empty(0, 1, head_dim)
        self(nothing, nothing, torch.empty(0, 1, 2, 1, head_dim), (np.empty((0, 0), np.int32), np.empty(0, np.int32)), nothing.clone())

    def __call__(self, turned: torch.Tensor, mixed: torch.Tensor, cache: torch.Tensor, numbers: tuple[Any, Any], out: torch.Tensor) -> None:
        """As attention.attend for the rows that `numbers` (tables, lengths) has: writes keys and values, then fills those rows of `out`."""
        room = numbers[0].shape[1] * cache.shape[3]
        if room > self._scratch.shape[1]:
            self._scratch = np.empty((self._group + 1, 2 * room), F)
        self._run((turned.numpy(), mixed.numpy()), cache.numpy(), numbers, out.numpy(), self._scratch, self._scale)


def _compile(group: int, head_dim: int) -> Callable[..., None]:
    """For fixed sizes, so that the inner loops become plain vector instructions."""

    def run(rows: Any, cache: Any, numbers: Any, out: Any, scratch: Any, scale: Any) -> None:
        turned, mixed = rows
        tables, lengths = numbers
        kv_heads, block_tokens = cache.shape[1], cache.shape[3]
        for row in range(lengths.shape[0]):
            length, table = lengths[row], tables[row]
            block, offset = table[(length - 1) // block_tokens], (length - 1) % block_tokens
            for head in range(kv_heads):
                for d in range(head_dim):
                    cache[block, head, 0, offset, d] = turned[row, kv_heads * group + head, d]
                    cache[block, head, 1, offset, d] = mixed[row, mixed.shape[1] - kv_heads + head, d]
                spot = (table, length, head)
                _score(turned[row, head * group :], cache, spot, scratch, group, head_dim)
                for g in range(group):
                    _weigh(scratch[g], scratch[group], length, scale)
                _mix(scratch, cache, spot, out[row, head * group :], group, head_dim)

    try:
        return cast(Callable[..., None], numba.njit(run, cache=True, nogil=True, fastmath=True, error_model="numpy"))
    except RuntimeError:  # no folder to keep it in
        return cast(Callable[..., None], numba.njit(run, nogil=True, fastmath=True, error_model="numpy"))


@_inlined
def _score(q: Any, cache: Any, spot: Any, out: Any, group: Any, head_dim: Any) -> None:
    table, length, head = spot
    for start in range(0, length, cache.shape[3]):
        keys = cache[table[start // cache.shape[3]], head, 0]
        for i in range(min(cache.shape[3], length - start)):
            for g in range(group):
                total = F(0)
                for d in range(head_dim):
                    total += q[g, d] * keys[i, d]
                out[g, start + i] = total


@_inlined
def _weigh(row: Any, exponents: Any, length: Any, scale: Any) -> None:
    """Softmax of scores * scale / log2(e) in place: 2^whole by the bits of a float, 2^rest by a polynomial; both become vectors."""
    largest = row[0]
    for t in range(length):
        largest = max(largest, row[t])
    bits = exponents.view(np.int32)
    for t in range(length):
        x = max((row[t] - largest) * scale, F(-126))
        whole = np.floor(x + F(0.5))
        r = x - whole
        bits[t] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        row[t] = C0 + r * (C1 + r * (C2 + r * (C3 + r * (C4 + r * C5))))
    total = F(0)
    for t in range(length):
        row[t] *= exponents[t]
        total += row[t]
    share = F(1) / total
    for t in range(length):
        row[t] *= share


@_inlined
def _mix(weights: Any, cache: Any, spot: Any, out: Any, group: Any, head_dim: Any) -> None:
    table, length, head = spot
    for g in range(group):
        for d in range(head_dim):
            out[g, d] = F(0)
    for start in range(0, length, cache.shape[3]):
        values = cache[table[start // cache.shape[3]], head, 1]
        for i in range(min(cache.shape[3], length - start)):
            for g in range(group):
                weight = weights[g, start + i]
                for d in range(head_dim):
                    out[g, d] += weight * values[i, d]
