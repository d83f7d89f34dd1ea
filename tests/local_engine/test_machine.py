"""Tiles of products against numpy, and counters that threads share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import pytest

from local_engine.machine import LEVELS, TILE, VALUES, tiles, took

FLOATS, WHOLE = tiles(TILE, False), tiles(TILE, True)


@numba.njit(**VALUES)  # type: ignore[untyped-decorator]
def floats(x: Any, w: Any, start: Any, out: Any) -> None:
    row, ws, xs = 0, 4 * w.shape[1], 4 * x.shape[1]
    while row < x.shape[0]:
        at = (w.ctypes.data, ws, x[row:].ctypes.data, xs, x.shape[1], start[row:].ctypes.data, ws, out[row:].ctypes.data, ws)
        row += FLOATS(x.shape[0] - row, at)


@numba.njit(**VALUES)  # type: ignore[untyped-decorator]
def whole(x: Any, w: Any, start: Any, out: Any) -> None:
    row, xs = 0, x.shape[1]
    while row < x.shape[0]:
        at = (w.ctypes.data, 4 * TILE, x[row:].ctypes.data, xs, xs // 4, start.ctypes.data, 0, out[row:].ctypes.data, 4 * TILE)
        row += WHOLE(x.shape[0] - row, at)


@numba.njit(**VALUES)  # type: ignore[untyped-decorator]
def take(counter: Any, found: Any) -> int:
    mine = 0
    place = took(counter.ctypes.data)
    while place < found.shape[0]:
        found[place] += 1
        mine += 1
        place = took(counter.ctypes.data)
    return mine


@pytest.mark.parametrize("rows", [1, 3, 13])
def test_a_tile_of_floats(rows: int) -> None:
    draw = np.random.default_rng(rows)
    x, w, start = (draw.normal(size=size).astype(np.float32) for size in ((rows, 37), (37, TILE), (rows, TILE)))
    out = np.full((rows, TILE), np.nan, np.float32)
    floats(x, w, start, out)
    np.testing.assert_allclose(out, start + x.astype(np.float64) @ w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 3, 13])
def test_a_tile_of_whole_numbers_is_exact_up_to_the_largest(rows: int) -> None:
    draw = np.random.default_rng(rows)
    x = draw.integers(1, 2 * LEVELS + 2, (rows, 1024), np.uint8)
    x[0] = 2 * LEVELS + 1
    w = draw.integers(-127, 128, (1024, TILE), np.int8)
    w[:, 0], w[:, 1] = 127, -127
    start, out = draw.integers(-(2**20), 2**20, TILE, np.int32), np.zeros((rows, TILE), np.int32)
    whole(x, np.ascontiguousarray(w.reshape(256, 4, TILE).transpose(0, 2, 1)), start, out)
    assert (out == start + x.astype(np.int64) @ w.astype(np.int64)).all()


def test_threads_that_take_from_one_counter_never_take_the_same() -> None:
    counter, found = np.zeros(1, np.int64), np.zeros(100_000, np.int64)
    with ThreadPoolExecutor(3) as pool:
        taken = sum(pool.map(lambda _: take(counter, found), range(3)))
    assert (found == 1).all()
    assert taken == len(found)
