"""Rate limits: requests and tokens per minute and requests at once, never more than the limit in any 60 seconds.

Ten-second buckets, the running one and the six before it. Counted in Redis by limits.lua (limits_redis.py asks it), or here: then each
process holds the limit divided by the processes that live. Tokens are reserved at admission and corrected once, in their own bucket.
Knows no request and no HTTP.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct, structs

from gateway.money.budgets import Scope

BUCKET_US = 10_000_000
BUCKETS = 6  # before the running one
NONE = -1  # no such limit
SLOT_WAIT_MS = 1000  # what a request is told that found no free slot: nobody knows when one ends

log = logging.getLogger("tollway.limits")


class LimitRow(Struct, frozen=True, kw_only=True):
    """The limits of one scope. model: a route's name, None = all. None = not limited."""

    id: int
    scope_kind: str  # organisation | team | key
    scope_id: int
    model: str | None = None
    rpm: int | None = None
    tpm: int | None = None
    parallel: int | None = None


class Rule(Struct, frozen=True):
    """A limit as it is counted: NONE = not limited."""

    id: int
    rpm: int
    tpm: int
    parallel: int


class Ask(Struct, frozen=True, kw_only=True):
    """One request that wants in. tokens: reserved; least: of them, what must fit even where the client named no maximum of output."""

    id: str
    tokens: int
    least: int
    slot_s: int  # after this its slot is free again, whatever happens to the process
    rules: tuple[Rule, ...]


class Settle(Struct, frozen=True, kw_only=True):
    """The end of an admitted request. delta: tokens used minus tokens reserved, in the bucket of admission."""

    id: str
    delta: int
    bucket: int
    rules: tuple[Rule, ...]


class Verdict(Struct, frozen=True, kw_only=True):
    """kind: "" = admitted, else what was too many: requests, tokens, parallel; rule: the id whose limit it was.

    retry_after_ms: NONE = larger than the limit itself. requests_left, tokens_left: the least of any scope, NONE = not limited.
    """

    kind: str = ""
    rule: int = 0
    retry_after_ms: int = 0
    bucket: int = 0
    requests_left: int = NONE
    tokens_left: int = NONE


class Ticket:
    """An admitted request; given back by `Limits.settle`, once."""

    __slots__ = ("ask", "done", "shared", "verdict")

    def __init__(self, ask: Ask, verdict: Verdict, shared: bool) -> None:
        self.ask = ask
        self.verdict = verdict
        self.shared = shared  # counted in Redis
        self.done = False


class Refused(Struct, frozen=True):
    """With the limits as they were counted: of a process's own share where there is no Redis."""

    ask: Ask
    verdict: Verdict

    @property
    def rule(self) -> Rule:
        return next(rule for rule in self.ask.rules if rule.id == self.verdict.rule)


class Shared(Protocol):
    """Counts of all processes."""

    @property
    def degraded(self) -> bool: ...
    async def start(self) -> None: ...
    async def ask(self, ask: Ask) -> Verdict | None:
        """None: it cannot be asked; count here."""

    def tell(self, settle: Settle) -> None: ...
    async def close(self) -> None: ...


