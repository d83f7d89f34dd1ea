"""Where the events of an answer go: one step per kind of event, for everything that puts an answer together or writes a stream.

A dialect's encoder fills in the steps it needs; what every one remembers (id, model, usage) is here. Knows no language.
"""

from __future__ import annotations

from typing import Any

from providers.types import Event, Extra, Finished, Metered, ReasoningDelta, Request, Started, TextDelta, ToolCallDelta, Usage


class Sink:
    """`take` every event. `out` is whatever the steps append to. usage: None until it is told."""

    __slots__ = ("id", "model", "usage")

    def __init__(self, request: Request, answer_id: str = "") -> None:
        """answer_id stands in where the backend gave none."""
        self.id = answer_id
        self.model = request.model
        self.usage: Usage | None = None

    def take(self, event: Event, out: list[Any]) -> None:
        if isinstance(event, TextDelta):
            self.text(event, out)
        elif isinstance(event, ToolCallDelta):
            self.call(event, out)
        elif isinstance(event, ReasoningDelta):
            self.think(event, out)
        elif isinstance(event, Metered):
            self.usage = event.usage
        elif isinstance(event, Started):
            self.id, self.model = event.id or self.id, event.model or self.model
            self.begin(event, out)
        elif isinstance(event, Finished):
            self.finish(event, out)
        elif isinstance(event, Extra):
            self.extra(event, out)

    def begin(self, event: Started, out: list[Any]) -> None:
        """The backend said who it is; may never come."""

    def text(self, event: TextDelta, out: list[Any]) -> None:
        raise NotImplementedError

    def call(self, event: ToolCallDelta, out: list[Any]) -> None:
        raise NotImplementedError

    def think(self, event: ReasoningDelta, out: list[Any]) -> None:
        raise NotImplementedError

    def finish(self, event: Finished, out: list[Any]) -> None:
        raise NotImplementedError

    def extra(self, event: Extra, out: list[Any]) -> None:
        """What only its own dialect knows: any other leaves it out."""
