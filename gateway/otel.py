"""Spans of a settled request, by OpenTelemetry's conventions for generative AI, on their way to a collector: the extra `otel`.

One span per request and one per attempt, made when it is settled; a stream's events have none. What was asked and answered is in them only
where the settings say so. Sent in batches by a thread of OpenTelemetry's own; what finds its queue full is dropped.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Semaphore
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from gateway import gen_ai
from gateway.exchange import Exchange
from gateway.log import redact
from gateway.money.records import AttemptEnd, UsageRecord
from gateway.routing.tally import why
from gateway.settings import TraceSettings
from gateway.traces import Trace
from providers.signers import CredentialError, resolve
from providers.types import Usage

QUEUE = 4096  # spans that may wait
BATCH = 512
EVERY_MS = 2000.0
WAITING_MOST = 256  # requests with their bodies
CONTENT_MOST = 32 * 1024  # characters of what was asked, and of what was answered

Attributes = dict[str, Any]
log = logging.getLogger("tollway.traces")


class SpanExporter:
    """One per worker."""

    def __init__(self, settings: TraceSettings) -> None:
        self._content = settings.content
        version = importlib.metadata.version("tollway")
        self._resource = Resource.create({"service.name": settings.service, "service.version": version})
        self._scope = InstrumentationScope("tollway", version)
        exporter = OTLPSpanExporter(endpoint=settings.endpoint, headers=_headers(settings.headers), timeout=settings.timeout_s)
        self._timeout_ms = int(settings.timeout_s * 1000)
        self._processor = BatchSpanProcessor(exporter, QUEUE, EVERY_MS, BATCH, self._timeout_ms)
        self._beside = ThreadPoolExecutor(1, "traces") if settings.content else None  # text is decoded and redacted off the event loop
        self._room = Semaphore(WAITING_MOST)

    def put(self, x: Exchange, trace: Trace, record: UsageRecord) -> None:
        """The request's span and those of its attempts, queued; with content dropped where WAITING_MOST requests wait for theirs."""
        ended_ns = time.time_ns()
        if self._beside is None:
            self._queue(x, trace, record, ended_ns)
        elif self._room.acquire(blocking=False):
            self._beside.submit(self._queue, x, trace, record, ended_ns).add_done_callback(self._queued)

    def _queue(self, x: Exchange, trace: Trace, record: UsageRecord, ended_ns: int) -> None:
        for span in self.spans(x, trace, record, ended_ns):
            self._processor.on_end(span)

    def _queued(self, made: Future[None]) -> None:
        self._room.release()
        error = made.exception()
        if error is not None:
            log.warning("a request's trace could not be made: %s", type(error).__name__)

    def close(self) -> None:
        """Send what waits and end the thread; blocks up to the time limit of one export."""
        if self._beside is not None:
            self._beside.shutdown()
        self._processor.force_flush(self._timeout_ms)
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def spans(self, x: Exchange, trace: Trace, record: UsageRecord, ended_ns: int) -> Iterator[ReadableSpan]:
        """ended_ns: of the request, nanoseconds since 1970."""
        started_ns = ended_ns - record.duration_ms * 1_000_000
        state = TraceState.from_header([trace.state]) if trace.state else None

        def context(span: int, remote: bool = False) -> SpanContext:
            return SpanContext(trace.trace_id, span, remote, TraceFlags(int(trace.sampled)), state)

        def made(name: str, span: int, parent: SpanContext | None, *more: Any) -> ReadableSpan:
            kind, attributes, error, begin, end = more
            return ReadableSpan(
                name=name,
                context=context(span),
                parent=parent,
                resource=self._resource,
                attributes={key: redact(value) if isinstance(value, str) else value for key, value in attributes.items()},
                kind=kind,
                status=Status(StatusCode.ERROR) if error else Status(),
                start_time=begin,
                end_time=end,
                instrumentation_scope=self._scope,
            )

        operation = gen_ai.operation(record.surface)
        parent = None if trace.parent is None else context(trace.parent, remote=True)
        values, error = self._of_request(x, record)
        yield made(f"{operation} {record.route}", trace.span_id, parent, SpanKind.SERVER, values, error, started_ns, ended_ns)
        for end in record.attempts:
            values, error = _of_attempt(end, operation)
            begin = started_ns + (end.began_ms or 0) * 1_000_000
            over = begin + end.duration_ms * 1_000_000
            name = f"{operation} {end.model}"
            yield made(name, trace.attempt(end.n), context(trace.span_id), SpanKind.CLIENT, values, error, begin, over)

    def _of_request(self, x: Exchange, record: UsageRecord) -> tuple[Attributes, str]:
        error = gen_ai.error_type(record.outcome, record.error)
        request = x.request
        found: Attributes = {
            "gen_ai.operation.name": gen_ai.operation(record.surface),
            "gen_ai.provider.name": gen_ai.provider(record.vendor),
            "gen_ai.request.model": record.route,
            "gen_ai.request.stream": record.streamed,
            "http.response.status_code": record.status,
            "tollway.request.id": str(record.id),
            "tollway.surface": record.surface,
            "tollway.team": x.principal.team,
            "tollway.outcome": record.outcome,
            "tollway.backend": record.backend,
            "tollway.attempts": len(record.attempts),
            **_usage(record.usage),
        }
        for name, value in (
            ("error.type", error or None),
            ("gen_ai.response.model", record.model or None),
            ("gen_ai.response.id", record.provider_id or None),
            ("gen_ai.request.max_tokens", request.max_tokens),
            ("gen_ai.request.temperature", request.temperature),
            ("gen_ai.request.choice.count", request.n if request.n != 1 else None),
            ("gen_ai.response.time_to_first_chunk", None if record.ttft_ms is None else record.ttft_ms / 1000),
            ("tollway.cache", x.cache_status or None),
            ("tollway.cost_nanousd", record.cost),
            ("tollway.tag", record.tag or None),
            ("tollway.decision", None if x.decision is None else why(x.decision)),
        ):
            if value is not None:
                found[name] = value
        if self._content:
            found |= _content(x)
        return found, error


