"""The trace context of a request: accepted from a client, given to the backends that are named for it, W3C's two headers and no other.

Knows no exporter: spans are made of it by otel.py, which is imported only where an endpoint is set.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping
from typing import Protocol

from gateway.exchange import Exchange
from gateway.money.records import UsageRecord
from gateway.settings import TraceSettings

PARENT, STATE = b"traceparent", b"tracestate"
STATE_MOST = 512  # characters; a longer one is dropped, as W3C allows
_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Trace:
    """One request's place in a trace. parent: the client's span, None = it begins here. attempts: a span for each, once it is sent."""

    __slots__ = ("attempts", "parent", "sampled", "span_id", "state", "trace_id")

    def __init__(self, trace_id: int, parent: int | None, sampled: bool, state: str) -> None:
        self.trace_id = trace_id
        self.parent = parent
        self.sampled = sampled
        self.state = state
        self.span_id = new_id(64)
        self.attempts: dict[int, int] = {}

    def attempt(self, n: int) -> int:
        """The span of attempt number `n`."""
        return self.attempts.setdefault(n, new_id(64))

    def headers(self, n: int) -> dict[str, str]:
        """What a backend is told of attempt number `n`."""
        found = {PARENT.decode(): f"00-{self.trace_id:032x}-{self.attempt(n):016x}-{int(self.sampled):02x}"}
        if self.state:
            found[STATE.decode()] = self.state
        return found


class Exporter(Protocol):
    def put(self, x: Exchange, trace: Trace, record: UsageRecord) -> None: ...
    def close(self) -> None: ...


class Traces:
    """One per worker. Costs a request a few random numbers at its start and its spans when it is settled; sent behind it."""

    def __init__(self, settings: TraceSettings, exporter: Exporter) -> None:
        self._share = settings.sample
        self._told: Collection[str] = frozenset(settings.pass_to)
        self._exporter = exporter

    def begin(self, headers: Mapping[bytes, bytes]) -> Trace:
        """The client's trace goes on, sampled as it says; without one a trace begins."""
        found = read_parent(headers.get(PARENT, b""))
        if found is None:
            return Trace(new_id(128), None, random.random() < self._share, "")
        state = headers.get(STATE, b"").decode("latin-1")
        usable = len(state) <= STATE_MOST and state.isascii() and state.isprintable()
        return Trace(*found, state if usable else "")

    def headers(self, trace: Trace, backend: str, n: int) -> Mapping[str, str]:
        """Those of a call to this backend: none unless it is named for them."""
        return trace.headers(n) if backend in self._told else {}

    def ended(self, x: Exchange, trace: Trace, record: UsageRecord) -> None:
        """A request is settled."""
        if trace.sampled:
            self._exporter.put(x, trace, record)

    def close(self) -> None:
        """Send what waits, within the exporter's time limit. Blocks."""
        self._exporter.close()


def open_traces(settings: TraceSettings) -> Traces | None:
    """None where no endpoint is set. Raises ValueError for a reference without a value."""
    if not settings.endpoint:
        return None
    from gateway.otel import SpanExporter

    return Traces(settings, SpanExporter(settings))


def read_parent(header: bytes) -> tuple[int, int, bool] | None:
    """(trace, span, sampled) of a traceparent; None for none and for one that is not as W3C says."""
    match = _PARENT.fullmatch(header.strip())
    if match is None or match[1] == b"ff" or (match[1] == b"00" and match[5]):
        return None
    trace, span = int(match[2], 16), int(match[3], 16)
    return (trace, span, bool(int(match[4], 16) & 1)) if trace and span else None


def new_id(bits: int) -> int:
    """Not zero, which means none."""
    return random.getrandbits(bits) or 1
