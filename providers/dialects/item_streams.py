"""Answers to a client of a language whose answers are items: whole ones, and streams of numbered steps with the whole answer at both ends.

The same steps make both. Where the backend speaks the language its own bytes go on untouched. Knows no language.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from providers.dialects.collect import own_bytes
from providers.dialects.items import Items, Kind, Step
from providers.dialects.passed import Passed
from providers.dialects.rawjson import encode_json
from providers.dialects.streams import cost_comment, named_event
from providers.types import Finished, Frame, Request


class AnswerItems(Items):
    """Items of a language that says the whole answer around them. reason: why it ended, in our words, empty = nobody said yet."""

    __slots__ = ("reason",)

    first: tuple[str, ...] = ()  # the steps that begin an answer, without the prefix

    def __init__(self, request: Request, answer_id: str, kinds: Mapping[str, Kind]) -> None:
        super().__init__(request, answer_id, kinds)
        self.reason = ""

    def answer(self, request: Request, *, over: bool) -> dict[str, Any]:
        """All that an answer says, at its beginning or when it is over; its `status` names the last step."""
        raise NotImplementedError


def whole_answer(frames: Sequence[Frame], request: Request, made: AnswerItems, dialect: str) -> bytes:
    """One JSON answer from everything that an attempt brought."""
    own = own_bytes(frames, dialect)
    if own:
        return own
    ignored: list[Step] = []
    for event in [event for frame in frames for event in frame.events]:
        made.take(event, ignored)
    made.end(ignored)
    return encode_json(made.answer(request, over=True))


class ItemStream:
    """A dialect's StreamEncoder (see dialects/base.py). Its last event waits for the cost.

    An end that comes without bytes after the backend's own events (a stream that was cut) is written as going on from them.
    """

    name = ""
    __slots__ = ("_last", "_made", "_number", "_passed", "_request")

    def __init__(self, request: Request, made: AnswerItems) -> None:
        self._request = request
        self._made = made
        self._number = 0
        self._passed: Passed | None = None  # the backend's own events that were sent
        self._last = b""

    def encode(self, frame: Frame) -> bytes:
        if frame.dialect == self.name and not frame.whole and (frame.wire or frame.usage_wire):
            self._passed = self._passed or Passed()
            self._passed.keep(frame)
            self._last += frame.usage_wire
            return frame.wire
        ends = any(isinstance(event, Finished) for event in frame.events)  # a failure does not
        done = self._go_on(self._passed) if self._passed is not None and ends else set[int]()
        steps: list[Step] = []
        for event in frame.events:
            self._made.take(event, steps)
        steps = [step for step in steps if step.get("output_index") not in done]
        return self._events(steps) if steps else b""

    def _go_on(self, passed: Passed) -> set[int]:
        """Take up the answer where the backend's own events left it; the places of its items that they have ended."""
        self._made.theirs, done = passed.items()
        self._number = passed.next_number()
        said: list[Step] = []
        for event in passed.events:
            self._made.take(event, said)
        passed.events.clear()
        return done

    def _events(self, steps: list[Step]) -> bytes:
        if not self._number:
            response = self._made.answer(self._request, over=False)
            steps = [{"type": self._made.prefix + name, "response": response} for name in self._made.first] + steps
        first, self._number = self._number, self._number + len(steps)
        return b"".join([named_event({**step, "sequence_number": first + n}) for n, step in enumerate(steps)])

    def end(self, cost: str | None) -> bytes:
        """What is due at the end, the cost as a comment, the last event."""
        if self._passed is not None and not self._made.reason:
            return cost_comment(cost) + self._last
        steps: list[Step] = []
        self._made.end(steps)
        rest = self._events(steps)
        response = self._made.answer(self._request, over=True)
        return rest + cost_comment(cost) + self._events([{"type": self._made.prefix + response["status"], "response": response}])