class Limits:
    """One per worker. `active` is False while nothing is limited: then nothing else of it need be called.

    processes: how many share a limit where it is counted in memory.
    """

    def __init__(self, shared: Shared | None, processes: Callable[[], int], clock_us: Callable[[], int] = lambda: time.time_ns() // 1000):
        self._shared = shared
        self._processes = processes
        self._clock_us = clock_us
        self._by_scope: dict[tuple[str, int], list[LimitRow]] = {}
        self._memory = Memory()
        self.active = False

    @property
    def degraded(self) -> bool:
        """Limits should be shared and are not at present."""
        return self._shared is not None and self._shared.degraded

    async def start(self) -> None:
        if self._shared is not None:
            await self._shared.start()

    async def close(self) -> None:
        """After the last request."""
        if self._shared is not None:
            await self._shared.close()

    def set_limits(self, rows: Sequence[LimitRow]) -> None:
        """The limits in force from now on; running requests keep theirs."""
        by_scope: dict[tuple[str, int], list[LimitRow]] = {}
        for row in rows:
            by_scope.setdefault((row.scope_kind, row.scope_id), []).append(row)
        self._memory.keep({row.id for row in rows})
        self._by_scope = by_scope
        self.active = bool(by_scope)

    def rows(self, scope: Scope) -> list[LimitRow]:
        """What limits a request of this scope."""
        found = []
        for name in (("key", scope.key_id), ("team", scope.team_id), ("organisation", scope.org_id)):
            for row in self._by_scope.get(name, ()):
                if row.model is None or row.model == scope.route:
                    found.append(row)
        return found

    async def admit(self, ask: Ask) -> Ticket | Refused:
        """Count a request in every scope, or in none. ask.rules: see `rules_of`."""
        shared = self._shared
        if shared is not None:
            fitted = fit(ask, ask.rules)
            verdict = await shared.ask(fitted)
            if verdict is not None:
                self._memory.clear()  # of a time when Redis was away
                return Refused(fitted, verdict) if verdict.kind else Ticket(fitted, verdict, True)
        own = fit(ask, tuple(divided(rule, self._processes()) for rule in ask.rules))
        verdict = self._memory.admit(own, self._clock_us())
        return Refused(own, verdict) if verdict.kind else Ticket(own, verdict, False)

    def settle(self, ticket: Ticket, tokens: int) -> None:
        """The end of an admitted request that used `tokens`. Synchronous, and harmless when called again."""
        if ticket.done:
            return
        ticket.done = True
        ask = ticket.ask
        settle = Settle(id=ask.id, delta=tokens - ask.tokens, bucket=ticket.verdict.bucket, rules=ask.rules)
        if ticket.shared and self._shared is not None:
            self._shared.tell(settle)
        else:
            self._memory.settle(settle, self._clock_us())


def rules_of(rows: Sequence[LimitRow]) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            row.id,
            NONE if row.rpm is None else row.rpm,
            NONE if row.tpm is None else row.tpm,
            NONE if row.parallel is None else row.parallel,
        )
        for row in rows
    )


