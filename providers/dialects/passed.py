"""What is kept of a backend's own events while they go on untouched, so that a stream which it does not end can be ended for it.

For languages whose answers are items. Nothing is decoded before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from providers.dialects.rawjson import decode_any
from providers.sse import Parser
from providers.types import Event, Frame


class Passed:
    """events: all that was said so far."""

    __slots__ = ("_items", "_newest", "events")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._items: list[bytes] = []  # the bytes that tell where an item begins or is done
        self._newest = b""

    def keep(self, frame: Frame) -> None:
        self.events += frame.events
        if b"data:" in frame.wire:
            self._newest = frame.wire
            if b"output_item." in frame.wire:
                self._items.append(frame.wire)

    def next_number(self) -> int:
        """Of the event after the newest, 0 where the backend does not number its events."""
        return max((told["sequence_number"] + 1 for told in _told(self._newest) if isinstance(told.get("sequence_number"), int)), default=0)

    def items(self) -> tuple[list[tuple[int, str, str]], set[int]]:
        """(place, id, type) of the items that were begun, and the places of those that are done."""
        begun: list[tuple[int, str, str]] = []
        done: set[int] = set()
        for told in _told(b"".join(self._items)):
            item = told.get("item")
            if isinstance(item, dict) and str(told.get("type")).endswith("output_item.added"):
                begun.append((told.get("output_index", 0), item.get("id", ""), item.get("type", "")))
            elif isinstance(item, dict):
                done.add(told.get("output_index", 0))
        return begun, done


def _told(wire: bytes) -> Iterator[dict[str, Any]]:
    for event in Parser().feed(wire).events:
        if event.data is not None and event.data.startswith(b"{"):
            yield decode_any(event.data)
