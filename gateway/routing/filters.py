"""Which backends may be asked at all: each rejection has a reason, and when none is left the reasons make one honest error.

Two kinds: a hard reason always holds; a soft one (a guess about health or size) sets a backend aside only while others are left.
Knows no prediction and no price beyond its being known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gateway.errors import Forbidden, GatewayError, InvalidRequest, NotReady, RateLimited, UpstreamFailed
from gateway.labels import text_of
from gateway.routing.decision import Candidate
from gateway.routing.features import Features
from gateway.routing.state import STALLED, BackendState
from providers import errors as upstream

DRAINED = "drained"  # an operator's word
# in the order they are looked at: the candidate that came furthest explains the refusal
STATIC = ("not_allowed", "labels", "dialect", "capability", "parameter", "unpriced", DRAINED)
SIZE = ("context", "max_output")
SOFT_HEALTH = ("ejected", "probing", "cooling", "stalled", "headroom", "yields", "share")
UNTIMED = ("probing", "stalled")  # nobody knows how long: asked after those that say when
QUALITY = "quality"  # a weak backend, and the prompt is predicted to need a strong one
SOFT = (*SOFT_HEALTH, QUALITY, *SIZE)
MIN_RETRY_AFTER_S = 1.0
BUSY_RETRY_AFTER_S = 1.0
DRAINED_RETRY_AFTER_S = 30.0
READY = ("", 0.0)
TOLD_BACKENDS = 16  # whose labels an error names


def unfit(features: Features, state: BackendState) -> str:
    """Why this backend cannot carry the request, whatever its health: a name of STATIC or SIZE, or ""."""
    backend = state.backend
    allowed = features.allowed
    if allowed is not None and backend.model not in allowed and features.route not in allowed:
        return "not_allowed"
    if features.labels and any(backend.labels.get(name) != value for name, value in features.labels):
        return "labels"
    if features.unknown and backend.dialect != features.dialect and not backend.honours.issuperset(features.unknown):
        return "dialect"
    if features.needs and not features.needs <= backend.capabilities:
        return "capability"
    if features.asks and features.asks & backend.refuses:
        return "parameter"
    if backend.price is None and features.budgeted:
        return "unpriced"
    if state.drained:
        return DRAINED
    return _size(features, state)


def _size(features: Features, state: BackendState) -> str:
    backend = state.backend
    wanted = features.max_tokens
    if backend.context_tokens is not None and features.input_tokens + (1 if wanted is None else wanted) > backend.context_tokens:
        return "context"
    if wanted is not None and backend.max_output_tokens is not None and wanted > backend.max_output_tokens:
        return "max_output"
    return ""


def unready(state: BackendState, prompt: int, output: int, now: float) -> tuple[str, float]:
    """Why a backend that could carry a request of so many tokens should not get it now, and for how many seconds that holds (0 = not
    known): rate_limited, parallel or a name of SOFT_HEALTH, or ""."""
    health = state.health
    reason = ""
    if health.ejections > 0 or health.wait_until > 0.0 or health.cool_until > 0.0:
        reason = health.reason(now)
    if reason == "rate_limited":
        return reason, health.ready_at(now) - now
    parallel = state.backend.parallel
    if parallel is not None and state.in_flight >= parallel:
        return "parallel", 0.0
    if reason:
        return reason, health.ready_at(now) - now
    if len(state.waiting) >= STALLED and state.stalled(now):
        return "stalled", 0.0
    wait_s = state.headroom.wait_s(now, prompt, output) if state.headroom.limited else 0.0
    return ("headroom", wait_s) if wait_s > 0.0 else READY


def yielding(features: Features, state: BackendState, now: float) -> str:
    """Why a contended backend's last places are for others, while there are other backends: yields | share, or ""."""
    if features.priority > 0 or not state.contended(now):
        return ""
    if features.priority < 0:
        return "yields"
    return "share" if state.over_share(features.team) else ""


def refusal(features: Features, states: Sequence[BackendState], candidates: Sequence[Candidate]) -> GatewayError:
    """The error for a request that no candidate can take; states and candidates in the same order.

    Static reasons give 4xx and are the same at any time, but for what an operator drained: 503. All waiting for a vendor's Retry-After
    gives 429 with the smallest; else 503.
    """
    reasons = {c.reason for c in candidates}
    static = [reason for reason in STATIC if reason in reasons]
    if candidates and len(reasons) == len(static):
        return _static_refusal(features, states, static[-1])
    waits = [c.ready_ms / 1000 for c in candidates if c.reason == "rate_limited"]
    if waits and "parallel" not in reasons:
        return RateLimited(
            f"Every backend of route '{features.route}' is rate limited by its vendor; try again later.",
            retry_after_s=max(MIN_RETRY_AFTER_S, math.ceil(min(waits))),
        )
    if "" in reasons:
        return NotReady(
            f"No backend of route '{features.route}' would be in time, and this request has low priority; try again later.",
            code="no_backend_in_time",
            retry_after_s=BUSY_RETRY_AFTER_S,
        )
    if "parallel" in reasons:
        return NotReady(
            f"Every backend of route '{features.route}' is at its limit of parallel requests.",
            code="backends_busy",
            retry_after_s=BUSY_RETRY_AFTER_S,
        )
    return NotReady(f"Route '{features.route}' has no backend.", code="no_backend")


