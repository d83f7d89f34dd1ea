"""Events put together: what a whole answer says, choice by choice. Each dialect writes its own answer from it; this knows none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.rawjson import says_nothing
from providers.dialects.sink import Sink
from providers.types import (
    Event,
    Finished,
    Frame,
    Part,
    ReasoningDelta,
    RedactedThinking,
    Request,
    Started,
    TextDelta,
    Thinking,
    ToolCallDelta,
)


class Call:
    """A tool call; arguments that say nothing are an empty object."""

    __slots__ = ("_pieces", "id", "name")

    def __init__(self) -> None:
        self.id: str | None = None
        self.name = ""
        self._pieces: list[str] = []

    def take(self, event: ToolCallDelta) -> None:
        self.id = event.id or self.id
        self.name = event.name or self.name
        self._pieces.append(event.arguments)

    @property
    def arguments(self) -> str:
        said = "".join(self._pieces).strip()
        return "{}" if says_nothing(said) else said


class Choice:
    """One choice. thoughts: thinking that its signature ended, and encrypted thinking, in order; reasoning: all thinking's text."""

    __slots__ = ("_block", "_calls", "_reasoning", "_refusal", "_text", "logprobs", "reason", "thoughts")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: list[str] = []
        self._block: list[str] = []  # of the thinking that its signature will end
        self._calls: dict[int, Call] = {}
        self.thoughts: list[Part] = []
        self.logprobs: dict[str, Any] | None = None
        self.reason: str | None = None

    @property
    def text(self) -> str | None:
        return "".join(self._text) if self._text else None

    @property
    def refusal(self) -> str | None:
        return "".join(self._refusal) if self._refusal else None

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def calls(self) -> list[Call]:
        return [self._calls[index] for index in sorted(self._calls)]

    def say(self, event: TextDelta) -> None:
        (self._refusal if event.refusal else self._text).append(event.text)
        if event.logprobs is not None:
            self._log(msgspec.json.decode(event.logprobs, type=dict[str, Any]))

    def call(self, event: ToolCallDelta) -> None:
        self._calls.setdefault(event.index, Call()).take(event)

    def think(self, event: ReasoningDelta) -> None:
        if event.text:
            self._reasoning.append(event.text)
            self._block.append(event.text)
        if event.signature is not None:
            self.thoughts.append(Thinking("".join(self._block), event.signature))
            self._block.clear()
        if event.redacted is not None:
            self.thoughts.append(RedactedThinking(event.redacted))

    def _log(self, more: Mapping[str, Any]) -> None:
        if self.logprobs is None:
            self.logprobs = dict(more)
            return
        for name, value in more.items():
            before = self.logprobs.get(name)
            if isinstance(before, list) and isinstance(value, list):
                before.extend(value)
            elif value is not None:
                self.logprobs[name] = value


class Answer(Sink):
    """All of an answer. created: Unix seconds, 0 where nobody said."""

    __slots__ = ("_choices", "created")

    def __init__(self, frames: Sequence[Frame], request: Request) -> None:
        super().__init__(request)
        self.created = 0
        self._choices: dict[int, Choice] = {}
        for frame in frames:
            for event in frame.events:
                self.take(event, [])

    @property
    def choices(self) -> list[tuple[int, Choice]]:
        return sorted(self._choices.items())

    def _of(self, event: Event) -> Choice:
        return self._choices.setdefault(getattr(event, "choice", 0), Choice())

    def begin(self, event: Started, out: list[Any]) -> None:
        self.created = event.created or self.created

    def text(self, event: TextDelta, out: list[Any]) -> None:
        self._of(event).say(event)

    def call(self, event: ToolCallDelta, out: list[Any]) -> None:
        self._of(event).call(event)

    def think(self, event: ReasoningDelta, out: list[Any]) -> None:
        self._of(event).think(event)

    def finish(self, event: Finished, out: list[Any]) -> None:
        choice = self._of(event)
        choice.reason = choice.reason or event.reason


def own_bytes(frames: Sequence[Frame], dialect: str) -> bytes:
    """The backend's own answer where it is whole and of this language (the fast lane), else nothing."""
    lone = frames[0] if len(frames) == 1 else None
    return lone.wire if lone is not None and lone.whole and lone.dialect == dialect else b""
