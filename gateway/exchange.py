"""The state of one accepted request, from admission to its ledger row, and of its attempts. Holds values; decides nothing.

State: open -> committed -> completed | failed | cancelled | cached | refused. `outcome` is set once, by the pipeline's `settle`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from gateway.auth import Principal
from gateway.cache.flights import Subscription
from gateway.cache.response import Entry
from gateway.catalog import Backend, Catalog, Route
from gateway.errors import GatewayError
from gateway.money.budgets import Hold, Scope
from gateway.money.ledger import FOREIGN_CHARACTERS
from gateway.money.limits import Ticket
from gateway.money.owned import Share
from gateway.money.records import AttemptEnd
from gateway.routing.decision import Decision
from gateway.routing.features import Features
from gateway.routing.state import Call
from providers.tokens import count_output
from providers.types import Finished, Frame, Metered, ReasoningDelta, Request, Started, TextDelta, ToolCallDelta, Usage

if TYPE_CHECKING:  # traces.py makes it of an exchange
    from gateway.traces import Trace


class Meter:
    """What one attempt has brought so far, read off the events as they pass."""

    __slots__ = ("characters", "finished", "first_at", "pieces", "provider_id", "recount_at", "text", "usage")

    def __init__(self) -> None:
        self.first_at: float | None = None  # monotonic seconds of the first event that carries something
        self.usage: Usage | None = None
        self.finished = False
        self.pieces = 0  # events that carried output: about a token each, where nothing better is known
        self.text: list[str] = []
        self.characters = 0
        self.recount_at = 0  # characters from which the tokens of the text are counted again
        self.provider_id = ""

    def feed(self, frame: Frame, now: float) -> bool:
        """Take a frame in; True when it carries something (text, reasoning, a tool call or an end)."""
        carries = False
        for event in frame.events:
            if isinstance(event, TextDelta | ReasoningDelta):
                if event.text:
                    carries = True
                    self.pieces += 1
                    self.text.append(event.text)
                    self.characters += len(event.text)
            elif isinstance(event, ToolCallDelta):
                carries = True
                self.pieces += 1
                self.text.append((event.name or "") + event.arguments)
                self.characters += len(event.arguments)
            elif isinstance(event, Metered):
                self.usage = event.usage
            elif isinstance(event, Finished):
                carries = self.finished = True
            elif isinstance(event, Started):
                self.provider_id = event.id[:FOREIGN_CHARACTERS]
        if carries and self.first_at is None:
            self.first_at = now
        return carries

    def beyond(self, most: int, factor: float, model: str) -> bool:
        """Whether more output has come than `most` tokens: more events, each at least a token, or a text that is more by our count, even if
        a vendor's tokens were `factor` times as large as ours. The text is counted some ten times on the way there."""
        if self.pieces > most:
            return True
        if self.characters <= max(most, self.recount_at):
            return False  # a token has at least a character
        left = int(most * factor) - count_output(self.text, self.pieces, model)
        if left >= 0:
            self.recount_at = self.characters + max(most // 16, left)
        return left < 0


class Attempt:
    """One call to one backend, from its reservation to its end."""

    __slots__ = ("backend", "call", "counted", "dispatched", "meter", "most_tokens", "n", "share", "started", "worst")

    def __init__(self, n: int, backend: Backend, worst: int | None, call: Call, share: Share | None = None) -> None:
        self.n = n
        self.backend = backend
        self.worst = worst  # nano-USD reserved; None = unpriced
        self.most_tokens: int | None = None  # output that was reserved for; None where no budget applies
        self.call = call  # the router's view of it, which learns from how it ends
        self.share = share  # of hardware that is paid for by the hour
        self.started = call.began  # monotonic seconds
        self.dispatched = False  # its intent is in the journal and the backend may have been called
        self.meter = Meter()
        self.counted: tuple[int, int] | None = None  # input and output that were counted off the loop, where no usage came


class Exchange:
    """One accepted request. `cancel(reason)` may be called from anywhere on the loop: client | stalled | drain | deadline."""

    __slots__ = (
        "answered_by",
        "cache_status",
        "cache_why",
        "cancel_reason",
        "catalog",
        "clamp",
        "clamped",
        "committed",
        "cost",
        "deadline_at",
        "decision",
        "ends",
        "error",
        "features",
        "hold",
        "id",
        "keep_alive",
        "last_sent",
        "leading",
        "left",
        "outcome",
        "principal",
        "replayed",
        "request",
        "route",
        "running",
        "saved",
        "scope",
        "sending_since",
        "sharing",
        "started",
        "started_us",
        "surface",
        "tag",
        "task",
        "ticket",
        "trace",
    )

    def __init__(self, request_id: UUID, principal: Principal, request: Request, catalog: Catalog, features: Features) -> None:
        self.id = request_id
        self.principal = principal
        self.request = request
        self.route: Route = catalog.routes[features.route]
        self.catalog = catalog
        self.scope = Scope(principal.org_id, principal.team_id, principal.key_id, features.route)
        self.features = features
        self.sharing: Subscription | None = None  # set when requests may share one upstream call
        self.started = 0.0  # monotonic seconds
        self.started_us = 0
        self.deadline_at: float | None = None
        self.surface = request.dialect
        self.tag = principal.tag
        self.hold: Hold | None = None
        self.ticket: Ticket | None = None  # set where a rate limit applies
        self.trace: Trace | None = None  # set where traces are on
        self.ends: list[AttemptEnd] = []
        self.running: list[Attempt] = []  # two while a hedge is out
        self.answered_by: Attempt | None = None
        self.decision: Decision | None = None
        self.cache_status = ""  # "" (not cacheable) | miss | hit | shared
        self.cache_why = ""  # a word of cache/response.py, once it was asked
        self.replayed = Usage()  # of an answer that came from the cache or from another request's call
        self.saved = 0
        self.clamp = False  # a budget may lower its max_tokens
        self.clamped: int | None = None  # the max_tokens that a budget left it, for the present attempt
        self.committed = False
        self.outcome = ""
        self.cost: int | None = 0
        self.error: GatewayError | None = None
        self.leading = False  # the shared upstream call that it started is under way
        self.left = False  # its client is gone while others share that call, which settles it
        self.task: asyncio.Task[Any] | None = None
        self.cancel_reason = ""
        self.sending_since = 0.0  # monotonic; 0 = not inside send
        self.last_sent = 0.0
        self.keep_alive: Callable[[], None] | None = None  # set while a stream is open

    @property
    def backend(self) -> Backend | None:
        attempt = self.answered_by or (self.running[0] if self.running else None)
        return attempt.backend if attempt is not None else None

    def cancel(self, reason: str) -> None:
        """Stop the request's task; the first reason counts, and none once it is settled: but a client that does not take what is left
        to send is cut at any time."""
        if self.task is None or self.cancel_reason == "stalled":
            return
        if reason == "stalled" or not (self.cancel_reason or self.outcome):
            self.cancel_reason = reason
            self.task.cancel()

    def hit(self, entry: Entry) -> None:
        """A stored answer serves this request."""
        self.cache_status = "hit"
        self.replayed = entry.usage
        self.saved = entry.cost or 0
        self.committed = True

    def follow(self, frame: Frame) -> None:
        """Another request's call serves this one too."""
        self.committed = True
        for event in frame.events:
            if type(event) is Metered:
                self.replayed = event.usage
