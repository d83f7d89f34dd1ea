"""An answer as items that open, grow by pieces of text and are done; every step is told as an event, beside the items themselves.

One item with text is open at a time, calls beside it. A dialect brings its kinds of text and what a new item is made of; the order of
steps is here. Knows no request and no end of a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from providers.dialects.sink import Sink
from providers.types import Event, Request

Step = dict[str, Any]


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
    """Of several choices the first. output: the items, whole once they are done. incomplete: what is done from now on was cut off."""

    __slots__ = ("_kinds", "_open", "incomplete", "output")

    prefix = ""  # of the names of all steps

    def __init__(self, request: Request, answer_id: str, kinds: Mapping[str, Kind]) -> None:
        """kinds: of text, by the name of their steps."""
        super().__init__(request, answer_id)
        self.output: list[dict[str, Any]] = []
        self.incomplete = False
        self._kinds = kinds
        self._open: Item | None = None

    def new(self, kind: str) -> dict[str, Any]:
        """The members of an item that begins."""
        raise NotImplementedError

    def take(self, event: Event, out: list[Any]) -> None:
        if not getattr(event, "choice", 0):
            super().take(event, out)

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
        item = Item(len(self.output), members)
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
