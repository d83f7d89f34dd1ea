"""THE request path, the order of its steps; read this first.

    admit     1 policy    route, allow-list, objectives from headers; a request that passes is *accepted* and gets one ledger row
    frames    2 limits    requests, tokens and requests at once, where any are set: before the cache, whose hits count as requests
              3 cache     hit or shared flight -> replay
              4 route     filter -> predict -> choose            } attempts.py
              5 attempts  reserve, journal, call, fail over      }
              6 relay     frames to the surface, metered as they pass
    settle    7           usage -> price -> journal, budgets, router, metrics, log: synchronous, once

Knows no wire format (that is the surface's dialect) and no SQL.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from gateway import limiter
from gateway.attempts import CUT, DEFAULT_DEADLINE_S, Attempts
from gateway.auth import Principal
from gateway.backend_watch import BackendWatch
from gateway.cache import vectors
from gateway.cache.flights import Flights, Subscription
from gateway.cache.response import DISABLED, PARTIAL, STORED, TOO_LARGE, Policy, Recorder, key, policy
from gateway.cache.store import Store
from gateway.catalog import Catalog, Route
from gateway.decision_log import DecisionLog
from gateway.errors import Forbidden, GatewayError, InvalidRequest, NotFound, OverBudget
from gateway.exchange import Exchange
from gateway.labels import HEADER, Labels, required
from gateway.money.accounts import Accounts
from gateway.money.limits import Limits
from gateway.money.marks import HEDGED, MISSED, late
from gateway.money.records import UsageRecord
from gateway.routing.affinity import keeps_prompts
from gateway.routing.decision import SENT
from gateway.routing.features import PRIORITIES, Features
from gateway.routing.prefixes import BLOCK_BYTES, Prefix, names
from gateway.telemetry import Telemetry
from gateway.traces import Traces
from providers import tokens
from providers.types import Frame, Request, Usage

NOTHING = Usage()
PROMPT = ("tools", "system", "instructions", "messages", "input", "prompt")  # fields, in the order in which models read them


@dataclass(slots=True)
class Pipeline:
    """One per worker. `catalog` is read through a function so that a reload swaps it for new requests only."""

    catalog: Callable[[], Catalog]
    accounts: Accounts
    attempts: Attempts
    store: Store
    flights: Flights
    telemetry: Telemetry
    watch: BackendWatch
    decisions: DecisionLog
    limits: Limits
    caching: bool
    max_answer_bytes: int
    traces: Traces | None = None
    in_flight: set[Exchange] = field(default_factory=set)

    def admit(self, principal: Principal, request: Request, headers: Mapping[bytes, bytes]) -> Exchange:
        """Policy. GatewayError = not accepted: no row, no call."""
        catalog = self.catalog()
        route = self.route_of(principal, request)
        self.accounts.check_open()
        features = self._features(principal, request, route, headers)
        x = Exchange(self.accounts.new_request_id(), principal, request, catalog, features)
        x.started = time.monotonic()
        x.started_us = self.accounts.now_us()
        deadline_ms = features.deadline_ms
        x.deadline_at = x.started + (deadline_ms / 1000 if deadline_ms is not None else DEFAULT_DEADLINE_S)
        tag = headers.get(b"x-tollway-tag")
        if tag:
            x.tag = tag.decode("latin-1")[:64]
        clamp = headers.get(b"x-tollway-clamp")
        if clamp is not None:
            x.clamp = allows(clamp)
        if self.traces is not None:
            x.trace = self.traces.begin(headers)
        self.in_flight.add(x)
        return x

    def route_of(self, principal: Principal, request: Request) -> Route:
        """The route that the request names. Raises NotFound, or Forbidden where the key may not use it."""
        catalog = self.catalog()
        route = catalog.routes.get(request.model)
        if route is None:
            raise NotFound(
                f"The model '{request.model}' does not exist here. GET /v1/models lists what your key may use.",
                code="model_not_found",
                param="model",
            )
        if not may_use(principal, route, catalog):
            raise Forbidden(f"Your key may not use the model '{request.model}'.", code="model_not_allowed", param="model")
        return route

    def _features(self, principal: Principal, request: Request, route: Route, headers: Mapping[bytes, bytes]) -> Features:
        expected = tokens.estimate_input(request)
        prefix, block_tokens, marked = _prefix(principal, request, route, self.catalog(), expected)
        output, high = self.attempts.router.outputs.expected(route.name, principal.team_id, request.max_tokens, expected)
        return Features(
            route=route.name,
            input_tokens=expected,
            input_tokens_upper=tokens.input_upper(request),
            expected_output_tokens=output * request.n,
            output_high_tokens=high,
            max_tokens=request.max_tokens,
            stream=request.stream,
            needs=request.needs,
            asks=request.asks,
            dialect=request.dialect,
            unknown=request.unknown,
            allowed=principal.models,
            budgeted=self.accounts.budgeted(principal.org_id, principal.team_id, principal.key_id, route.name),
            labels=required(route.labels, principal.labels, headers.get(HEADER)),
            team=principal.team_id,
            prefix=prefix,
            block_tokens=block_tokens,
            marked=marked,
            priority=priority(headers.get(b"x-tollway-priority")),
            ttft_ms=objective(headers, b"x-tollway-ttft-ms", route.ttft_ms),
            tpot_ms=objective(headers, b"x-tollway-tpot-ms", route.tpot_ms),
            deadline_ms=objective(headers, b"x-tollway-deadline-ms", route.deadline_ms),
        )

    async def frames(self, x: Exchange, headers: Mapping[bytes, bytes]) -> AsyncGenerator[Frame, None]:
        """Steps 2 to 6. Raises GatewayError before the first frame that carries an event; a Failed event comes after it."""
        if self.limits.active:
            await limiter.admit(self.limits, x)
        rules = policy(x.request, x.route, _text(headers.get(b"cache-control"))) if self.caching else DISABLED
        if x.request.inputs and (rules.read or rules.write):
            async with aclosing(self._embedded(x, rules)) as frames:
                async for frame in frames:
                    yield frame
            return
        name = _name(x, rules)
        if name is None:
            source: AsyncGenerator[Frame, None] = self.attempts.run(x)
        elif not rules.read:
            x.cache_status = "miss"
            source = self._recorded(x, name)
        else:
            entry = await self.store.get(name, rules.max_age_s)
            if entry is not None:
                x.hit(entry)
                for frame in entry.replay():
                    yield frame
                return
            if x.clamp:
                x.cache_status = "miss"
                source = self._recorded(x, name)  # never shared: it may be shorter than what others asked for
            else:
                source = self._joined(x, name)
        async with aclosing(source):
            async for frame in source:
                yield frame

    async def _embedded(self, x: Exchange, rules: Policy) -> AsyncGenerator[Frame, None]:
        """Embeddings: what is known from the cache, the rest by one call, in the order of the inputs. Billed is what was called for."""
        whole = x.request
        names = vectors.keys(whole, *_scope(x))
        found = await self.store.get_many(names, rules.max_age_s) if rules.read else [None] * len(names)
        looked = vectors.lookup(names, found, vectors.one_model(x.route, x.catalog))
        if not looked.missing:
            entry = vectors.stored(looked)
            x.hit(entry)
            yield vectors.answer(looked, {}, entry.usage)
            return
        x.cache_status, x.cache_why = "miss", rules.why
        if any(entry is not None for entry in looked.entries):
            x.cache_status, x.cache_why = "partial", PARTIAL
        x.request = vectors.reduced(whole, looked.missing)
        async with aclosing(self.attempts.run(x)) as source:
            frames = [frame async for frame in source]
        end = x.ends[-1]
        fresh = vectors.fresh(x.request, looked, frames, end, time.time())
        if rules.write:
            taken = [self.store.put(name, stored, x.route.cache_ttl_s) for name, stored in fresh.items()]
            if all(taken):
                x.cache_why = STORED.get(x.cache_why, x.cache_why)
        yield vectors.answer(looked, fresh, end.usage)

    def _joined(self, x: Exchange, name: bytes) -> AsyncGenerator[Frame, None]:
        """The one call that all who ask the same share, begun by the first of them."""
        # a call ends with its leader's deadline: only requests with the same one share it
        flight = name if x.features.deadline_ms is None else name + b" %r" % x.features.deadline_ms
        x.sharing, leads = self.flights.join(flight, lambda: self._lead(x, name))
        x.leading, x.cache_status = leads, "miss" if leads else "shared"
        return self._shared(x, name, x.sharing, leads)

    async def _shared(self, x: Exchange, name: bytes, call: Subscription, leads: bool) -> AsyncGenerator[Frame, None]:
        """Frames of a call that several may listen to. What only its leader's budget refused, a follower tries for itself."""
        try:
            async for frame in call:
                if not leads:
                    x.follow(frame)
                yield frame
            return
        except OverBudget:
            if leads or x.committed:
                raise
        call.leave()
        x.sharing, x.cache_status = None, "miss"
        async with aclosing(self._recorded(x, name)) as source:
            async for frame in source:
                yield frame

    async def _lead(self, x: Exchange, name: bytes) -> AsyncGenerator[Frame, None]:
        """The one upstream call of a shared flight. It belongs to the flight: when its client left before, its row is settled here."""
        outcome = "cancelled"
        try:
            async with aclosing(self._recorded(x, name)) as source:
                async for frame in source:
                    yield frame
            outcome, x.error = "completed", None
        except GatewayError as error:
            outcome, x.error = "failed", error
            raise
        finally:
            x.leading = False
            if x.left:
                self.settle(x, "failed" if x.error is not None else outcome)
                self.in_flight.discard(x)

    async def _recorded(self, x: Exchange, name: bytes) -> AsyncGenerator[Frame, None]:
        """Attempts whose answer is stored under `name` if it turns out complete."""
        recorder = Recorder(x.request.n, self.max_answer_bytes)
        async with aclosing(self.attempts.run(x)) as source:
            async for frame in source:
                recorder.add(frame)
                yield frame
        if x.clamped is not None:
            return
        end = x.ends[-1]
        whole = end.outcome == "completed" and end.error != CUT
        entry = recorder.entry(time.time(), end.usage, end.cost, (end.backend, end.model)) if whole else None
        if entry is not None and self.store.put(name, entry, x.route.cache_ttl_s):
            x.cache_why = STORED.get(x.cache_why, x.cache_why)

    def leave(self, x: Exchange, error: GatewayError | None) -> bool:
        """The answer to a flight's leader is over: True when its call is under way for others, so that the flight settles it.

        error: what its client is told, which the row says too if the call comes to nothing.
        """
        if x.leading and not x.outcome and x.sharing is not None and not x.sharing.alone:
            x.left, x.error = True, error
        return x.left

    def settle(self, x: Exchange, outcome: str, error: GatewayError | None = None) -> int | None:
        """The end of an exchange: its cost in nano-USD (None = unpriced). Synchronous, and harmless when called again."""
        if x.outcome:
            return x.cost
        error = error or x.error
        self.attempts.abandon(x, "cancelled" if outcome == "cancelled" else "failed")
        if x.ends and x.ends[-1].outcome == "failed" and outcome == "completed":
            outcome = "failed"
        if outcome == "completed" and x.cache_status in ("hit", "shared"):
            outcome = "cached"
        x.outcome = outcome
        x.cost = self._spent(x)
        record = self._record(x, outcome, error)
        self.accounts.settle(x.hold, record)
        if x.ticket is not None:
            limiter.settle(self.limits, x, x.ticket)
        self.decisions.put(x)
        self.telemetry.request(x, record)
        self.watch.settled(record, x.decision, time.time())
        if self.traces is not None and x.trace is not None:
            self.traces.ended(x, x.trace, record)
        return x.cost

    def _spent(self, x: Exchange) -> int | None:
        total = 0
        for end in x.ends:
            if end.cost is None:
                return None
            total += end.cost
        return total

    def _record(self, x: Exchange, outcome: str, error: GatewayError | None) -> UsageRecord:
        last = x.ends[-1] if x.ends else None
        attempt = x.answered_by
        backend = x.backend
        usage = last.usage if last is not None else x.replayed
        ttft_ms = None if attempt is None or attempt.meter.first_at is None else round((attempt.meter.first_at - x.started) * 1000)
        duration_ms = round((time.monotonic() - x.started) * 1000)
        return UsageRecord(
            id=x.id,
            started_at_us=x.started_us,
            ended_at_us=self.accounts.now_us(),
            team_id=x.principal.team_id,
            key_id=x.principal.key_id,
            org_id=x.principal.org_id,
            route=x.route.name,
            backend=last.backend if last is not None else (backend.name if backend is not None else ""),
            vendor=last.vendor if last is not None else "",
            model=last.model if last is not None else "",
            price_id=last.price_id if last is not None else "",
            outcome=outcome,
            cost=x.cost,
            usage=usage,
            charges=x.hold.charges if x.hold is not None else (),
            attempts=tuple(x.ends),
            streamed=x.request.stream,
            surface=x.surface,
            tag=x.tag,
            provider_id=last.provider_id if last is not None else "",
            error=(error.code or "") if error is not None else (last.error if last is not None and outcome == "failed" else ""),
            status=error.status if error is not None else (499 if outcome == "cancelled" else 200),
            saved=x.saved,
            ttft_ms=ttft_ms,
            duration_ms=duration_ms,
            marks=_marks(x, (ttft_ms, duration_ms), usage.completion_tokens),
        )


