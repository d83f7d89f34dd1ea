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
from local_engine.machine import LEVELS, SIX, TILE, compiled, give_way, pause, seen, summing, took

BLOCK = 16  # tokens of a block of keys and values
ROWS = 48  # of a product's piece of work: their inputs stay near while its weights are read
MOST_TILES, LEAST_PIECES = 4, 24  # so many of a product at once, if it is so many pieces then
QUERIES = 24  # of a piece of attention, if a group of heads is not larger
SPINS = 1000  # looks at a counter, some tens of microseconds, before others of the machine are let through

DATA, OUTS, INS, EXTRAS, IS_INT8 = range(5)  # columns that describe a product
NORM, QKV, TURN, ATTEND, ATTENDED, OUT, MLP_NORM, GATE_UP, GATED, DOWN, LAST_NORM, HEAD = range(12)  # phases; the last two come once
PRODUCT = np.array([0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 0, 0])  # which of its layer's a phase is or prepares; behind the last layer, the head

F = np.float32
C0, C1, C2, C3, C4, C5 = (F(c) for c in (1.0, 0.69314718, 0.24022651, 0.05550411, 0.00961813, 0.00133336))  # 2^x in [-0.5, 0.5], to 2e-7
LOG2_E, SMALLEST = F(math.log2(math.e)), F(1e-30)
_f32, _int8, _block = machine.tiles(TILE, False), machine.tiles(TILE, True), machine.tiles(BLOCK, False)