def _static_refusal(features: Features, states: Sequence[BackendState], reason: str) -> GatewayError:
    route = features.route
    if reason == "not_allowed":
        return Forbidden(f"This key may not use route '{route}' nor any model behind it.", code="model_not_allowed", param="model")
    if reason == "labels":
        return _unlabelled(features, states)
    if reason == "dialect":
        names = ", ".join(features.unknown)
        return InvalidRequest(
            f"What stands in {names} can only be passed on unchanged, but route '{route}' has no backend that speaks {features.dialect}.",
            code="unknown_field",
            param=features.unknown[0],
        )
    if reason == "capability":
        missing = sorted(features.needs - frozenset().union(*(s.backend.capabilities for s in states))) or sorted(features.needs)
        return InvalidRequest(f"No backend of route '{route}' can carry: {', '.join(missing)}.", code="unsupported_value", param=missing[0])
    if reason == "parameter":
        name = sorted(features.asks & frozenset().union(*(s.backend.refuses for s in states)))[0]
        return InvalidRequest(
            f"No backend of route '{route}' takes `{name}` with this value; leave it out, or send its default.",
            code="unsupported_value",
            param=name,
        )
    if reason == DRAINED:
        return NotReady(
            f"Every backend of route '{route}' that could answer is drained by an operator; try again later.",
            code="backends_drained",
            retry_after_s=DRAINED_RETRY_AFTER_S,
        )
    return NotReady(
        f"No backend of route '{route}' that could answer has a known price, and this key has a budget; the operator must set one.",
        code="price_unknown",
    )


def _unlabelled(features: Features, states: Sequence[BackendState]) -> GatewayError:
    """Names the labels that no backend carries, else all of them: no backend carries them together; and what each backend has."""
    carried = [s.backend.labels for s in states]
    missing = [one for one in features.labels if all(labels.get(one[0]) != one[1] for labels in carried)]
    what = f"carries the label {text_of(missing)}" if len(missing) == 1 else f"carries the labels {text_of(missing or features.labels)}"
    have = "; ".join([f"{s.backend.name}: {text_of(sorted(s.backend.labels.items())) or 'none'}" for s in states[:TOLD_BACKENDS]])
    more = "" if len(states) <= TOLD_BACKENDS else f"; and {len(states) - TOLD_BACKENDS} more"
    together = "" if missing else " together"
    return InvalidRequest(
        f"No backend of route '{features.route}' {what}{together}. Its backends have {have}{more}.", code="no_backend_with_labels"
    )


def exhausted(errors: Sequence[upstream.ProviderError], states: Sequence[BackendState], now: float) -> GatewayError:
    """The error for a request whose attempts all failed. errors: of its attempts, in order, at least one; states: of the plan.

    Only rate limits: 429 with the smallest Retry-After. A request at fault: its own status, of the last such error. All down: 503 with
    Retry-After. A refused credential or an unreadable answer: 502.
    """
    last = errors[-1]
    at_fault = [e for e in errors if isinstance(e, upstream.Rejected)]
    if at_fault:
        said = at_fault[-1]
        return InvalidRequest(said.message, code=said.code, param=said.param, status=said.status)
    waits = [max(0.0, s.health.ready_at(now) - now) for s in states]
    soonest = max(MIN_RETRY_AFTER_S, math.ceil(min(waits, default=0.0)))
    if all(isinstance(e, upstream.RateLimited | upstream.QuotaExhausted) for e in errors):
        return RateLimited(f"Every backend tried refused for its rate limit: {last.message}", code=last.code, retry_after_s=soonest)
    down = (upstream.Unreachable, upstream.ServerFailed, upstream.Unavailable, upstream.Cut, upstream.RateLimited, upstream.QuotaExhausted)
    if all(isinstance(e, down) for e in errors):
        return NotReady(f"Every backend tried failed: {last.message}", code="upstream_unavailable", retry_after_s=soonest)
    return UpstreamFailed(f"Every backend tried failed: {last.message}", code=last.code, status=last.status)
