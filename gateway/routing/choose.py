"""The choice: filter, predict, price, rank. The cheapest backend whose predicted times stay within a margin of the objectives.

Pure: clock, random draw and settings come in, a plan and its record go out; the same `rank` runs when a stored record is checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from gateway.catalog import Backend, Price, Tier
from gateway.labels import text_of
from gateway.routing import hedging
from gateway.routing.affinity import ASKED_FOR, LEAST_TOKENS, Soon, cached_tokens, soon
from gateway.routing.decision import LABELS_MOST, POLICY, Candidate, Decision, Quality, charged, timed_tokens
from gateway.routing.features import RELAXED_DEADLINE_MS, Features
from gateway.routing.filters import QUALITY, SIZE, SOFT, STATIC, UNTIMED, unfit, unready, yielding
from gateway.routing.predict import e2e95_us, predicted95_us
from gateway.routing.state import BackendState, Rates

Plan = tuple[Backend, ...]
WORTH_A_TRIAL = 2  # of Candidate.doubt
TRIAL_TIMES = 10.0  # a backend that was far better once is explored so much more often
PENDING_TOKENS = 128  # replicas whose queues differ by less are alike
UNPRICED = 1 << 62  # ranks after every known cost

Key = tuple[int, float, int, int]


class Knobs(Struct, frozen=True, gc=False):
    """What the operator sets. margin: a prediction counts as in time within this share of an objective."""

    catalog: str = ""
    margin: float = 0.91
    explore_share: float = 0.03


def rates_of(price: Price, input_tokens: int, kept: bool = False) -> Rates:
    """The rates that a prompt of this size pays: a long-context tier applies to the whole request. kept: it is marked to be kept in the
    vendor's prompt cache, so that what is new of it is written there, which costs more."""
    rates: Price | Tier = price
    for tier in price.tiers:
        if input_tokens > tier.above:
            rates = tier
    new = rates.cache_write_5m if kept and rates.cache_write_5m is not None else rates.input
    return new, rates.output, rates.input if rates.cache_read is None else rates.cache_read, price.per_request


def expected_cost(rates: Rates, input_tokens: int, cache_read_tokens: int, output_tokens: int, odds_ppm: int = 0) -> int:
    """Expected nano-USD of one request: its price, rounded once, and by the odds of a failure as much again for what that wastes."""
    rate_in, rate_out, rate_cached, per_request = rates
    price = input_tokens * rate_in + output_tokens * rate_out
    if cache_read_tokens:
        price -= cache_read_tokens * (rate_in - rate_cached)
    once = (price + 500_000) // 1_000_000 + per_request
    return once + once * odds_ppm // 1_000_000 if odds_ppm else once


def assess(features: Features, state: BackendState, now: float, lent: Soon = ()) -> Candidate:
    """One backend in the eyes of one request: its reason to be set aside, if any, its prediction and its cost. lent: see affinity.soon."""
    backend = state.backend
    reason = unfit(features, state)
    if reason and reason in STATIC:
        return Candidate(backend.name, reason)
    prompt, output = features.input_tokens, features.expected_output_tokens
    high = features.output_high_tokens
    own, in_flight = backend.own, state.in_flight
    ready_ms = 0
    unready_reason, wait_s = unready(state, prompt, output, now)
    if unready_reason:
        reason = unready_reason
        ready_ms = int(wait_s * 1000)
    elif not reason and (backend.parallel is not None or state.engine.crowded):
        reason = yielding(features, state, now)
    rates = state.rates
    kept = features.marked and backend.dialect in ASKED_FOR
    if backend.price is not None and (rates is None or kept):
        rates = rates_of(backend.price, prompt, kept)
    first, pace = state.predictor.ttft, state.predictor.tpot
    cached, held, hit_ppm, soon_there, ahead = 0, 0, 0, 0, 0
    if lent or (own and features.prefix):
        cached, held, hit_ppm, soon_there = _cached(features, state, rates, lent, now)
    timed = prompt
    if own:
        ahead, in_flight = state.load(now)
        timed += ahead - cached
    ttft_line, tpot_line = state.lines(now)
    ttft = predicted95_us(ttft_line, timed, in_flight)
    tpot = tpot_line[0] if len(tpot_line) == 1 else predicted95_us(tpot_line, timed, in_flight)
    samples = first.window.samples
    odds = state.odds_ppm(now) if state.failures else 0
    doubt = 0 if samples and samples[-1][0] >= now - state.fresh_s else 1
    if not own and (first.window.unwell or pace.window.unwell) and _worth_a_trial(state, now):
        doubt = WORTH_A_TRIAL
    return Candidate(
        backend.name,
        reason,
        own,
        state.kin,
        state.price_id,
        rates,
        ttft_line,
        tpot_line,
        ahead,
        cached,
        in_flight,
        len(samples),
        odds,
        doubt,
        ready_ms,
        None if rates is None else expected_cost(rates, prompt, cached, output, odds),
        ttft,
        tpot,
        ttft + tpot * (output if high is None else high),
        held,
        hit_ppm,
        soon_there,
        state.scarcity,
    )


