"""The record of one choice: each predictor's inputs and coefficients, prices, rejections, the draw and the order that came out.

Everything in it is an integer, a name or one of a few floats, so that the choice can be recomputed from the record alone and must agree.
Knows no prompt. Encoded in a batch off the request path (`encode`), at most 1.5 KB for eight candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

POLICY = "1"  # raised with every change of what a record means or how a choice is computed


class Candidate(Struct, array_like=True, gc=False):
    """One backend as the choice saw it. Microseconds and nano-USD; rates are nano-USD per million tokens, per_request at the end."""

    backend: str
    reason: str = ""  # why it was set aside; empty = eligible
    price_id: str = ""
    rates: tuple[int, int, int, int] | None = None  # input, output, cache read, per request; None = unpriced
    base_us: int = 0  # residual q95 of the time to first token
    slope_ns: int = 0  # per input token
    load_us: int = 0  # per request in flight
    in_flight: int = 0
    samples: int = 0  # behind base_us
    fresh: bool = False  # seen a moment ago: not worth exploring
    ready_ms: int = 0  # how long the reason lasts, 0 = no time is known
    cost: int | None = None
    ttft95_us: int = 0
    tpot95_us: int = 0
    e2e95_us: int = 0


class Decision(Struct, array_like=True, gc=False):
    """One choice. order: indices into candidates, the first is asked first. propensity: how likely the first was, over the draw."""

    policy: str
    catalog: str
    route: str
    input_tokens: int
    cache_read_tokens: int
    output_tokens: int  # expected
    ttft_ms: float | None
    tpot_ms: float | None
    deadline_ms: float | None
    margin: float
    explore_share: float
    draw: float
    candidates: tuple[Candidate, ...]
    order: tuple[int, ...] = ()
    explored: bool = False
    propensity: float = 1.0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Decision)


def encode(decision: Decision) -> bytes:
    """The bytes of the `decisions.record` column."""
    return _encoder.encode(decision)


def decode(record: bytes) -> Decision:
    """Raises msgspec.MsgspecError for bytes that are no record."""
    return _decoder.decode(record)


def explain(decision: Decision, differences: Sequence[str] = ()) -> str:
    """The record as text for people. differences: what `choose.differences(decision)` found, none = the recomputation agrees."""
    d = decision
    goals = [
        f"{name} {value:g} ms"
        for name, value in (("ttft", d.ttft_ms), ("tpot", d.tpot_ms), ("deadline", d.deadline_ms))
        if value is not None
    ]
    lines = [
        f"route {d.route}: {d.input_tokens} input tokens ({d.cache_read_tokens} cached), {d.output_tokens} output tokens expected",
        f"objectives: {', '.join(goals) or 'none'}; predictions count when within {d.margin:g} of them",
    ]
    rank = {index: place for place, index in enumerate(d.order, 1)}
    for index in (*d.order, *(i for i in range(len(d.candidates)) if i not in rank)):
        lines.append(_line(d.candidates[index], rank.get(index)))
    if not d.order:
        lines.append("no backend could be asked")
    elif d.explored:
        lines.append(f"explored: the first has no fresh sample and this request has time (draw {d.draw:.6f} < {d.explore_share:g})")
    lines.append(f"propensity {d.propensity:.4f}, draw {d.draw:.6f}, policy {d.policy}, catalog {d.catalog}")
    lines.append("recomputed: " + ("agrees" if not differences else "DIFFERS: " + "; ".join(differences)))
    return "\n".join(lines)


def _line(c: Candidate, place: int | None) -> str:
    head = f"{place}." if place is not None else "-"
    cost = "unknown" if c.cost is None else f"{c.cost // 10**9}.{c.cost % 10**9:09d} USD"
    price = (
        ""
        if c.rates is None
        else f" [{c.price_id}: in {c.rates[0]} out {c.rates[1]} cached {c.rates[2]} nano-USD per million, {c.rates[3]} per request]"
    )
    why = f", set aside: {c.reason}" if c.reason else ""
    wait = f" for {c.ready_ms} ms" if c.ready_ms else ""
    return (
        f"{head:>3} {c.backend}: cost {cost}{price}, ttft95 {c.ttft95_us / 1000:.1f} ms = {c.base_us / 1000:.1f} + {c.slope_ns} ns x tokens"
        f" + {c.load_us} us x {c.in_flight} in flight ({c.samples} samples), tpot95 {c.tpot95_us / 1000:.2f} ms, end "
        f"{c.e2e95_us / 1000:.1f} ms{why}{wait}"
    )
