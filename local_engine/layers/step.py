"""One step of a decoder on the CPU, compiled by numba: every row through all layers, by several threads that share out each phase.

A row's result is the same bits whoever shares the step and however its prompt was cut: sums go along a row's own values in one order.
All that is compiled is in this file, since numba finds out that a kept function is stale by its own file only. Knows arrays and addresses;
`compiled.py` says what they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_FEATURES: dict[str, bool] = dict(llvm.get_host_cpu_features())
LANES = 16 if _FEATURES.get("avx512f") else 8 if _FEATURES.get("avx2") else 4  # f32 of one vector
TILE = 64 if LANES == 16 else 16  # outputs of a product that are computed together: what the registers hold for SIX rows
BLOCK = 16  # tokens of a block of keys and values
ROWS = 48  # of a product's unit of work: their inputs stay near while its weights are read
QUERIES = 24  # of a unit of attention, at most, if a group of heads is not larger
VNNI = LANES == 16 and bool(_FEATURES.get("avx512vnni"))
X86 = llvm.get_process_triple().startswith("x86")
INT8 = X86 and LANES > 4
LEVELS = 127 if VNNI else 63  # on each side; without VNNI two products are added in 16 bits, and so many never overflow

DATA, OUTS, INS, EXTRAS, IS_INT8 = range(5)  # columns that describe a product
NORM, QKV, TURN, ATTEND, ATTENDED, OUT, MLP_NORM, GATE_UP, GATED, DOWN, LAST_NORM, HEAD = range(12)  # phases; the last two once
LAYER_PHASES = LAST_NORM
_PRODUCT = np.array([0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 0, 0])  # that a phase is or prepares, of its layer's; behind the last layer the head
SIX, FOUR, TWO = 6, 4, 2  # rows whose sums the registers hold
SPINS = 1000  # looks at a counter, some tens of microseconds, before other threads of the machine are let through

F = np.float32
C0, C1, C2, C3, C4, C5 = (F(c) for c in (1.0, 0.69314718, 0.24022651, 0.05550411, 0.00961813, 0.00133336))  # 2^x in [-0.5, 0.5], to 2e-7
LOG2_E = F(math.log2(math.e))
SMALLEST = F(1e-30)

# What is computed value by value is rounded as IEEE 754 says, so that it does not matter which way through a loop its place in memory takes;
# only sums are taken in another order, by functions that do nothing else.
EXACT, SUMS = {"nnan", "ninf", "nsz"}, {"nnan", "ninf", "nsz", "reassoc"}
_Function = TypeVar("_Function", bound=Callable[..., Any])
_compiled = cast(Callable[[_Function], _Function], numba.njit(nogil=True, fastmath=EXACT, error_model="numpy"))
_sums = cast(Callable[[_Function], _Function], numba.njit(nogil=True, fastmath=SUMS, error_model="numpy"))


# ---- what numba has no words for --------------------------------------------------------------------------------------------------------
def _tile(rows: int, width: int, int8: bool) -> Any:
    """Products of `rows` inputs with `width` columns, in registers: out[r, :] = start[r, :] + sum over k of x[r, k] * w[k, :].

    Everything by address and bytes from one row to the next. int8: a k is four unsigned inputs and four weights of each column.
    """
    item, whole = (ir.IntType(32) if int8 else ir.FloatType()), ir.IntType(64)
    vector = ir.VectorType(item, LANES)
    spread = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    places = range(0, width, LANES)

    @intrinsic  # type: ignore[untyped-decorator]
    def tile(_context: Any, w: Any, ws: Any, x: Any, xs: Any, count: Any, start: Any, ss: Any, out: Any, os: Any) -> Any:
        def make(context: Any, b: Any, _: Any, given: Any) -> Any:
            w, ws, x, xs, count, start, ss, out, os = given

            def at(base: Any, steps: Any, stride: Any, kind: Any, place: int = 0) -> Any:
                return b.inttoptr(b.add(b.add(base, b.mul(steps, stride)), whole(4 * place)), kind.as_pointer())

            sums = {
                (r, p): cgutils.alloca_once_value(b, b.load(at(start, whole(r), ss, vector, p), align=4)) for r in range(rows) for p in places
            }
            with cgutils.for_range(b, count) as loop:
                weights = {p: b.load(at(w, loop.index, ws, vector, p), align=4) for p in places}
                for r in range(rows):
                    one = b.load(at(b.add(x, b.mul(whole(r), xs)), loop.index, whole(4), item), align=4)
                    some = b.insert_element(ir.Constant(vector, ir.Undefined), one, ir.IntType(32)(0))
                    same = b.shuffle_vector(some, ir.Constant(vector, ir.Undefined), spread)
                    for p in places:
                        b.store(_add_products(b, b.load(sums[r, p]), same, weights[p], int8), sums[r, p])
            for (r, p), total in sums.items():
                b.store(b.load(total), at(out, whole(r), os, vector, p), align=4)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 9), make

    return tile


def _add_products(b: Any, total: Any, x: Any, w: Any, int8: bool) -> Any:
    """total + x * w by lane; in int8 a lane is four products."""
    vector = total.type

    def call(name: str, result: Any, *given: Any) -> Any:
        function = cgutils.get_or_insert_function(b.module, ir.FunctionType(result, [one.type for one in given]), name)
        return b.call(function, given)

    if not int8:
        return call(f"llvm.fma.v{LANES}f32", vector, x, w, total)
    if VNNI:
        return call("llvm.x86.avx512.vpdpbusd.512", vector, total, x, w)
    bytes_, words = ir.VectorType(ir.IntType(8), 4 * LANES), ir.VectorType(ir.IntType(16), 2 * LANES)
    ub_sw, wd = ("avx512.pmaddubs.w.512", "avx512.pmaddw.d.512") if LANES == 16 else ("avx2.pmadd.ub.sw", "avx2.pmadd.wd")
    twos = call(f"llvm.x86.{ub_sw}", words, b.bitcast(x, bytes_), b.bitcast(w, bytes_))
    return b.add(total, call(f"llvm.x86.{wd}", vector, twos, ir.Constant(words, [1] * 2 * LANES)))


@intrinsic  # type: ignore[untyped-decorator]
def _took(_context: Any, address: Any) -> Any:
    """The number at the address, which is one more then, whoever else does that."""

    def make(_: Any, b: Any, __: Any, given: Any) -> Any:
        return b.atomic_rmw("add", b.inttoptr(given[0], ir.IntType(64).as_pointer()), ir.IntType(64)(1), "seq_cst")

    return types.intp(types.intp), make


@intrinsic  # type: ignore[untyped-decorator]
def _seen(_context: Any, address: Any) -> Any:
    """The number at the address, and with it all that was written before it got there."""

    def make(_: Any, b: Any, __: Any, given: Any) -> Any:
        return b.load_atomic(b.inttoptr(given[0], ir.IntType(64).as_pointer()), "acquire", 8)

    return types.intp(types.intp), make


@intrinsic  # type: ignore[untyped-decorator]
def _pause(_context: Any) -> Any:
    def make(context: Any, b: Any, _: Any, __: Any) -> Any:
        if X86:
            b.call(cgutils.get_or_insert_function(b.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), make


_yield = types.ExternalFunction("sched_yield", types.int32())



def _tiles(width: int, int8: bool) -> Any:
    """The same for as many rows as registers hold, at most `rows`; returns how many it were."""
    six, four, two, one = (_tile(rows, width, int8) for rows in (SIX, FOUR, TWO, 1))

    @_compiled
    def some(rows: Any, w: Any, ws: Any, x: Any, xs: Any, count: Any, start: Any, ss: Any, out: Any, os: Any) -> Any:
        if rows >= SIX:
            six(w, ws, x, xs, count, start, ss, out, os)
            return SIX
        if rows >= FOUR:
            four(w, ws, x, xs, count, start, ss, out, os)
            return FOUR
        if rows >= TWO:
            two(w, ws, x, xs, count, start, ss, out, os)
            return TWO
        one(w, ws, x, xs, count, start, ss, out, os)
        return 1

    return some


_f32, _int8, _block = _tiles(TILE, False), _tiles(TILE, INT8), _tiles(BLOCK, False)


# ---- the phases -------------------------------------------------------------------------------------------------------------------------
@_sums
def _sum(x: Any, length: Any) -> Any:
    total = F(0)
    for i in range(length):
        total += x[i]
    return total


@_sums
def _squares(x: Any) -> Any:
    total = F(0)
    for i in range(x.shape[0]):
        total += x[i] * x[i]
    return total


@_compiled
def _normed(x: Any, weight: Any, eps: Any, out: Any) -> None:
    """RMS norm of a row; `weight` has the root of its size in it."""
    by = F(1) / np.sqrt(_squares(x) + F(x.shape[0]) * eps)
    for i in range(x.shape[0]):
        out[i] = x[i] * by * weight[i]


@_compiled
def _power(x: Any) -> Any:
    """2^x for x from -126 to 126: the whole part by the bits of a float is the caller's, who has arrays; here the rest."""
    return C0 + x * (C1 + x * (C2 + x * (C3 + x * (C4 + x * C5))))


