"""One choice of an answer while it comes: its tool calls, numbered by us. And the ids of calls for a language that takes few letters.

Whatever a language counts (blocks, items, calls, nothing), ours count from 0.
Knows no language and no arguments; an event with a call's first piece names it, later ones carry its index alone.
"""

from __future__ import annotations

import re
from collections.abc import Hashable

from providers.types import Event, ToolCallDelta

_NO_LETTER = re.compile(r"[^a-zA-Z0-9_-]")


def plain_id(text: str) -> str:
    """A call's id for a language whose ids have letters, digits, `_` and `-`; the same change for a call and its result."""
    return _NO_LETTER.sub("_", text) or "call"


class ChoiceState:
    """Pieces of calls to events. finished: the backend said why the choice ended."""

    __slots__ = ("_by_key", "_choice", "_ids", "finished")

    def __init__(self, choice: int = 0) -> None:
        self.finished = False
        self._choice = choice
        self._ids: list[str] = []  # of the calls, by our index
        self._by_key: dict[Hashable, int] = {}  # the vendor's index -> ours

    def piece(self, key: Hashable, call_id: str, name: str, arguments: str, events: list[Event]) -> None:
        """A call or a piece of one. key: the vendor's index of it, None where it has none; then each piece with a name is a call of its
        own. A new id with a name at a known index is a new call too.
        """
        known = self._by_key.get(key)
        if known is not None and not (name and (key is None or (call_id and self._ids[known] != call_id))):
            if arguments:
                events.append(ToolCallDelta(known, arguments, choice=self._choice))
            return
        known = self._by_key[key] = len(self._ids)
        self._ids.append(call_id)
        events.append(ToolCallDelta(known, arguments, call_id or None, name or None, self._choice))

    def only(self, name: str, arguments: str, events: list[Event]) -> None:
        """A piece of the one call that a choice can have in an old form, which has no id."""
        events.append(ToolCallDelta(0, arguments, None, name or None, self._choice))
        if not self._ids:
            self._ids.append("")
