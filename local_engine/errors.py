"""What can go wrong in the engine, on both sides of its socket.

EngineError
├── ConfigError      an option or a model folder that cannot work; waiting does not help
├── Unreachable      no engine behind the socket; nothing was sent
├── Lost             the engine ended, or its connection broke, while a request was open
├── Unavailable      loading, no model yet, queue full, stopping: try again after `retry_after_s`
├── BadRequest       a parameter out of range; `param` names it
│   └── ContextExceeded   prompt + max_tokens does not fit
└── Overrun          the reader was too slow and its buffer ran full
"""

from __future__ import annotations


class EngineError(Exception):
    kind = "internal"

    def __init__(self, message: str, *, retry_after_s: float | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        self.param = param


class ConfigError(EngineError):
    kind = "config"


class Unreachable(EngineError):
    kind = "unreachable"


class Lost(EngineError):
    kind = "lost"


class Unavailable(EngineError):
    kind = "unavailable"


class BadRequest(EngineError):
    kind = "bad_request"


class ContextExceeded(BadRequest):
    kind = "context"


class Overrun(EngineError):
    kind = "overrun"


KINDS: dict[str, type[EngineError]] = {
    e.kind: e for e in (EngineError, ConfigError, Unreachable, Lost, Unavailable, BadRequest, ContextExceeded, Overrun)
}