@_compiled
def _gated(row: Any, out: Any, exponents: Any) -> None:
    """silu(gate) * up, of a row that has both one after the other."""
    size = out.shape[0]
    bits = exponents.view(np.int32)
    for i in range(size):
        x = min(max(-row[i] * LOG2_E, F(-126)), F(126))
        whole = np.floor(x + F(0.5))
        bits[i] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        out[i] = _power(x - whole)
    for i in range(size):
        out[i] = row[i] / (F(1) + out[i] * exponents[i]) * row[size + i]


@_compiled
def _rounded(row: Any, out: Any) -> Any:
    """To whole numbers of at most LEVELS, told as unsigned ones around LEVELS + 1; what one of them is worth."""
    largest = SMALLEST
    for i in range(row.shape[0]):
        largest = max(largest, abs(row[i]))
    by = F(LEVELS) / largest
    for i in range(row.shape[0]):
        out[i] = np.uint8(np.int32(np.floor(row[i] * by + F(0.5))) + np.int32(LEVELS + 1))
    return largest / F(LEVELS)


@_compiled
def _product(one: Any, extras: Any, unit: Any, inputs: Any, sums: Any, out: Any, add: Any) -> None:
    """TILE outputs of at most ROWS rows, written to `out` or added to it."""
    wide, narrow, steps = inputs
    rows = out.shape[0]
    blocks = (rows + ROWS - 1) // ROWS
    tile, row = unit // blocks, unit % blocks * ROWS
    last, first = min(row + ROWS, rows), tile * TILE
    size = min(TILE, one[OUTS] - first)
    padded = (one[OUTS] + TILE - 1) // TILE * TILE
    start = extras.ctypes.data + 4 * (one[EXTRAS] + first)
    whole = sums.view(np.int32)
    count = (one[INS] + 3) // 4 if one[IS_INT8] else one[INS]
    w, ws = one[DATA] + 4 * TILE * tile * count, 4 * TILE
    while row < last:
        if one[IS_INT8]:
            x = narrow.ctypes.data + row * narrow.shape[1]
            done = _int8(last - row, w, ws, x, narrow.shape[1], count, start, 0, sums.ctypes.data, 4 * TILE)
            scales, bias = one[EXTRAS] + padded + first, one[EXTRAS] + 2 * padded + first
            for r in range(done):
                for i in range(size):
                    sums[r, i] = F(whole[r, i]) * (steps[row + r] * extras[scales + i]) + extras[bias + i]
        else:
            x = wide.ctypes.data + 4 * row * wide.shape[1]
            done = _f32(last - row, w, ws, x, 4 * wide.shape[1], count, start, 0, sums.ctypes.data, 4 * TILE)
        for r in range(done):
            for i in range(size):
                if add:
                    out[row + r, first + i] += sums[r, i]
                else:
                    out[row + r, first + i] = sums[r, i]
        row += done