def _marks(x: Exchange, seen_ms: tuple[int | None, int], tokens: int) -> int:
    """What only the settlement knows of what is remarkable about a request."""
    f, hedge = x.features, None if x.decision is None else x.decision.hedge
    found = HEDGED if hedge is not None and hedge.result == SENT else 0
    return found | MISSED if late(seen_ms, tokens, (f.ttft_ms, f.tpot_ms, f.deadline_ms)) else found


def _name(x: Exchange, rules: Policy) -> bytes | None:
    """What the cache knows the answer by; None where it is not asked."""
    x.cache_why = rules.why
    if not (rules.read or rules.write):
        return None
    name = key(x.request, *_scope(x))
    if name is None:
        x.cache_why = TOO_LARGE
    return name


def _scope(x: Exchange) -> tuple[int, str, frozenset[str] | None, Labels]:
    """Whom a stored answer is for."""
    return x.principal.team_id, x.route.name, x.principal.models, x.features.labels


def may_use(principal: Principal, route: Route, catalog: Catalog) -> bool:
    """A key's allow-list holds route names or upstream names; a route is usable when it or one of its backends is listed."""
    allowed = principal.models
    if allowed is None or route.name in allowed:
        return True
    return any(catalog.backends[name].model in allowed for name in route.backends)