def _of_attempt(end: AttemptEnd, operation: str) -> tuple[Attributes, str]:
    error = gen_ai.error_type(end.outcome, end.error)
    found: Attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": gen_ai.provider(end.vendor),
        "gen_ai.request.model": end.model,
        "tollway.backend": end.backend,
        "tollway.attempt": end.n,
        "tollway.outcome": end.outcome,
        **_usage(end.usage),
    }
    for name, value in (
        ("error.type", error or None),
        ("gen_ai.response.id", end.provider_id or None),
        ("http.response.status_code", end.status or None),
        ("gen_ai.response.time_to_first_chunk", None if end.ttft_ms is None else end.ttft_ms / 1000),
        ("tollway.cost_nanousd", end.cost),
        ("tollway.reserved_nanousd", end.worst),
    ):
        if value is not None:
            found[name] = value
    return found, error


def _usage(usage: Usage) -> Attributes:
    found: Attributes = {"gen_ai.usage.input_tokens": usage.prompt_tokens, "gen_ai.usage.output_tokens": usage.completion_tokens}
    if usage.cache_read:
        found["gen_ai.usage.cache_read.input_tokens"] = usage.cache_read
    if usage.reasoning:
        found["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning
    if usage.estimated:
        found["tollway.usage.estimated"] = True
    return found


def _content(x: Exchange) -> Attributes:
    """What was asked, as the client wrote it, and what was answered, as text."""
    asked = [
        bytes(x.request.fields[name]).decode("utf-8", "replace") for name in ("messages", "input", "prompt") if name in x.request.fields
    ]
    found: Attributes = {"gen_ai.input.messages": asked[0][:CONTENT_MOST]} if asked else {}
    instructions = [name for name in ("system", "instructions") if name in x.request.fields]
    if instructions:
        found["gen_ai.system_instructions"] = bytes(x.request.fields[instructions[0]]).decode("utf-8", "replace")[:CONTENT_MOST]
    if x.answered_by is not None:
        text = "".join(x.answered_by.meter.text)[:CONTENT_MOST]
        found["gen_ai.output.messages"] = json.dumps(
            [{"role": "assistant", "parts": [{"type": "text", "content": text}]}], ensure_ascii=False
        )
    return found


def _headers(reference: str) -> dict[str, str]:
    """Those of a reference's value, `name=value,name=value`, as the environment variable of OpenTelemetry has them."""
    if not reference:
        return {}
    found = {}
    for part in resolve(reference, what="traces.headers").split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise CredentialError("traces.headers: the value must be name=value, several of them joined by commas, without spaces")
        found[name.strip().lower()] = value.strip()
    return found