@_compiled
def _turn(row: Any, norms: Any, eps: Any, turns: Any, keys: Any, values: Any, offset: Any) -> None:
    """Queries and keys of a row [heads + 2 * kv_heads, head_dim] normed if the model does that, and turned; keys and values to their place."""
    kv_heads, head_dim = keys.shape[0], keys.shape[1]
    heads = row.shape[0] - 2 * kv_heads
    for head in range(heads + kv_heads):
        if norms.shape[0]:
            _normed(row[head], norms[0 if head < heads else 1], eps, row[head])
        for i in range(head_dim // 2):
            a, b = row[head, 2 * i], row[head, 2 * i + 1]
            row[head, 2 * i] = a * turns[i, 0] - b * turns[i, 1]
            row[head, 2 * i + 1] = a * turns[i, 1] + b * turns[i, 0]
    for head in range(kv_heads):
        for d in range(head_dim):
            keys[head, d, offset] = row[heads + head, d]
            values[head, offset, d] = row[heads + kv_heads + head, d]


@_compiled
def _weigh(row: Any, exponents: Any, length: Any, total: Any) -> Any:
    """2^(row - its largest) in place for `length` values, zeros from there to `total`; one over their sum."""
    largest = row[0]
    for t in range(length):
        largest = max(largest, row[t])
    bits = exponents.view(np.int32)
    for t in range(length):
        x = max(row[t] - largest, F(-126))
        whole = np.floor(x + F(0.5))
        bits[t] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        row[t] = _power(x - whole)
    for t in range(length):
        row[t] *= exponents[t]
    for t in range(length, total):
        row[t] = F(0)
    return F(1) / _sum(row, length)


@_compiled
def _attend(heads: Any, table: Any, length: Any, keys: Any, values: Any, room: Any) -> None:
    """One key head for some consecutive rows of a sequence, of which the first sees `length` tokens and each other one more.

    heads [rows, group, head_dim] are queries before and what they found after; keys [blocks, head_dim, BLOCK], values [blocks, BLOCK, head_dim].
    """
    asked, scores, found, shares, exponents = room
    rows, group, head_dim = heads.shape
    vectors, total = rows * group, length + rows - 1
    scale = LOG2_E / np.sqrt(F(head_dim))
    for r in range(rows):
        for g in range(group):
            for d in range(head_dim):
                asked[r * group + g, d] = heads[r, g, d] * scale
                found[r * group + g, d] = F(0)
    wide, long = 4 * head_dim, 4 * scores.shape[1]
    for start in range(0, total, BLOCK):
        w, v = keys[table[start // BLOCK]].ctypes.data, 0
        while v < vectors:
            x, to = asked.ctypes.data + v * wide, scores.ctypes.data + v * long + 4 * start
            v += _block(vectors - v, w, 4 * BLOCK, x, wide, head_dim, found.ctypes.data, 0, to, long)
    for v in range(vectors):
        shares[v] = _weigh(scores[v], exponents, length + v // group, total)
    for start in range(0, total, BLOCK):
        w, count = values[table[start // BLOCK]].ctypes.data, min(BLOCK, total - start)
        d = 0
        while d < head_dim:
            size, v = TILE if head_dim - d >= TILE else BLOCK, 0
            while v < vectors:
                x, to = scores.ctypes.data + v * long + 4 * start, found.ctypes.data + v * wide + 4 * d
                if size == TILE:
                    v += _f32(vectors - v, w + 4 * d, wide, x, long, count, to, wide, to, wide)
                else:
                    v += _block(vectors - v, w + 4 * d, wide, x, long, count, to, wide, to, wide)
            d += size
    for r in range(rows):
        for g in range(group):
            for d in range(head_dim):
                heads[r, g, d] = found[r * group + g, d] * shares[r * group + g]


@_compiled
def _prepare(phase: Any, row: Any, one: Any, model: Any, layer: Any, work: Any, room: Any, exponents: Any) -> None:
    """The input of the product that comes next, of one row, rounded where it is an int8 product."""
    _, _, norms, _, _, eps = model
    x, mixed, gate_up, wide, narrow, steps, _ = room
    to = wide[row, : one[INS]]
    if phase == ATTENDED:
        attended = mixed[row].reshape(-1)
        for i in range(to.shape[0]):
            to[i] = attended[i]
    elif phase == GATED:
        _gated(gate_up[row], to, exponents)
    elif phase == LAST_NORM:
        _normed(x[work[5][row]], norms[2 * layer], eps, to)
    else:
        _normed(x[row], norms[2 * layer + (phase == MLP_NORM)], eps, to)
    if one[IS_INT8]:
        steps[row] = _rounded(to, narrow[row])


@_compiled
def _units(phase: Any, one: Any, rows: Any, chosen: Any, spans: Any, kv_heads: Any) -> Any:
    """Into how many pieces of work a phase falls."""
    if phase == ATTEND:
        return spans * kv_heads
    if phase in (QKV, OUT, GATE_UP, DOWN, HEAD):
        return (one[OUTS] + TILE - 1) // TILE * (((chosen if phase == HEAD else rows) + ROWS - 1) // ROWS)
    return chosen if phase == LAST_NORM else rows


def step(counters: Any, model: Any, cache: Any, work: Any, room: Any) -> None:
    """What each of the threads runs. counters int64 [phases, 16], zeros: pieces taken and done, on cache lines of their own.

    A thread that comes late, or that the system holds up, costs the others the piece it has and no more.
    """
    products, extras, norms, head_norms, turns, eps = model
    keys, values = cache
    positions, blocks, offsets, tables, spans, chosen = work
    x, mixed, gate_up, wide, narrow, steps, logits = room
    rows, kv_heads = x.shape[0], keys.shape[2]
    group = mixed.shape[1] // kv_heads - 2
    vectors = group
    for span in range(spans.shape[0]):
        vectors = max(vectors, group * spans[span, 1])
    long, head_dim = BLOCK * tables.shape[1], mixed.shape[2]
    sums, exponents = np.empty((SIX, TILE), F), np.empty(max(long, wide.shape[1]), F)
    own = (np.empty((vectors, head_dim), F), np.empty((vectors, long), F), np.empty((vectors, head_dim), F), np.empty(vectors, F), exponents)
    layers, flat = norms.shape[0] // 2, mixed.reshape(rows, mixed.shape[1] * head_dim)
    for number in range(layers * LAYER_PHASES + 2):
        layer = min(number // LAYER_PHASES, layers)
        phase = number - layer * LAYER_PHASES + (LAST_NORM if layer == layers else 0)
        one = products[4 * layer + _PRODUCT[phase]]
        units = _units(phase, one, rows, chosen.shape[0], spans.shape[0], kv_heads)
        to = flat if phase == QKV else gate_up if phase == GATE_UP else logits if phase == HEAD else x
        counter = counters.ctypes.data + 128 * number
        unit = _took(counter)
        while unit < units:
            if phase == TURN:
                own_norms, block = head_norms[layer if head_norms.shape[0] > 1 else 0], blocks[unit]
                _turn(mixed[unit], own_norms, eps, turns[positions[unit]], keys[layer, block, :, 0], values[layer, block, :, 1], offsets[unit])
            elif phase == ATTEND:
                span, head = spans[unit // kv_heads], unit % kv_heads
                heads = mixed[span[0] : span[0] + span[1], head * group : (head + 1) * group]
                _attend(heads, tables[span[2]], np.int64(span[3]), keys[layer, :, head, 0], values[layer, :, head, 1], own)
            elif phase in (QKV, OUT, GATE_UP, DOWN, HEAD):
                _product(one, extras, unit, (wide, narrow, steps), sums, to, phase in (OUT, DOWN))
            else:
                _prepare(phase, unit, one, model, layer, work, room, exponents)
            _took(counter + 64)
            unit = _took(counter)
        looks = 0
        while _seen(counter + 64) < units:
            looks += 1
            if looks < SPINS:
                _pause()
            else:
                _yield()


try:
    step = numba.njit(step, cache=True, nogil=True, fastmath=EXACT, error_model="numpy")
except RuntimeError:  # no folder to keep it in
    step = numba.njit(step, nogil=True, fastmath=EXACT, error_model="numpy")
