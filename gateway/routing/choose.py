"""The choice: filter, predict, price, rank. The cheapest backend whose predicted times stay within a margin of the objectives.

Pure: clock, random draw and settings come in, a plan and its record go out; the same `rank` runs when a stored record is checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from gateway.catalog import Backend, Price
from gateway.routing.decision import POLICY, Candidate, Decision
from gateway.routing.features import RELAXED_DEADLINE_MS, Features
from gateway.routing.filters import SIZE, SOFT, STATIC, unfit, unready
from gateway.routing.predict import e2e95_us, ttft95_us
from gateway.routing.state import BackendState, Rates

Plan = tuple[Backend, ...]
FRESH_S = 30.0  # a backend with a sample this young is not explored
UNPRICED = 1 << 62  # ranks after every known cost

Key = tuple[int, float, int, int]


class Knobs(Struct, frozen=True, gc=False):
    """What the operator sets. margin: a prediction counts as in time within this share of an objective."""

    catalog: str = ""
    margin: float = 0.8
    explore_share: float = 0.03


def rates_of(price: Price, input_tokens: int) -> Rates:
    """The rates that a prompt of this size pays: a long-context tier applies to the whole request."""
    rate_in, rate_out, cached = price.input, price.output, price.cache_read
    for tier in price.tiers:
        if input_tokens > tier.above:
            rate_in, rate_out, cached = tier.input, tier.output, tier.cache_read
    return rate_in, rate_out, rate_in if cached is None else cached, price.per_request


def expected_cost(rates: Rates, input_tokens: int, cache_read_tokens: int, output_tokens: int) -> int:
    """Expected nano-USD of one request, rounded once."""
    tokens = (input_tokens - cache_read_tokens) * rates[0] + cache_read_tokens * rates[2] + output_tokens * rates[1]
    return (tokens + 500_000) // 1_000_000 + rates[3]


def assess(features: Features, state: BackendState, now: float) -> Candidate:
    """One backend in the eyes of one request: its reason to be set aside, if any, its prediction and its cost."""
    reason = unfit(features, state)
    if reason in STATIC:
        return Candidate(state.backend.name, reason)
    ready_ms = 0
    unready_reason = unready(state, now)
    if unready_reason:
        reason = unready_reason
        ready_ms = int((state.health.ready_at(now) - now) * 1000)
    rates = state.rates
    price = state.backend.price
    if rates is None and price is not None:
        rates = rates_of(price, features.input_tokens)
    predictor = state.predictor
    in_flight = state.in_flight
    base, slope, load, output = state.ttft_base_us(now), predictor.slope_ns, predictor.load_us, features.expected_output_tokens
    ttft = ttft95_us(base, slope, load, features.input_tokens, in_flight)
    tpot = predictor.tpot.q95(now)
    samples = predictor.ttft.samples
    return Candidate(
        state.backend.name,
        reason,
        state.price_id,
        rates,
        base,
        slope,
        load,
        in_flight,
        len(samples),
        bool(samples) and samples[-1][0] >= now - FRESH_S,
        ready_ms,
        None if rates is None else expected_cost(rates, features.input_tokens, features.cache_read_tokens, output),
        ttft,
        tpot,
        e2e95_us(ttft, tpot, output),
    )


def choose(features: Features, states: Sequence[BackendState], now: float, draw: float, knobs: Knobs) -> tuple[Plan, Decision]:
    """The backends to ask, in order, and the record of the choice. An empty plan: nobody can be asked; filters.refusal says why.

    draw: uniform in [0, 1). Eligible backends first; if there is none, those set aside for a soft reason, the soonest ready first.
    """
    decision = Decision(
        POLICY,
        knobs.catalog,
        features.route,
        features.input_tokens,
        features.cache_read_tokens,
        features.expected_output_tokens,
        features.ttft_ms,
        features.tpot_ms,
        features.deadline_ms,
        knobs.margin,
        knobs.explore_share,
        draw,
        tuple([assess(features, state, now) for state in states]),
    )
    decision.order, decision.explored, decision.propensity = rank(decision)
    return tuple([states[i].backend for i in decision.order]), decision


def rank(decision: Decision) -> tuple[tuple[int, ...], bool, float]:
    """(order, explored, propensity of the first) from the record alone."""
    candidates = decision.candidates
    eligible = [i for i, c in enumerate(candidates) if not c.reason]
    if len(eligible) < 2:
        return tuple(eligible or _fallback(candidates)), False, 1.0
    keys = _keys(decision, eligible)
    order = sorted(eligible, key=keys.__getitem__)
    draw, share = decision.draw, decision.explore_share
    propensity = 1.0
    stale = _worth_exploring(decision, order, keys)
    if stale:
        if draw < share:
            picked = stale[min(int(draw / share * len(stale)), len(stale) - 1)]
            order.remove(picked)
            return (picked, *order), True, share / len(stale)
        propensity = 1.0 - share
        draw = (draw - share) / propensity
    best = keys[order[0]]
    ties = 1
    while ties < len(order) and keys[order[ties]] == best:
        ties += 1
    if ties > 1:
        order.insert(0, order.pop(min(int(draw * ties), ties - 1)))
    return tuple(order), False, propensity / ties


def _keys(decision: Decision, eligible: Sequence[int]) -> dict[int, Key]:
    """Sort keys: those in time by cost, then the late ones by their worst ratio. Equal costs go by predicted time, then by load; without
    objectives nobody waits for a time, so load comes first."""
    candidates, margin = decision.candidates, decision.margin
    ttft, tpot, deadline = (_limit_us(ms) for ms in (decision.ttft_ms, decision.tpot_ms, decision.deadline_ms))
    goals = min(ttft, tpot, deadline) < math.inf
    keys: dict[int, Key] = {}
    for i in eligible:
        c = candidates[i]
        cost = UNPRICED if c.cost is None else c.cost
        if not goals:
            keys[i] = (0, cost, c.in_flight, _octave_third(c.e2e95_us))
            continue
        ratio = max(c.ttft95_us / ttft, c.tpot95_us / tpot, c.e2e95_us / deadline)
        keys[i] = (0, cost, _octave_third(c.e2e95_us), c.in_flight) if ratio <= margin else (1, ratio, cost, c.in_flight)
    return keys


def _limit_us(objective_ms: float | None) -> float:
    """An objective in microseconds; without one every ratio to it is 0. One of 0 ms cannot be met, nor divided by."""
    return math.inf if objective_ms is None else max(objective_ms * 1000.0, 1e-3)


def _octave_third(us: int) -> int:
    """Predicted times within about a quarter of each other are equal: else one replica would get everything for a microsecond."""
    return int(3.0 * math.log2(us)) if us > 0 else 0


def _worth_exploring(decision: Decision, order: Sequence[int], keys: dict[int, Key]) -> list[int]:
    """Backends without a fresh sample that this request, having time, could be spent on: in time by what is believed, and not the best."""
    relaxed = decision.ttft_ms is None and decision.tpot_ms is None and decision.deadline_ms is not None
    if not relaxed or decision.deadline_ms is None or decision.deadline_ms < RELAXED_DEADLINE_MS or decision.explore_share <= 0.0:
        return []
    return [i for i in order[1:] if keys[i][0] == 0 and not decision.candidates[i].fresh]


def _fallback(candidates: Sequence[Candidate]) -> list[int]:
    """Nobody is eligible: health and size are guesses, so ask those set aside for them, the soonest ready first. Never eject all."""
    soft = [i for i, c in enumerate(candidates) if c.reason in SOFT]
    return sorted(soft, key=lambda i: (candidates[i].reason in SIZE, candidates[i].ready_ms))


def differences(decision: Decision) -> list[str]:
    """Recompute predictions, costs and order from the record; what disagrees, empty when all is as recorded."""
    found = []
    for c in decision.candidates:
        if c.reason in STATIC:
            continue
        ttft = ttft95_us(c.base_us, c.slope_ns, c.load_us, decision.input_tokens, c.in_flight)
        end = e2e95_us(ttft, c.tpot95_us, decision.output_tokens)
        cost = (
            None if c.rates is None else expected_cost(c.rates, decision.input_tokens, decision.cache_read_tokens, decision.output_tokens)
        )
        found += [
            f"{c.backend} {name}: recorded {recorded}, recomputed {computed}"
            for name, recorded, computed in (("ttft95_us", c.ttft95_us, ttft), ("e2e95_us", c.e2e95_us, end), ("cost", c.cost, cost))
            if recorded != computed
        ]
    computed_choice = rank(decision)
    recorded_choice = (tuple(decision.order), decision.explored, decision.propensity)
    if computed_choice != recorded_choice:
        found.append(f"choice: recorded {recorded_choice}, recomputed {computed_choice}")
    return found
