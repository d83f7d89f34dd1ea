"""What leaves the process as text: the access log's line, the sink that takes every known secret out, the set-up of the loggers."""

from __future__ import annotations

import logging
import re
import sys
from contextlib import suppress
from typing import IO, Any

import msgspec
import structlog

from providers.signers import secrets

LOG_FIELDS = (
    "time",
    "event",
    "id",
    "team",
    "key",
    "route",
    "backend",
    "outcome",
    "status",
    "attempts",
    "cache",
    "cost_nanousd",
    "prompt_tokens",
    "completion_tokens",
    "ttft_ms",
    "duration_ms",
    "error",
)


class Line(msgspec.Struct, omit_defaults=False):
    """The access log's line: one per accepted request."""

    time: float
    id: str
    team: str
    key: str
    route: str
    backend: str
    outcome: str
    status: int
    attempts: int
    cache: str
    cost_nanousd: int | None
    prompt_tokens: int
    completion_tokens: int
    ttft_ms: int | None
    duration_ms: int
    error: str
    event: str = "request"


class Sink:
    """The one place where log text leaves the process: buffered, and with every known secret taken out."""

    KEY = re.compile(r"tw-[A-Za-z0-9_]{12}-[A-Za-z0-9_]+")
    MAX_BUFFER = 256 * 1024  # bytes; beyond it a write flushes at once

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self.lines: list[str] = []
        self.size = 0

    def write(self, text: str) -> None:
        self.lines.append(text)
        self.size += len(text)
        if self.size > self.MAX_BUFFER:
            self.flush()

    def flush(self) -> None:
        if not self.lines:
            return
        text = "".join(self.lines)
        self.lines.clear()
        self.size = 0
        with suppress(OSError):  # a closed terminal or pipe must not end the service
            self.stream.write(redact(text))
            self.stream.flush()


def redact(text: str) -> str:
    """Text without our keys' secrets and without any provider credential."""
    text = Sink.KEY.sub(lambda match: match[0][:15] + "-***", text)
    for secret in secrets():
        if secret in text:
            text = text.replace(secret, "***")
    return text


sink = Sink(sys.stderr)


class _ToSink(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger(record.name).log(record.levelno, record.getMessage(), exc_info=record.exc_info)


def setup_logging(level: str, form: str) -> None:
    """Once per process: structlog and the standard library's loggers both write to the sink, one JSON object a line."""
    number = logging.getLevelNamesMapping()[level.upper()]
    renderer: Any = structlog.processors.JSONRenderer() if form == "json" else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", key="time"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sink),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers[:] = [_ToSink()]
    root.setLevel(max(number, logging.WARNING))  # libraries speak at warning and above