def objective(headers: Mapping[bytes, bytes], name: bytes, default: float | None) -> float | None:
    """Milliseconds from a request header, else the route's own."""
    raw = headers.get(name)
    if raw is None:
        return default
    try:
        value = float(raw)
    except ValueError:
        value = 0.0
    if not 0 < value < 86_400_000:
        raise InvalidRequest(f"The header {name.decode()} must be a number of milliseconds between 0 and 86400000.", param=name.decode())
    return value


def _prefix(principal: Principal, request: Request, route: Route, catalog: Catalog, input_tokens: int) -> tuple[Prefix, int, bool]:
    """(names of the prompt's blocks, tokens of each, whether it marks what is to be kept), where a prompt cache may make a difference."""
    if request.size_bytes < BLOCK_BYTES or len(route.backends) < 2 or request.inputs:
        return (), 0, False
    if not any(keeps_prompts(catalog.backends[name]) for name in route.backends):
        return (), 0, False
    prompt = b"".join([bytes(request.fields[name]) for name in PROMPT if name in request.fields])
    found = names(principal.team_id, prompt)
    if not found:
        return (), 0, False
    marked = b'"cache_control"' in prompt or "cache_control" in request.fields
    return found, max(1, input_tokens * BLOCK_BYTES // len(prompt)), marked


def priority(header: bytes | None) -> int:
    """Of x-tollway-priority: -1, 0 or 1."""
    if header is None:
        return 0
    found = PRIORITIES.get(header.decode("latin-1"))
    if found is None:
        raise InvalidRequest("The header x-tollway-priority may be `low`, `normal` or `high`.", param="x-tollway-priority")
    return found


def allows(header: bytes) -> bool:
    """Of x-tollway-clamp; there is one word for it, so that a misspelt one is not taken for a no."""
    if header != b"allow":
        raise InvalidRequest("The header x-tollway-clamp may only be `allow`.", param="x-tollway-clamp")
    return True


def _text(header: bytes | None) -> str | None:
    return None if header is None else header.decode("latin-1")