def _worth_a_trial(state: BackendState, now: float) -> bool:
    asked, predictor = state.in_flight > 0, state.predictor
    return predictor.ttft.window.worth_a_trial(now, asked) or predictor.tpot.window.worth_a_trial(now, asked)


def _cached(features: Features, state: BackendState, rates: Rates | None, lent: Soon, now: float) -> tuple[int, int, int, int]:
    """Prompt tokens that a prompt cache is expected to spare, and of a hosted one where that comes from: (cached, held, hit_ppm, soon)."""
    backend = state.backend
    if backend.own:
        return state.prefixes.cached_tokens(features.prefix, features.input_tokens), 0, 0, 0
    if rates is None or rates[2] >= rates[0] or (backend.dialect in ASKED_FOR and not features.marked):
        return 0, 0, 0, 0
    blocks = state.prompts.held(features.prefix, now) if features.prefix[0] in state.prompts.known else 0
    held = min(blocks * features.block_tokens, features.input_tokens)
    more = min(lent[blocks] if blocks < len(lent) else 0, features.input_tokens - held)
    if held < LEAST_TOKENS:
        held = 0
    hit_ppm = state.prompts.share_ppm(features.route)
    return cached_tokens(held, more, hit_ppm), held, hit_ppm, more


def choose(features: Features, states: Sequence[BackendState], now: float, draw: float, knobs: Knobs) -> tuple[Plan, Decision]:
    """The backends to ask, in order, and the record of the choice. An empty plan: nobody can be asked; filters.refusal says why.

    draw: uniform in [0, 1). Eligible backends first; if there is none, those set aside for a soft reason, the soonest ready first.
    """
    lent: Soon = ()
    if features.prefix:
        first = features.prefix[0]
        holders = [state.prompts for state in states if state.reads_for_less and first in state.prompts.known]
        lent = soon(features, holders, now) if holders else ()
    decision = Decision(
        POLICY,
        knobs.catalog,
        features.route,
        features.input_tokens,
        features.expected_output_tokens,
        features.expected_output_tokens if features.output_high_tokens is None else features.output_high_tokens,
        features.ttft_ms,
        features.tpot_ms,
        features.deadline_ms,
        knobs.margin,
        knobs.explore_share,
        features.priority,
        draw,
        tuple([assess(features, state, now, lent) for state in states]),
    )
    if features.labels:
        decision.labels = text_of(features.labels)[:LABELS_MOST]
    if features.quality is not None:
        decision.quality = features.quality
        _set_weak_aside(decision, features.quality)
    decision.order, decision.explored, decision.propensity = rank(decision)
    return tuple([states[i].backend for i in decision.order]), decision


def _set_weak_aside(decision: Decision, quality: Quality) -> None:
    if quality.needs_strong:
        for candidate in decision.candidates:
            if not candidate.reason and candidate.backend in quality.weak:
                candidate.reason = QUALITY


