"""Events go to one step each; id, model and usage are remembered."""

from __future__ import annotations

from typing import Any

import pytest

from providers.dialects.sink import Sink
from providers.types import Event, Extra, Finished, Metered, ReasoningDelta, Request, Started, TextDelta, ToolCallDelta, Usage

REQUEST = Request(dialect="d", fields={}, model="route")


class Named(Sink):
    def text(self, event: TextDelta, out: list[Any]) -> None:
        out.append("text")

    def call(self, event: ToolCallDelta, out: list[Any]) -> None:
        out.append("call")

    def think(self, event: ReasoningDelta, out: list[Any]) -> None:
        out.append("think")

    def finish(self, event: Finished, out: list[Any]) -> None:
        out.append("finish")


def test_every_kind_of_event_has_its_step():
    out: list[str] = []
    sink = Named(REQUEST, "own")
    assert (sink.id, sink.model, sink.usage) == ("own", "route", None)
    events: list[Event] = [TextDelta("a"), ToolCallDelta(0), ReasoningDelta("b"), Extra("d", "k", "{}"), Finished("stop")]
    for event in [Started("", ""), *events, Metered(Usage(input=1))]:
        sink.take(event, out)
    assert out == ["text", "call", "think", "finish"]
    assert (sink.id, sink.model, sink.usage) == ("own", "route", Usage(input=1))
    sink.take(Started("theirs", "m"), out)
    assert (sink.id, sink.model) == ("theirs", "m")


@pytest.mark.parametrize("event", [TextDelta("a"), ToolCallDelta(0), ReasoningDelta("b"), Finished("stop")])
def test_a_step_that_is_missing_is_no_silence(event: Event):
    with pytest.raises(NotImplementedError):
        Sink(REQUEST).take(event, [])
