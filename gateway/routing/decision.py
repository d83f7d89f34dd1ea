"""The record of one choice: each predictor's inputs and coefficients, prices, rejections, the draw and the order that came out.

Everything in it is an integer, a name or one of a few floats, so that the choice can be recomputed from the record alone and must agree.
Knows no prompt. Encoded in a batch off the request path (`encode`), at most 1.5 KB for eight candidates.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gateway.routing.predict import Line

POLICY = "5"  # raised with every change of what a record means or how a choice is computed


class Candidate(Struct, array_like=True, gc=False):
    """One backend as the choice saw it. Microseconds and nano-USD; rates are nano-USD per million tokens, per_request at the end."""

    backend: str
    reason: str = ""  # why it was set aside; empty = eligible
    own: bool = False  # an engine that queues what it is sent
    kin: int = 0  # a number of its vendor
    price_id: str = ""
    rates: tuple[int, int, int, int] | None = None  # input, output, cache read, per request; None = unpriced
    ttft: Line = (0,)
    tpot: Line = (0,)
    ahead: int = 0  # prompt tokens that an engine of one's own must prefill before this request's
    cached: int = 0  # tokens of this prompt that its prompt cache is expected to spare
    in_flight: int = 0
    samples: int = 0  # behind the time to first token
    odds_ppm: int = 0  # of the attempt to fail rather than not
    doubt: int = 0  # 0 seen a moment ago, 1 without a fresh sample, 2 was far better once and may be again
    ready_ms: int = 0  # how long the reason lasts, 0 = no time is known
    cost: int | None = None
    ttft95_us: int = 0
    tpot95_us: int = 0
    e2e95_us: int = 0
    held: int = 0  # tokens of this prompt that were answered there lately, where its vendor may have kept them
    hit_ppm: int = 0  # of those, the share that it reads for less
    soon: int = 0  # tokens that only others hold, by the odds that a later such request would find them here
    scarcity: int = 0  # nano-USD per million tokens of an engine of one's own, by what those pay whom it turns away


PLAIN_MOST = 1024  # bytes of a record that is not deflated
ZLIB = b"\x78"  # how a deflated one begins; an array never does
LABELS_MOST = 256  # characters of labels in a record
SENT = "sent"
HEDGE_RESULTS = {
    SENT: "{backend} was asked beside it (ttft95 {ttft95_ms:.1f} ms)",
    "no_token": "nobody was asked beside it: no hedge was left",
    "nobody": "nobody was asked beside it: no other backend would be in time",
    "no_money": "{backend} was not asked beside it: a budget had no room for both",
    "no_journal": "{backend} was not asked beside it: the journal took no more",
}


class Quality(Struct, array_like=True, frozen=True, gc=False):
    """What the quality model said of the prompt, in millionths. gain: by how much likelier the strong model is right, negative where it
    is not; weak_odds: of a right answer from the weak one; unseen: share of words that the model never saw. Backends in `weak` are set
    aside where the gain is above `limit`, or more is unseen than `unseen_most`."""

    model: str
    gain: int
    weak_odds: int
    unseen: int
    limit: int
    unseen_most: int
    weak: tuple[str, ...]

    @property
    def needs_strong(self) -> bool:
        return self.gain > self.limit or self.unseen > self.unseen_most


class Hedge(Struct, array_like=True, gc=False):
    """What became of a request that was late: whether a second backend was asked beside the first, and who answered first."""

    after_us: int  # when it was late, from its admission
    waited_us: int  # when that was noticed
    result: str  # a name of HEDGE_RESULTS
    second: int = -1  # index of the second among the candidates
    ttft95_us: int = 0  # predicted of the second, then
    won: int = 0  # 1 the first, 2 the second, 0 neither


class Asked(Struct, array_like=True, frozen=True, gc=False):
    """What the request asked for beside its prompt, and what was made of that. parameters: by name, numbers and known words alone.
    dropped: fields that its backend was sent without. lowered: the max_tokens that was left it. cache: why the response cache did not
    answer, a word of cache/response.py."""

    parameters: tuple[tuple[str, bool | int | float | str], ...] = ()
    dropped: tuple[str, ...] = ()
    lowered: int | None = None
    cache: str = ""


def hedged(hedge: Hedge) -> str:
    """What came of it in a word: a name of HEDGE_RESULTS, or of one that was sent won | lost | unanswered."""
    return hedge.result if hedge.result != SENT else ("unanswered", "lost", "won")[hedge.won]


class Decision(Struct, array_like=True, gc=False):
    """One choice. order: indices into candidates, the first is asked first. propensity: how likely the first was, over the draw."""

    policy: str
    catalog: str
    route: str
    input_tokens: int
    output_tokens: int  # expected: the cost
    output_high_tokens: int  # nine of ten answers are no longer: the deadline
    ttft_ms: float | None
    tpot_ms: float | None
    deadline_ms: float | None
    margin: float
    explore_share: float
    priority: int
    draw: float
    candidates: tuple[Candidate, ...]
    order: tuple[int, ...] = ()
    explored: bool = False
    propensity: float = 1.0
    hedge: Hedge | None = None  # added while its attempts run
    labels: str = ""  # that a backend must carry, name=value,…; cut at LABELS_MOST
    quality: Quality | None = None  # None: the route does not ask
    asked: Asked | None = None  # added when it is written; None in older records


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Decision)


def encode(decision: Decision) -> bytes:
    """The bytes of the `decisions.record` column: MessagePack, deflated where it is long (candidates are much alike)."""
    plain = _encoder.encode(decision)
    return plain if len(plain) <= PLAIN_MOST else zlib.compress(plain, 1)


def decode(record: bytes) -> Decision:
    """Raises msgspec.MsgspecError for bytes that are no record."""
    if record[:1] == ZLIB:
        try:
            record = zlib.decompress(record)
        except zlib.error as error:
            raise msgspec.DecodeError(str(error)) from None
    return _decoder.decode(record)


def plain(decision: Decision) -> dict[str, Any]:
    """The record with the names of its fields, as values for JSON."""
    found: dict[str, Any] = msgspec.structs.asdict(decision)
    found["candidates"] = [msgspec.structs.asdict(candidate) for candidate in decision.candidates]
    for name, part in (("quality", decision.quality), ("hedge", decision.hedge), ("asked", decision.asked)):
        found[name] = None if part is None else msgspec.structs.asdict(part)
    return found


def explain(decision: Decision, differences: Sequence[str] = ()) -> str:
    """The record as text for people. differences: what `choose.differences(decision)` found, none = the recomputation agrees."""
    d = decision
    goals = [
        f"{name} {value:g} ms"
        for name, value in (("ttft", d.ttft_ms), ("tpot", d.tpot_ms), ("deadline", d.deadline_ms))
        if value is not None
    ]
    lines = [
        f"route {d.route}: {d.input_tokens} input tokens, {d.output_tokens} output tokens expected",
        f"objectives: {', '.join(goals) or 'none'}; predictions count when within {d.margin:g} of them",
    ]
    if d.labels:
        lines.append(f"labels asked for: {d.labels}")
    if d.asked is not None and d.asked.parameters:
        lines.append(f"asked for: {', '.join([f'{name} {value}' for name, value in d.asked.parameters])}")
    if d.asked is not None and d.asked.dropped:
        lines.append(f"sent without: {', '.join(d.asked.dropped)}")
    if d.quality is not None:
        lines.append(_quality(d.quality))
    rank = {index: place for place, index in enumerate(d.order, 1)}
    for index in (*d.order, *(i for i in range(len(d.candidates)) if i not in rank)):
        lines.append(_line(d, d.candidates[index], rank.get(index)))
    if not d.order:
        lines.append("no backend could be asked")
    elif d.explored:
        lines.append(f"explored: the first has no fresh sample and this request has time (draw {d.draw:.6f} < {d.explore_share:g})")
    if d.hedge is not None:
        lines.append(_hedge(d.hedge, d.candidates[d.hedge.second].backend if d.hedge.second >= 0 else ""))
    lines.append(f"propensity {d.propensity:.4f}, draw {d.draw:.6f}, policy {d.policy}, catalog {d.catalog}")
    lines.append("recomputed: " + ("agrees" if not differences else "DIFFERS: " + "; ".join(differences)))
    return "\n".join(lines)


def _hedge(h: Hedge, second: str) -> str:
    told = HEDGE_RESULTS.get(h.result, h.result).format(backend=second, ttft95_ms=h.ttft95_us / 1000)
    winner = "" if h.result != SENT else ("; neither answered", "; the first answered first", f"; {second} answered first")[h.won]
    return f"late after {h.after_us / 1000:.1f} ms, noticed after {h.waited_us / 1000:.1f} ms: {told}{winner}"


def _quality(q: Quality) -> str:
    if q.unseen > q.unseen_most:
        why = f"{q.unseen / 10_000:.1f} % of the prompt is unlike what was learnt from (more than {q.unseen_most / 10_000:.1f} %)"
    else:
        above = "above" if q.needs_strong else "not above"
        why = f"a strong model gains {q.gain / 10_000:.2f} points over {q.weak_odds / 10_000:.2f} %, {above} {q.limit / 10_000:.2f}"
    verdict = f"set aside {', '.join(q.weak)}" if q.needs_strong else f"{', '.join(q.weak)} will do"
    return f"quality: {why}: {verdict} (model {q.model})"


def _line(d: Decision, c: Candidate, place: int | None) -> str:
    head = f"{place}." if place is not None else "-"
    cost = "unknown" if c.cost is None else _usd(c.cost)
    price = (
        ""
        if c.rates is None
        else f" [{c.price_id}: in {c.rates[0]} out {c.rates[1]} cached {c.rates[2]} nano-USD per million, {c.rates[3]} per request]"
    )
    why = f", set aside: {c.reason}" if c.reason else ""
    wait = f" for {c.ready_ms} ms" if c.ready_ms else ""
    tokens = timed_tokens(d.input_tokens, c)
    held = f", {c.cached} tokens cached" if c.cached else ""
    if c.cached and not c.own:
        held += f" = {c.hit_ppm / 10_000:.1f} % of {c.held} answered there lately and {c.soon} lent, for those to come"
    odds = f", odds of failure {c.odds_ppm / 10_000:.1f} %" if c.odds_ppm else ""
    lost = f", beside which others are expected to lose {_usd(charged(d, c))}" if c.scarcity else ""
    ttft, tpot = (_sum(line, tokens, c.in_flight) for line in (c.ttft, c.tpot))
    return (
        f"{head:>3} {c.backend}: cost {cost}{price}{lost}, ttft95 {c.ttft95_us / 1000:.1f} ms = {ttft} ({c.samples} samples), "
        f"tpot95 {c.tpot95_us / 1000:.2f} ms = {tpot}, end {c.e2e95_us / 1000:.1f} ms, "
        f"{c.in_flight} in flight{held}{odds}{why}{wait}"
    )


def _usd(nano: int) -> str:
    return f"{nano // 10**9}.{nano % 10**9:09d} USD"


def late(d: Decision, c: Candidate) -> bool:
    """Whether a predicted time is beyond the margin of its objective."""
    us = 1000.0 * d.margin
    return (
        (d.ttft_ms is not None and c.ttft95_us > us * d.ttft_ms)
        or (d.tpot_ms is not None and c.tpot95_us > us * d.tpot_ms)
        or (d.deadline_ms is not None and c.e2e95_us > us * d.deadline_ms)
    )


def taken(d: Decision, c: Candidate) -> int:
    """The tokens of an engine of one's own that the request would take from others: what is to be prefilled, and its answer."""
    return d.input_tokens - c.cached + d.output_tokens


def charged(d: Decision, c: Candidate) -> int:
    """Nano-USD that others are expected to lose by that; ranked as if it were a price."""
    return c.scarcity * taken(d, c) // 1_000_000


def timed_tokens(input_tokens: int, c: Candidate) -> int:
    """The prompt tokens that a time is predicted from: of an engine of one's own what it has not prefilled; a vendor's cache is not
    counted on for time."""
    return input_tokens - c.cached + c.ahead if c.own else input_tokens


def _sum(line: Line, tokens: int, in_flight: int) -> str:
    """The terms of a prediction that are not nothing."""
    base, slope, load, intercept, spread = (*line, 0, 0, 0, 0)[:5]
    terms = [f"{slope} ps x {tokens} tokens"] if slope else []
    terms += [f"{load} ns x {in_flight} in flight"] if load else []
    if not spread:
        return " + ".join([f"{base / 1000:.2f}", *terms])
    return " + ".join([f"{intercept / 1000:.2f}", *terms]) + f", {base / 10_000:+.1f} % of it and {spread / 1000:g} ms"