def rank(decision: Decision) -> tuple[tuple[int, ...], bool, float]:
    """(order, explored, propensity of the first) from the record alone."""
    candidates = decision.candidates
    eligible = [i for i, c in enumerate(candidates) if not c.reason]
    if not eligible:
        return tuple(_fallback(candidates)), False, 1.0
    keys = _keys(decision, eligible)
    order = sorted(eligible, key=keys.__getitem__)
    if decision.priority < 0 and keys[order[0]][0] > 0:
        return (), False, 1.0  # whoever would be late anyway is not to delay others
    explored, propensity = False, 1.0
    if len(eligible) > 1:
        order, explored, propensity = _first(decision, order, keys)
        order = _failover(decision, order, keys)
    if decision.quality is not None:  # a weak backend is better than an error
        order += [i for i, c in enumerate(candidates) if c.reason == QUALITY]
    return tuple(order), explored, propensity


def _failover(decision: Decision, order: list[int], keys: dict[int, Key]) -> list[int]:
    """The first, then whom to regret least after it failed: those in time before the late, other vendors before its own, then as ranked."""
    candidates = decision.candidates
    kin = candidates[order[0]].kin
    groups: tuple[list[int], ...] = ([], [], [], [])
    for i in order[1:]:
        groups[2 * keys[i][0] + (candidates[i].kin == kin)].append(i)
    return [order[0], *groups[0], *groups[1], *groups[2], *groups[3]]


def _first(decision: Decision, order: list[int], keys: dict[int, Key]) -> tuple[list[int], bool, float]:
    """The order with the one to ask moved to its head: explored, or drawn among equals."""
    draw = decision.draw
    propensity = 1.0
    doubtful, share = _worth_exploring(decision, order)
    if doubtful:
        if draw < share:
            place = _by_price(draw / share, len(doubtful))
            order.remove(doubtful[place])
            odds = 0.25**place * (0.75 if place < len(doubtful) - 1 else 1.0)
            return [doubtful[place], *order], True, share * odds
        propensity = 1.0 - share
        draw = (draw - share) / propensity
    best = keys[order[0]]
    ties = 1
    while ties < len(order) and keys[order[ties]] == best:
        ties += 1
    if ties > 1:
        order.insert(0, order.pop(min(int(draw * ties), ties - 1)))
    return order, False, propensity / ties


def _keys(decision: Decision, eligible: Sequence[int]) -> dict[int, Key]:
    """Sort keys: those in time by cost, then the late ones by their worst ratio. Equal costs go by predicted time, then by load; without
    objectives nobody waits for a time, so load comes first."""
    candidates, margin = decision.candidates, decision.margin
    ttft, tpot, deadline = _limit_us(decision.ttft_ms), _limit_us(decision.tpot_ms), _limit_us(decision.deadline_ms)
    keys: dict[int, Key] = {}
    costs: dict[int, int] = {}  # whose it was first
    for i in eligible:
        c = candidates[i]
        cost = UNPRICED if c.cost is None else c.cost
        ratio = c.ttft95_us / ttft
        if ratio < (pace := c.tpot95_us / tpot):
            ratio = pace
        if ratio < (end := c.e2e95_us / deadline):
            ratio = end
        if ratio > margin:
            keys[i] = (1, ratio, cost, c.in_flight)
            continue
        alike = cost
        if c.scarcity:  # then it is equal to replicas alone
            cost, alike = cost + charged(decision, c), ~cost
        if (other := costs.setdefault(alike, i)) == i:
            keys[i] = (0, cost, 0, 0)
        else:
            of_first = keys[other][1]
            keys[other], keys[i] = _among_equals(decision, other, of_first), _among_equals(decision, i, of_first)
    return keys


