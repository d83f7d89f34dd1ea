"""What the compiled step asks of the processor and numba has no words for: products in vector registers, counters that threads share.

Knows addresses only.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_FEATURES: dict[str, bool] = dict(llvm.get_host_cpu_features())
_X86 = llvm.get_process_triple().startswith("x86")
LANES = 16 if _FEATURES.get("avx512bw") else 8 if _FEATURES.get("avx2") else 4  # f32 of one vector
TILE = 64 if LANES == 16 else 16  # outputs of a product that are computed together
SIX, FOUR, TWO = 6, 4, 2  # rows whose sums over a tile the registers hold
VNNI = LANES == 16 and bool(_FEATURES.get("avx512vnni"))
LEVELS = (
    63 if _X86 and LANES > 4 and not VNNI else 127
)  # of int8 on each side; there two products are added in 16 bits, which holds no more
EDITION = zlib.crc32(Path(__file__).read_bytes())

_word = cast(Callable[[Callable[..., Any]], Any], intrinsic)

# What is computed value by value is rounded as IEEE 754 says, so that it does not matter whether a loop was made of vectors; only sums
# are taken in another order than they are written, by functions that do nothing else.
VALUES: dict[str, Any] = {"nogil": True, "fastmath": {"nnan", "ninf", "nsz"}, "error_model": "numpy"}
_Function = TypeVar("_Function", bound=Callable[..., Any])
compiled = cast(Callable[[_Function], _Function], numba.njit(**VALUES))
summing = cast(Callable[[_Function], _Function], numba.njit(**VALUES | {"fastmath": {"nnan", "ninf", "nsz", "reassoc"}}))


def _call(b: Any, name: str, result: Any, *given: Any) -> Any:
    kind = ir.FunctionType(result, [one.type for one in given])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), given)  # type: ignore[no-untyped-call]


def _tile(rows: int, width: int, int8: bool) -> Any:
    """Products of `rows` inputs with `width` columns, in registers: out[r, :] = start[r, :] + sum over k of x[r, k] * w[k, :].

    Told the addresses and, of all but x, bytes from one row to the next; int8: a k is four unsigned inputs and four weights of each column.
    """
    item, whole = (ir.IntType(32) if int8 else ir.FloatType()), ir.IntType(64)
    vector = ir.VectorType(item, LANES)
    first, nothing = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES), ir.Constant(vector, ir.Undefined)
    sums = [(r, p) for r in range(rows) for p in range(0, width, LANES)]

    def body(b: Any, *given: Any) -> None:
        w, ws, x, xs, count, start, ss, out, os = given

        def at(base: Any, steps: Any, stride: Any, kind: Any, place: int = 0) -> Any:
            return b.inttoptr(b.add(b.add(base, b.mul(steps, stride)), whole(4 * place)), kind.as_pointer())

        begun = {(r, p): b.load(at(start, whole(r), ss, vector, p), align=4) for r, p in sums}
        held = {key: cgutils.alloca_once_value(b, value) for key, value in begun.items()}  # type: ignore[no-untyped-call]
        with cgutils.for_range(b, count) as loop:
            weights = {p: b.load(at(w, loop.index, ws, vector, p), align=4) for p in range(0, width, LANES)}
            for r in range(rows):
                one = b.load(at(b.add(x, b.mul(whole(r), xs)), loop.index, whole(4), item), align=4)
                same = b.shuffle_vector(b.insert_element(nothing, one, ir.IntType(32)(0)), nothing, first)
                for p, weight in weights.items():
                    b.store(_add_products(b, b.load(held[r, p]), same, weight), held[r, p])
        for r, p in sums:
            b.store(b.load(held[r, p]), at(out, whole(r), os, vector, p), align=4)
        b.ret_void()

    def built(context: Any, b: Any, _: Any, given: Any) -> Any:
        name = f"tile_{rows}_{width}_{item}"
        function = b.module.globals.get(name)
        if function is None:
            function = ir.Function(b.module, ir.FunctionType(ir.VoidType(), [whole] * 9), name)
            function.linkage = "linkonce_odr"
            function.attributes.add("noinline")  # compiled once, not once for each use
            body(ir.IRBuilder(function.append_basic_block()), *function.args)
        b.call(function, cgutils.unpack_tuple(b, given[0], 9))  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return _word(lambda _, given: (types.void(given), built))


def _add_products(b: Any, total: Any, x: Any, w: Any) -> Any:
    """total + x * w by lane; of whole numbers a lane has four products."""
    vector = total.type
    if vector.element == ir.FloatType():
        return _call(b, f"llvm.fma.v{LANES}f32", vector, x, w, total)
    if VNNI:
        return _call(b, "llvm.x86.avx512.vpdpbusd.512", vector, total, x, w)
    x, w = (b.bitcast(one, ir.VectorType(ir.IntType(8), 4 * LANES)) for one in (x, w))
    if LEVELS == 63:
        words = ir.VectorType(ir.IntType(16), 2 * LANES)
        twos, fours = ("avx512.pmaddubs.w.512", "avx512.pmaddw.d.512") if LANES == 16 else ("avx2.pmadd.ub.sw", "avx2.pmadd.wd")
        pairs = _call(b, f"llvm.x86.{twos}", words, x, w)
        return b.add(total, _call(b, f"llvm.x86.{fours}", vector, pairs, ir.Constant(words, [1] * 2 * LANES)))
    wide = ir.VectorType(ir.IntType(32), 4 * LANES)
    products = b.mul(b.zext(x, wide), b.sext(w, wide))
    for j in range(4):
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(j, 4 * LANES, 4)))
        total = b.add(total, b.shuffle_vector(products, products, mask))
    return total


@_word
def took(_: Any, address: Any = 0) -> Any:
    """The number at the address, which is one more then, whoever else does that."""

    def built(_context: Any, b: Any, _: Any, given: Any) -> Any:
        return b.atomic_rmw("add", b.inttoptr(given[0], ir.IntType(64).as_pointer()), ir.IntType(64)(1), "seq_cst")

    return types.intp(address), built


@_word
def seen(_: Any, address: Any = 0) -> Any:
    """The number at the address, and with it all that was written before it got there."""

    def built(_context: Any, b: Any, _: Any, given: Any) -> Any:
        return b.load_atomic(b.inttoptr(given[0], ir.IntType(64).as_pointer()), "acquire", 8)

    return types.intp(address), built


@_word
def pause(_: Any) -> Any:
    def built(context: Any, b: Any, _: Any, __: Any) -> Any:
        if _X86:
            _call(b, "llvm.x86.sse2.pause", ir.VoidType())
        return context.get_dummy_value()

    return types.void(), built


give_way = types.ExternalFunction("sched_yield", types.int32())


def tiles(width: int, int8: bool) -> Any:
    """A tile of as many rows as registers hold, at most `rows`; returns how many it were."""
    six, four, two, one = (_tile(rows, width, int8) for rows in (SIX, FOUR, TWO, 1))

    @compiled
    def some(rows: Any, given: Any) -> Any:
        if rows >= SIX:
            six(given)
            return SIX
        if rows >= FOUR:
            four(given)
            return FOUR
        if rows >= TWO:
            two(given)
            return TWO
        one(given)
        return 1

    return some