def divided(rule: Rule, processes: int) -> Rule:
    """One process's part of a limit: at least 1 where the limit is not 0."""
    if processes <= 1:
        return rule
    return Rule(rule.id, *(limit if limit < 1 else max(1, limit // processes) for limit in (rule.rpm, rule.tpm, rule.parallel)))


def fit(ask: Ask, rules: tuple[Rule, ...]) -> Ask:
    """The ask under these rules. Where the client named no maximum it reserves no more than the whole limit, so that it can pass at all."""
    most = min((rule.tpm for rule in rules if rule.tpm >= 0), default=ask.tokens)
    return structs.replace(ask, rules=rules, tokens=max(ask.least, min(ask.tokens, most)))


class _Counts:
    """One scope: bucket -> requests and tokens with their sums, and slots with the instant they expire."""

    __slots__ = ("requests", "requests_sum", "slots", "tokens", "tokens_sum")

    def __init__(self) -> None:
        self.requests: dict[int, int] = {}
        self.tokens: dict[int, int] = {}
        self.requests_sum = 0
        self.tokens_sum = 0
        self.slots: dict[str, int] = {}

    def age(self, current: int) -> None:
        oldest = current - BUCKETS
        for bucket in [bucket for bucket in self.requests if bucket < oldest]:
            self.requests_sum -= self.requests.pop(bucket)
        for bucket in [bucket for bucket in self.tokens if bucket < oldest]:
            self.tokens_sum -= self.tokens.pop(bucket)

    def taken(self, now_us: int) -> int:
        for name in [name for name, until_us in self.slots.items() if until_us <= now_us]:
            del self.slots[name]
        return len(self.slots)

    def add_tokens(self, bucket: int, delta: int) -> None:
        old = self.tokens.get(bucket, 0)
        new = max(0, old + delta)
        self.tokens[bucket] = new
        self.tokens_sum += new - old


class Memory:
    """limits.lua in one process."""

    def __init__(self) -> None:
        self._counts: dict[int, _Counts] = {}

    def clear(self) -> None:
        self._counts.clear()

    def keep(self, ids: set[int]) -> None:
        """Forget scopes that are no longer limited."""
        for gone in self._counts.keys() - ids:
            del self._counts[gone]

    def admit(self, ask: Ask, now_us: int) -> Verdict:
        current = now_us // BUCKET_US
        scopes = [(rule, self._at(rule.id, current)) for rule in ask.rules]
        refusal = _refusal(ask, scopes, now_us)
        requests_left = min((rule.rpm - counts.requests_sum for rule, counts in scopes if rule.rpm >= 0), default=NONE)
        tokens_left = min((rule.tpm - counts.tokens_sum for rule, counts in scopes if rule.tpm >= 0), default=NONE)
        if refusal is not None:
            kind, rule_id, wait_ms = refusal
            return Verdict(
                kind=kind,
                rule=rule_id,
                retry_after_ms=wait_ms,
                requests_left=_left(ask.rules, requests_left, "rpm"),
                tokens_left=_left(ask.rules, tokens_left, "tpm"),
            )
        for _, counts in scopes:
            counts.requests[current] = counts.requests.get(current, 0) + 1
            counts.requests_sum += 1
            counts.add_tokens(current, ask.tokens)
            counts.slots[ask.id] = now_us + ask.slot_s * 1_000_000
        return Verdict(
            bucket=current,
            requests_left=requests_left - 1 if any(rule.rpm >= 0 for rule in ask.rules) else NONE,
            tokens_left=tokens_left - ask.tokens if any(rule.tpm >= 0 for rule in ask.rules) else NONE,
        )

    def settle(self, settle: Settle, now_us: int) -> None:
        current = now_us // BUCKET_US
        for rule in settle.rules:
            counts = self._counts.get(rule.id)
            if counts is None:
                continue
            counts.age(current)
            if counts.slots.pop(settle.id, None) is not None and settle.bucket >= current - BUCKETS:
                counts.add_tokens(settle.bucket, settle.delta)

    def _at(self, rule_id: int, current: int) -> _Counts:
        counts = self._counts.get(rule_id)
        if counts is None:
            counts = self._counts[rule_id] = _Counts()
        counts.age(current)
        return counts


def _left(rules: tuple[Rule, ...], least: int, name: str) -> int:
    return max(0, least) if any(getattr(rule, name) >= 0 for rule in rules) else NONE


def _refusal(ask: Ask, scopes: list[tuple[Rule, _Counts]], now_us: int) -> tuple[str, int, int] | None:
    """(what is too many, in which scope, how long until it fits in ms): of all the longest, and before them what never fits."""
    found: tuple[str, int, int] | None = None
    for rule, counts in scopes:
        if rule.rpm >= 0 and counts.requests_sum + 1 > rule.rpm:
            wait = NONE if rule.rpm == 0 else _wait_ms(counts.requests, counts.requests_sum + 1 - rule.rpm, now_us)
            found = _worse(found, ("requests", rule.id, wait))
        if rule.tpm >= 0 and counts.tokens_sum + ask.tokens > rule.tpm:
            wait = NONE if ask.tokens > rule.tpm else _wait_ms(counts.tokens, counts.tokens_sum + ask.tokens - rule.tpm, now_us)
            found = _worse(found, ("tokens", rule.id, wait))
        if rule.parallel >= 0 and counts.taken(now_us) >= rule.parallel and found is None:
            found = ("parallel", rule.id, SLOT_WAIT_MS)
    return found


def _worse(known: tuple[str, int, int] | None, new: tuple[str, int, int]) -> tuple[str, int, int]:
    return new if known is None or new[2] == NONE or (known[2] >= 0 and new[2] > known[2]) else known


def _wait_ms(buckets: dict[int, int], excess: int, now_us: int) -> int:
    """Until enough old buckets have left the window."""
    current = now_us // BUCKET_US
    for bucket in range(current - BUCKETS, current + 1):
        excess -= buckets.get(bucket, 0)
        if excess <= 0:
            return min(60_000, -(-((bucket + BUCKETS + 1) * BUCKET_US - now_us) // 1000))
    return 60_000