def _among_equals(decision: Decision, i: int, cost: float) -> Key:
    c = decision.candidates[i]
    if c.own:  # replicas: what must be prefilled before the first token, this prompt's uncached part included
        return (0, cost, (c.ahead + decision.input_tokens - c.cached) // PENDING_TOKENS, c.in_flight)
    if decision.ttft_ms is None and decision.tpot_ms is None and decision.deadline_ms is None:
        return (0, cost, c.in_flight, _octave_third(c.e2e95_us))
    return (0, cost, _octave_third(c.e2e95_us), c.in_flight)


def _limit_us(objective_ms: float | None) -> float:
    """An objective in microseconds; without one every ratio to it is 0. One of 0 ms cannot be met, nor divided by."""
    return math.inf if objective_ms is None else max(objective_ms * 1000.0, 1e-3)


def _octave_third(us: int) -> int:
    """Predicted times within about a quarter of each other are equal: else one replica would get everything for a microsecond."""
    return int(3.0 * math.log2(us)) if us > 0 else 0


def _worth_exploring(decision: Decision, order: Sequence[int]) -> tuple[list[int], float]:
    """Backends that this request, having time, could be spent on, and the share of such requests that are: one that was far better
    once, more often; else those without a fresh sample, late by what is believed or not. The cheapest first."""
    share = decision.explore_share
    relaxed = decision.ttft_ms is None and decision.tpot_ms is None and decision.deadline_ms is not None
    if not relaxed or decision.deadline_ms is None or decision.deadline_ms < RELAXED_DEADLINE_MS or share <= 0.0:
        return [], 0.0
    candidates = decision.candidates
    doubtful = sorted((i for i in order[1:] if candidates[i].doubt), key=lambda i: (_known(candidates[i].cost), i))
    worth = [i for i in doubtful if candidates[i].doubt == WORTH_A_TRIAL]
    if worth:
        return worth[:1], min(0.5, TRIAL_TIMES * share)
    return doubtful, share


def _by_price(draw: float, count: int) -> int:
    """A place among `count`, the cheapest first: each but the last three times as likely as all that come after it."""
    place = 0
    while place < count - 1 and draw >= 0.75:
        draw = 4.0 * draw - 3.0
        place += 1
    return place


def _known(cost: int | None) -> int:
    return UNPRICED if cost is None else cost


def _fallback(candidates: Sequence[Candidate]) -> list[int]:
    """Nobody is eligible: health and size are guesses, so ask those set aside for them, the soonest ready first. Never eject all."""
    soft = [i for i, c in enumerate(candidates) if c.reason in SOFT]
    return sorted(soft, key=lambda i: (candidates[i].reason in SIZE, candidates[i].reason in UNTIMED, candidates[i].ready_ms))


def differences(decision: Decision) -> list[str]:
    """Recompute predictions, costs and order from the record; what disagrees, empty when all is as recorded."""
    found = []
    d = decision
    for c in d.candidates:
        if c.reason in STATIC:
            continue
        weak = d.quality is not None and d.quality.needs_strong and c.backend in d.quality.weak
        if not c.reason if weak else c.reason == QUALITY:
            found.append(f"{c.backend} reason: recorded {c.reason!r}, by quality {QUALITY if weak else ''!r}")
        tokens = timed_tokens(d.input_tokens, c)
        ttft = predicted95_us(c.ttft, tokens, c.in_flight)
        tpot = predicted95_us(c.tpot, tokens, c.in_flight)
        end = e2e95_us(ttft, tpot, d.output_high_tokens)
        cost = None if c.rates is None else expected_cost(c.rates, d.input_tokens, c.cached, d.output_tokens, c.odds_ppm)
        found += [
            f"{c.backend} {name}: recorded {recorded}, recomputed {computed}"
            for name, recorded, computed in (
                ("ttft95_us", c.ttft95_us, ttft),
                ("tpot95_us", c.tpot95_us, tpot),
                ("e2e95_us", c.e2e95_us, end),
                ("cost", c.cost, cost),
                ("cached", c.cached, c.cached if c.own else cached_tokens(c.held, c.soon, c.hit_ppm)),
            )
            if recorded != computed
        ]
    found += hedging.differences(decision)
    computed_choice = rank(decision)
    recorded_choice = (tuple(decision.order), decision.explored, decision.propensity)
    if computed_choice != recorded_choice:
        found.append(f"choice: recorded {recorded_choice}, recomputed {computed_choice}")
    return found
