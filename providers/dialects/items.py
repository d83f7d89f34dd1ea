"""An answer as items that open, grow by pieces of text and are done, each with its place in the output, both ways.

One item with text is open at a time, calls beside it. A dialect brings its kinds of text and what a new item is made of; the order of
steps and the counting of calls are here. Knows no request and no end of a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from providers.dialects.sink import Sink
from providers.types import Event, Request, ToolCallDelta

Step = dict[str, Any]


# ---- to a client --------------------------------------------------------------------------------------------------------------------
class Kind(Struct, frozen=True):
    """A kind of text. item: what it stands in; place: the list there that gets its part; part: the part's name in events; type and
    member: of the part; lists: what else the part has.
    """

    item: str
    place: str
    part: str
    type: str
    member: str = "text"
    lists: tuple[str, ...] = ()

    def empty(self) -> dict[str, Any]:
        return {"type": self.type, self.member: "", **{name: [] for name in self.lists}}


class Item:
    """An item that has begun. kind: of its open part, None = none. pieces: of that part's text, or of a call's arguments."""

    __slots__ = ("index", "kind", "members", "part", "pieces")

    def __init__(self, index: int, members: dict[str, Any]) -> None:
        self.index = index
        self.members = members
        self.kind: Kind | None = None
        self.part: dict[str, Any] = {}
        self.pieces: list[str] = []

    def step(self, name: str, /, **members: Any) -> Step:
        place = {} if self.kind is None else {f"{self.kind.place}_index": len(self.members[self.kind.place])}
        return {"type": name, "item_id": self.members["id"], "output_index": self.index, **place, **members}


class Items(Sink):
    """Of several choices the first. output: the items, whole once they are done. incomplete: what is done from now on was cut off.
    theirs: (place, id, type) of items that a backend's own events have begun; the same ones when they begin here.
    """

    __slots__ = ("_calls", "_kinds", "_open", "incomplete", "output", "theirs")

    prefix = ""  # of the names of all steps
    arguments = ""  # what the steps of a call's arguments are called

    def __init__(self, request: Request, answer_id: str, kinds: Mapping[str, Kind]) -> None:
        """kinds: of text, by the name of their steps."""
        super().__init__(request, answer_id)
        self.output: list[dict[str, Any]] = []
        self.incomplete = False
        self.theirs: list[tuple[int, str, str]] = []
        self._kinds = kinds
        self._open: Item | None = None
        self._calls: dict[int, Item] = {}

    def new(self, kind: str) -> dict[str, Any]:
        """The members of an item that begins."""
        raise NotImplementedError

    def new_call(self, event: ToolCallDelta) -> dict[str, Any]:
        """The same of a call, with its name and without arguments."""
        raise NotImplementedError

    def take(self, event: Event, out: list[Any]) -> None:
        if not getattr(event, "choice", 0):
            super().take(event, out)

    def call(self, event: ToolCallDelta, out: list[Step]) -> None:
        item = self._calls.get(event.index)
        if item is None:
            self.shut(out)
            item = self._calls[event.index] = self.start(self.new_call(event), out)
        if event.arguments.strip() or (event.arguments and item.pieces):
            item.pieces.append(event.arguments)
            out.append(item.step(f"{self.prefix}{self.arguments}.delta", delta=event.arguments))

    def end(self, out: list[Step]) -> None:
        """Everything that is open is done."""
        self.shut(out)
        for item in self._calls.values():
            if not item.pieces:  # a call without arguments: what the client gets must parse
                item.pieces.append("{}")
                out.append(item.step(f"{self.prefix}{self.arguments}.delta", delta="{}"))
            whole = item.members["arguments"] = "".join(item.pieces)
            out.append(item.step(f"{self.prefix}{self.arguments}.done", name=item.members["name"], arguments=whole))
            self.done(item, out)
        self._calls.clear()

    def say(self, name: str, text: str, out: list[Step], **more: Any) -> dict[str, Any]:
        """One more piece of a text; the part that it belongs to."""
        item = self.part(name, out)
        item.pieces.append(text)
        out.append(item.step(f"{self.prefix}{name}.delta", delta=text, **more))
        return item.part

    def part(self, name: str, out: list[Step]) -> Item:
        """The open item, with an open part for this kind of text."""
        kind = self._kinds[name]
        item = self.item(kind.item, out)
        if item.kind is not kind:
            self._end_part(item, out)
            item.kind, item.part = kind, kind.empty()
            out.append(item.step(f"{self.prefix}{kind.part}.added", part=kind.empty()))
        return item

    def item(self, kind: str, out: list[Step]) -> Item:
        """The open item of this kind."""
        if self._open is None or self._open.members["type"] != kind:
            self.shut(out)
            self._open = self.start(self.new(kind), out)
        return self._open

    def start(self, members: dict[str, Any], out: list[Step]) -> Item:
        index = len(self.output)
        known = next((one for one in self.theirs if one[2] == members["type"]), None)
        if known is not None:
            self.theirs.remove(known)
            index, members["id"], _ = known
        item = Item(index, members)
        self.output.append(members)
        told = {name: [] if isinstance(value, list) else value for name, value in members.items()}
        out.append({"type": f"{self.prefix}output_item.added", "output_index": item.index, "item": told})
        return item

    def shut(self, out: list[Step]) -> None:
        """The open item is done."""
        item, self._open = self._open, None
        if item is not None:
            self._end_part(item, out)
            self.done(item, out)

    def done(self, item: Item, out: list[Step]) -> None:
        if item.members.get("status") == "in_progress":
            item.members["status"] = "incomplete" if self.incomplete else "completed"
        out.append({"type": f"{self.prefix}output_item.done", "output_index": item.index, "item": item.members})

    def _end_part(self, item: Item, out: list[Step]) -> None:
        kind, part = item.kind, item.part
        if kind is None:
            return
        part[kind.member] = "".join(item.pieces)
        name = next(name for name, one in self._kinds.items() if one is kind)
        told = {member: value for member, value in part.items() if member not in ("type", "annotations")}
        out.append(item.step(f"{self.prefix}{name}.done", **told))
        out.append(item.step(f"{self.prefix}{kind.part}.done", part=part))
        item.members[kind.place].append(part)
        item.kind, item.pieces = None, []


# ---- from a backend -----------------------------------------------------------------------------------------------------------------
class Begun:
    """An item that has begun. said: something of it was streamed. place: where its text stands, of several that it may be told in."""

    __slots__ = ("done", "place", "said")

    def __init__(self) -> None:
        self.said = self.done = False
        self.place = ""


class BegunItems:
    """The items of one answer from its backend, by their places in its output. calls: place -> our index."""

    __slots__ = ("_by_place", "calls")

    def __init__(self) -> None:
        self._by_place: dict[int, Begun] = {}
        self.calls: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._by_place)

    def at(self, place: int) -> Begun:
        return self._by_place.setdefault(place, Begun())

    def call(self, place: int, named: tuple[str, str], given: str | None, events: list[Event]) -> None:
        """A call begins, or is done. named: its id and name. given: its arguments, where it is done; said now if they were not streamed,
        as an empty object where it has none.
        """
        item = self.at(place)
        arguments = "" if given is None or item.said else given.strip() or "{}"
        item.said = item.said or bool(arguments)
        if place not in self.calls:
            self.calls[place] = len(self.calls)
            events.append(ToolCallDelta(self.calls[place], arguments, named[0] or None, named[1] or None))
        elif arguments:
            events.append(ToolCallDelta(self.calls[place], arguments))

    def argument(self, place: int, piece: str, events: list[Event]) -> None:
        item, call = self.at(place), self.calls.get(place)
        if call is not None and piece:
            item.said = item.said or bool(piece.strip())
            events.append(ToolCallDelta(call, piece))