@compiled
def _pieces(one: Any, rows: Any) -> Any:
    """How many pieces of work a product is, and how many tiles are in one: more of them, where there are enough to share out."""
    tiles = (one[OUTS] + TILE - 1) // TILE
    each = min(MOST_TILES, max(1, tiles // LEAST_PIECES))
    return (tiles + each - 1) // each * ((rows + ROWS - 1) // ROWS), each


@compiled
def _product(one: Any, first: Any, row: Any, inputs: Any, out: Any, add: Any) -> None:
    """Outputs of the tile that begins at `first`, of at most ROWS rows from `row` on, written to `out` or added to it."""
    wide, width, narrow, narrow_width, steps, extras_at, extras, sums, whole, to = inputs
    last, size = min(row + ROWS, out.shape[0]), min(TILE, one[OUTS] - first)
    padded = (one[OUTS] + TILE - 1) // TILE * TILE
    start = extras_at + 4 * (one[EXTRAS] + first)
    count = (one[INS] + 3) // 4 if one[IS_INT8] else one[INS]
    w = one[DATA] + 4 * first * count
    while row < last:
        if one[IS_INT8]:
            done = _int8(last - row, (w, 4 * TILE, narrow + row * narrow_width, narrow_width, count, start, 0, to, 4 * TILE))
            scales, bias = one[EXTRAS] + padded + first, one[EXTRAS] + 2 * padded + first
            for r in range(done):
                for i in range(size):
                    sums[r, i] = F(whole[r, i]) * (steps[row + r] * extras[scales + i]) + extras[bias + i]
        else:
            done = _f32(last - row, (w, 4 * TILE, wide + 4 * row * width, 4 * width, count, start, 0, to, 4 * TILE))
        for r in range(done):
            for i in range(size):
                if add:
                    out[row + r, first + i] += sums[r, i]
                else:
                    out[row + r, first + i] = sums[r, i]
        row += done


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
    x, _, flat, gate_up, wide, narrow, steps, _, _ = room
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
def _turn(row: Any, norm: Any, turns: Any, at: Any) -> None:
    """Queries and keys of a row [heads + 2 * kv_heads, head_dim] are normed, if the model does that, and turned; keys and values kept."""
    keys, values, offset = at
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


@compiled
def _attend(heads: Any, table: Any, length: Any, place: Any, own: Any) -> None:
    """One key head for some consecutive rows of a sequence, of which the first sees `length` tokens and each other one more.

    heads [rows, group, head_dim]: queries, then what they found. place: the address of all keys and values, layer, head, shape of the keys.
    """
    asked, scores, found, exponents, _, _ = own
    rows, group, head_dim = heads.shape
    total, scale = length + rows - 1, LOG2_E / np.sqrt(F(head_dim))
    for r in range(rows):
        for g in range(group):
            for d in range(head_dim):
                asked[r * group + g, d] = heads[r, g, d] * scale
                found[r * group + g, d] = F(0)
    cache, layer, head, (_, blocks, kv_heads, _, _, _) = place
    first, each = cache + 8 * BLOCK * head_dim * (layer * blocks * kv_heads + head), 8 * BLOCK * head_dim * kv_heads
    _score(table, total, rows * group, (first, each), own)
    for v in range(rows * group):
        asked[v, 0] = F(1) / _weigh(scores[v], exponents, length + v // group, total)
    _mix(table, total, rows * group, (first + 4 * BLOCK * head_dim, each), own)
    for r in range(rows):
        for g in range(group):
            for d in range(head_dim):
                heads[r, g, d] = found[r * group + g, d] * asked[r * group + g, 0]


@compiled
def _score(table: Any, total: Any, vectors: Any, keys: Any, own: Any) -> None:
    """keys: the address of those of block 0, and bytes to the next block's."""
    asked, scores, found, _, _, _ = own
    head_dim, wide, long = asked.shape[1], 4 * asked.shape[1], 4 * scores.shape[1]
    asked_at, scores_at, zeros = asked.ctypes.data, scores.ctypes.data, found.ctypes.data
    for start in range(0, total, BLOCK):
        w, v = keys[0] + keys[1] * table[start // BLOCK], 0
        while v < vectors:
            given = (w, 4 * BLOCK, asked_at + v * wide, wide, head_dim, zeros, 0, scores_at + v * long + 4 * start, long)
            v += _block(vectors - v, given)


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
    _, scores, found, _, _, _ = own
    head_dim, wide, long = found.shape[1], 4 * found.shape[1], 4 * scores.shape[1]
    scores_at, found_at = scores.ctypes.data, found.ctypes.data
    for start in range(0, total, BLOCK):
        count, d = min(BLOCK, total - start), 0
        while d < head_dim:
            w, size, v = values[0] + values[1] * table[start // BLOCK] + 4 * d, min(TILE, head_dim - d), 0
            while v < vectors:
                to = found_at + v * wide + 4 * d
                given = (w, wide, scores_at + v * long + 4 * start, long, count, to, wide, to, wide)
                v += _f32(vectors - v, given) if size == TILE else _block(vectors - v, given)
            d += TILE if size == TILE else BLOCK


@compiled
def _work(phase: Any, layer: Any, taken: Any, pieces: Any, given: Any, own: Any) -> None:
    """Pieces of a phase, until all are taken."""
    model, cache, work, room = given
    products, extras, norms, head_norms, turns, eps = model
    keys, values, _ = cache
    positions, blocks, offsets, tables, spans, chosen = work
    x, mixed, flat, gate_up, wide, narrow, steps, logits, places = room
    one, kv_heads = products[4 * layer + PRODUCT[phase]], keys.shape[2]
    group, norm = mixed.shape[1] // kv_heads - 2, norms[min(2 * layer + (phase == MLP_NORM), norms.shape[0] - 1)]
    to = flat if phase == QKV else gate_up if phase == GATE_UP else logits if phase == HEAD else x
    inputs = (places[0], wide.shape[1], places[1], narrow.shape[1], steps, places[2], extras, own[4], own[5], own[4].ctypes.data)
    columns, each = _pieces(one, 1)
    piece = took(taken)
    while piece < pieces:
        if phase == TURN:
            at = (keys[layer, blocks[piece], :, 0], values[layer, blocks[piece], :, 1], offsets[piece])
            _turn(mixed[piece], (head_norms[layer % head_norms.shape[0]], eps), turns[positions[piece]], at)
        elif phase == ATTEND:
            span, head = spans[piece // kv_heads], piece % kv_heads
            heads = mixed[span[0] : span[0] + span[1], head * group : (head + 1) * group]
            _attend(heads, tables[span[2]], np.int64(span[3]), (cache[2], layer, head, keys.shape), own)
        elif phase in (QKV, OUT, GATE_UP, DOWN, HEAD):
            for tile in range(piece % columns * each, min((piece % columns + 1) * each, (one[OUTS] + TILE - 1) // TILE)):
                _product(one, tile * TILE, piece // columns * ROWS, inputs, to, phase in (OUT, DOWN))
        else:
            _prepare(phase, piece, one, (norm, eps, chosen), room, own[3])
        took(taken + 64)
        piece = took(taken)


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
    sums = np.empty((SIX, TILE), F)
    return asked, scores, found, np.empty(max(long, room[4].shape[1]), F), sums, sums.view(np.int32)


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
            pieces = work[5].shape[0] if phase >= LAST_NORM else rows
            if phase == ATTEND:
                pieces = work[4].shape[0] * given[1][0].shape[2]
            elif phase in (QKV, OUT, GATE_UP, DOWN, HEAD):
                pieces = _pieces(products[4 * layer + PRODUCT[phase]], pieces)[0]
            taken, looks = counters.ctypes.data + 128 * number, 0
            _work(phase, layer, taken, pieces, given, own)
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
