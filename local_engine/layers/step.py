"""One step of a decoder on the CPU, compiled by numba: all rows through all layers, by several threads that share out each phase.

A row's result is the same bits whoever shares the step and however its prompt was cut: what is added is added in one order. Knows arrays
and addresses; `compiled.py` says what they are.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from local_engine import machine
from local_engine.machine import SIX, TILE, compiled, give_way, pause, seen, summing, took

BLOCK = 16  # tokens of a block of keys and values
ROWS = 48  # of a product's piece of work: their inputs stay near while its weights are read
QUERIES = 24  # of a piece of attention, if a group of heads is not larger
SPINS = 1000  # looks at a counter, some tens of microseconds, before others of the machine are let through

DATA, OUTS, INS, EXTRAS, IS_INT8 = range(5)  # columns that describe a product
NORM, QKV, TURN, ATTEND, ATTENDED, OUT, MLP_NORM, GATE_UP, GATED, DOWN, LAST_NORM, HEAD = range(12)  # phases; the last two come once
PRODUCT = np.array([0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 0, 0])  # which of its layer's a phase is or prepares; behind the last layer, the head

F = np.float32
C0, C1, C2, C3, C4, C5 = (F(c) for c in (1.0, 0.69314718, 0.24022651, 0.05550411, 0.00961813, 0.00133336))  # 2^x in [-0.5, 0.5], to 2e-7
LOG2_E = F(math.log2(math.e))
SMALLEST = F(1e-30)
LEVELS = machine.LEVELS
_f32, _int8, _block = machine.tiles(TILE, False), machine.tiles(TILE, True), machine.tiles(BLOCK, False)


# ---- products ---------------------------------------------------------------------------------------------------------------------------
@compiled
def _pieces(one: Any, rows: Any) -> Any:
    return (one[OUTS] + TILE - 1) // TILE * ((rows + ROWS - 1) // ROWS)


@compiled
def _product(one: Any, extras: Any, piece: Any, inputs: Any, out: Any, add: Any) -> None:
    """TILE outputs of at most ROWS rows, written to `out` or added to it."""
    wide, narrow, steps, sums = inputs
    rows, tiles = out.shape[0], (one[OUTS] + TILE - 1) // TILE
    tile, row = piece % tiles, piece // tiles * ROWS
    last, first = min(row + ROWS, rows), tile * TILE
    size, padded = min(TILE, one[OUTS] - first), tiles * TILE
    start, to = extras.ctypes.data + 4 * (one[EXTRAS] + first), sums.ctypes.data
    whole = sums.view(np.int32)
    count = (one[INS] + 3) // 4 if one[IS_INT8] else one[INS]
    w = one[DATA] + 4 * TILE * tile * count
    while row < last:
        if one[IS_INT8]:
            x = narrow.ctypes.data + row * narrow.shape[1]
            done = _int8(last - row, (w, 4 * TILE, x, narrow.shape[1], count, start, 0, to, 4 * TILE))
            scales, bias = one[EXTRAS] + padded + first, one[EXTRAS] + 2 * padded + first
            for r in range(done):
                for i in range(size):
                    sums[r, i] = F(whole[r, i]) * (steps[row + r] * extras[scales + i]) + extras[bias + i]
        else:
            x = wide.ctypes.data + 4 * row * wide.shape[1]
            done = _f32(last - row, (w, 4 * TILE, x, 4 * wide.shape[1], count, start, 0, to, 4 * TILE))
        for r in range(done):
            for i in range(size):
                if add:
                    out[row + r, first + i] += sums[r, i]
                else:
                    out[row + r, first + i] = sums[r, i]
        row += done


# ---- row by row -------------------------------------------------------------------------------------------------------------------------
@summing
def _sum(x: Any, length: Any) -> Any:
    total = F(0)
    for i in range(length):
        total += x[i]
    return total


@summing
def _squares(x: Any) -> Any:
    total = F(0)
    for i in range(x.shape[0]):
        total += x[i] * x[i]
    return total


@compiled
def _normed(x: Any, weight: Any, eps: Any, out: Any) -> None:
    """RMS norm; `weight` has the root of its size in it."""
    by = F(1) / np.sqrt(_squares(x) + F(x.shape[0]) * eps)
    for i in range(x.shape[0]):
        out[i] = x[i] * by * weight[i]


@compiled
def _powers(x: Any, exponents: Any, length: Any) -> None:
    """2^x in place: the whole part by the bits of a float, the rest by a polynomial; both become vectors."""
    bits = exponents.view(np.int32)
    for i in range(length):
        at = min(max(x[i], F(-126)), F(126))
        whole = np.floor(at + F(0.5))
        r = at - whole
        bits[i] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        x[i] = C0 + r * (C1 + r * (C2 + r * (C3 + r * (C4 + r * C5))))
    for i in range(length):
        x[i] *= exponents[i]


@compiled
def _gated(row: Any, out: Any, exponents: Any) -> None:
    """silu(gate) * up, of a row that has both one after the other."""
    size = out.shape[0]
    for i in range(size):
        out[i] = -row[i] * LOG2_E
    _powers(out, exponents, size)
    for i in range(size):
        out[i] = row[i] / (F(1) + out[i]) * row[size + i]


@compiled
def _rounded(row: Any, out: Any) -> Any:
    """To whole numbers of at most LEVELS, told as unsigned ones around LEVELS + 1; what one of them is worth."""
    largest = SMALLEST
    for i in range(row.shape[0]):
        largest = max(largest, abs(row[i]))
    by = F(LEVELS) / largest
    for i in range(row.shape[0]):
        out[i] = np.uint8(np.int32(np.floor(row[i] * by + F(0.5))) + np.int32(LEVELS + 1))
    return largest / F(LEVELS)


@compiled
def _prepare(phase: Any, row: Any, one: Any, norm: Any, room: Any, exponents: Any) -> None:
    """The input of the product that comes next, rounded where that is an int8 one."""
    x, _, flat, gate_up, wide, narrow, steps, _ = room
    to = wide[row, : one[INS]]
    if phase == ATTENDED:
        for i in range(to.shape[0]):
            to[i] = flat[row, i]
    elif phase == GATED:
        _gated(gate_up[row], to, exponents)
    else:
        weight, eps, chosen = norm
        _normed(x[chosen[row] if phase == LAST_NORM else row], weight, eps, to)
    if one[IS_INT8]:
        steps[row] = _rounded(to, narrow[row])


@compiled
def _turn(row: Any, norm: Any, turns: Any, keys: Any, values: Any, offset: Any) -> None:
    """Queries and keys of a row [heads + 2 * kv_heads, head_dim] are normed, if the model does that, and turned; keys and values kept."""
    kv_heads, head_dim = keys.shape[0], keys.shape[1]
    heads = row.shape[0] - 2 * kv_heads
    weights, eps = norm
    for head in range(heads + kv_heads):
        if weights.shape[0] > 0:
            _normed(row[head], weights[0 if head < heads else 1], eps, row[head])
        for i in range(head_dim // 2):
            a, b = row[head, 2 * i], row[head, 2 * i + 1]
            row[head, 2 * i] = a * turns[i, 0] - b * turns[i, 1]
            row[head, 2 * i + 1] = a * turns[i, 1] + b * turns[i, 0]
    for head in range(kv_heads):
        for d in range(head_dim):
            keys[head, d, offset] = row[heads + head, d]
            values[head, offset, d] = row[heads + kv_heads + head, d]


# ---- attention --------------------------------------------------------------------------------------------------------------------------
@compiled
def _attend(heads: Any, table: Any, length: Any, keys: Any, values: Any, own: Any) -> None:
    """One key head for some consecutive rows of a sequence, of which the first sees `length` tokens and each other one more.

    heads [rows, group, head_dim]: queries, then what they found. keys [blocks, head_dim, BLOCK], values [blocks, BLOCK, head_dim].
    """
    asked, scores, found, exponents, _ = own
    rows, group, head_dim = heads.shape
    total, scale = length + rows - 1, LOG2_E / np.sqrt(F(head_dim))
    for r in range(rows):
        for g in range(group):
            for d in range(head_dim):
                asked[r * group + g, d] = heads[r, g, d] * scale
                found[r * group + g, d] = F(0)
    _score(table, total, rows * group, keys, own)
    for v in range(rows * group):
        asked[v, 0] = F(1) / _weigh(scores[v], exponents, length + v // group, total)
    _mix(table, total, rows * group, values, own)
    for r in range(rows):
        for g in range(group):
            for d in range(head_dim):
                heads[r, g, d] = found[r * group + g, d] * asked[r * group + g, 0]


@compiled
def _score(table: Any, total: Any, vectors: Any, keys: Any, own: Any) -> None:
    asked, scores, found, _, _ = own
    wide, long = 4 * keys.shape[1], 4 * scores.shape[1]
    for start in range(0, total, BLOCK):
        w, v = keys[table[start // BLOCK]].ctypes.data, 0
        while v < vectors:
            x, to = asked.ctypes.data + v * wide, scores.ctypes.data + v * long + 4 * start
            v += _block(vectors - v, (w, 4 * BLOCK, x, wide, keys.shape[1], found.ctypes.data, 0, to, long))  # zeros are found so far


@compiled
def _weigh(row: Any, exponents: Any, length: Any, total: Any) -> Any:
    """2^(row - its largest) in place for `length` values, zeros from there to `total`; the sum."""
    largest = row[0]
    for t in range(length):
        largest = max(largest, row[t])
    for t in range(length):
        row[t] -= largest
    _powers(row, exponents, length)
    for t in range(length, total):
        row[t] = F(0)
    return _sum(row, length)


@compiled
def _mix(table: Any, total: Any, vectors: Any, values: Any, own: Any) -> None:
    _, scores, found, _, _ = own
    wide, long = 4 * values.shape[2], 4 * scores.shape[1]
    for start in range(0, total, BLOCK):
        count, d = min(BLOCK, total - start), 0
        while d < values.shape[2]:
            w, size, v = values[table[start // BLOCK]].ctypes.data + 4 * d, min(TILE, values.shape[2] - d), 0
            while v < vectors:
                x, to = scores.ctypes.data + v * long + 4 * start, found.ctypes.data + v * wide + 4 * d
                given = (w, wide, x, long, count, to, wide, to, wide)
                v += _f32(vectors - v, given) if size == TILE else _block(vectors - v, given)
            d += TILE if size == TILE else BLOCK


# ---- a step -----------------------------------------------------------------------------------------------------------------------------
@compiled
def _do(phase: Any, layer: Any, piece: Any, one: Any, given: Any, own: Any) -> None:
    model, cache, work, room = given
    _, extras, norms, head_norms, turns, eps = model
    keys, values = cache
    positions, blocks, offsets, tables, spans, chosen = work
    x, mixed, flat, gate_up, wide, narrow, steps, logits = room
    group = mixed.shape[1] // keys.shape[2] - 2
    if phase == TURN:
        norm, block = (head_norms[layer % head_norms.shape[0]], eps), blocks[piece]
        _turn(mixed[piece], norm, turns[positions[piece]], keys[layer, block, :, 0], values[layer, block, :, 1], offsets[piece])
    elif phase == ATTEND:
        span, head = spans[piece // keys.shape[2]], piece % keys.shape[2]
        heads = mixed[span[0] : span[0] + span[1], head * group : (head + 1) * group]
        _attend(heads, tables[span[2]], np.int64(span[3]), keys[layer, :, head, 0], values[layer, :, head, 1], own)
    elif phase in (QKV, OUT, GATE_UP, DOWN, HEAD):
        to = flat if phase == QKV else gate_up if phase == GATE_UP else logits if phase == HEAD else x
        _product(one, extras, piece, (wide, narrow, steps, own[4]), to, phase in (OUT, DOWN))
    else:
        _prepare(phase, piece, one, (norms[2 * layer + (phase == MLP_NORM)], eps, chosen), room, own[3])


@compiled
def _own(given: Any) -> Any:
    """What a thread has for itself: queries, scores, what they found, exponents, the sums of a tile."""
    _, _, work, room = given
    tables, spans = work[3], work[4]
    group = room[1].shape[1] // given[1][0].shape[2] - 2
    vectors, long, head_dim = group, BLOCK * tables.shape[1], room[1].shape[2]
    for span in range(spans.shape[0]):
        vectors = max(vectors, group * spans[span, 1])
    asked, scores, found = np.empty((vectors, head_dim), F), np.empty((vectors, long), F), np.empty((vectors, head_dim), F)
    return asked, scores, found, np.empty(max(long, room[4].shape[1]), F), np.empty((SIX, TILE), F)


def _step(edition: int) -> Any:
    """Kept on disk, one for each `edition` of what is compiled in and stands elsewhere: numba looks at this file alone."""

    def step(counters: Any, given: Any) -> None:
        """What each of the threads runs. counters int64 [phases, 16], zeros: pieces taken and done, on cache lines of their own.

        A thread that comes late, or that the system holds up, costs the others the piece it has and no more.
        """
        if edition < 0:
            return
        products, norms, work = given[0][0], given[0][2], given[2]
        own, layers, rows = _own(given), norms.shape[0] // 2, work[0].shape[0]
        for number in range(layers * LAST_NORM + 2):
            layer = min(number // LAST_NORM, layers)
            phase = number - layer * LAST_NORM + (LAST_NORM if layer == layers else 0)
            one = products[4 * layer + PRODUCT[phase]]
            pieces = work[5].shape[0] if phase >= LAST_NORM else rows
            if phase == ATTEND:
                pieces = work[4].shape[0] * given[1][0].shape[2]
            elif phase in (QKV, OUT, GATE_UP, DOWN, HEAD):
                pieces = _pieces(one, pieces)
            taken, looks = counters.ctypes.data + 128 * number, 0
            piece = took(taken)
            while piece < pieces:
                _do(phase, layer, piece, one, given, own)
                took(taken + 64)
                piece = took(taken)
            while seen(taken + 64) < pieces:
                looks += 1
                if looks < SPINS:
                    pause()
                else:
                    give_way()

    try:
        return numba.njit(step, cache=True, **machine.VALUES)
    except RuntimeError:  # no folder to keep it in
        return numba.njit(step, **machine.VALUES)


step = _step(machine.EDITION)
