"""Byte-level event-stream parser: reads of any size in, whole events with their place in the bytes out.

CR, LF and CRLF, comments, several data lines, a BOM and cuts anywhere, inside UTF-8 too, by the WHATWG rules. Never decodes text, so
that a character cut in two is whole again before anybody reads it. Knows no dialect: `[DONE]` is data like any other.
"""

from __future__ import annotations

import re

from msgspec import Struct

MAX_EVENT_BYTES = 8 * 1024 * 1024  # one event; a vendor's largest (an image as base64) is below
BOM = b"\xef\xbb\xbf"

# Atomic: a CRLF is one line end, never a CR and an LF.
_BLANK = re.compile(rb"(?>\r\n|\n|\r)((?>\r\n|\n|\r))")
_ENDS = b"\r\n"
_LINE = re.compile(rb"\r\n|\n|\r")


class EventTooLarge(ValueError):
    """An event passed the parser's limit; the stream is given up."""


class Event(Struct, gc=False):
    """One block between blank lines. It stands at raw[start:end] of its Block, the blank line included.

    data is None where the block has no data line (a comment, a keep-alive). plain: nothing but `data:` lines and comments, so the
    bytes may go to a client as they are.
    """

    data: bytes | None
    start: int
    end: int
    name: bytes = b""
    plain: bool = True


class Block(Struct, gc=False):
    """The whole events that one read completed: their bytes, and where each one stands."""

    raw: bytes
    events: list[Event]


EMPTY = Block(b"", [])


class Parser:
    """One stream. `feed` every read, `close` at its end. Raises EventTooLarge."""

    __slots__ = ("_begun", "_buffer", "_searched", "_skip_lf", "max_event_bytes")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.max_event_bytes = max_event_bytes
        self._buffer = bytearray()
        self._searched = 0  # no blank line ends before this place of the buffer
        self._skip_lf = False  # the last block ended in a CR; an LF that follows belongs to it
        self._begun = False

    def feed(self, data: bytes) -> Block:
        """The events that `data` completed, EMPTY where it completed none."""
        if not self._begun:
            data = self._begin(data)
        if self._skip_lf and data:
            self._skip_lf = False
            if data[0] == 0x0A:
                data = data[1:]
        if not self._buffer and data.endswith(b"\n\n") and b"\r" not in data:
            return self._split(data)
        return self._search(data)

    def close(self) -> Block:
        """What stood at the end without a blank line, as an event. (WHATWG drops it; some servers end so, and mean it.)"""
        rest = bytes(self._buffer)
        self._buffer.clear()
        self._searched = 0
        if not rest.strip(b"\r\n"):
            return EMPTY
        return Block(rest, [_event(rest, 0, len(rest))])

    def _begin(self, data: bytes) -> bytes:
        data = bytes(self._buffer) + data
        self._buffer.clear()
        if len(data) < len(BOM) and BOM.startswith(data):
            self._buffer += data
            return b""
        self._begun = True
        return data.removeprefix(BOM)

    def _split(self, data: bytes) -> Block:
        """The common case, in C: LF only, and the read ends with an event."""
        limit = self.max_event_bytes
        events = []
        at = 0
        for piece in data.split(b"\n\n"):
            end = at + len(piece) + 2
            if len(piece) + 2 > limit:
                raise EventTooLarge(f"an event of the stream is larger than {limit} bytes")
            if piece[:6] == b"data: " and b"\n" not in piece:
                events.append(Event(piece[6:], at, end))
            elif piece.strip(b"\n"):
                events.append(_event(piece, at, end))
            at = end
        return Block(data, events)

    def _search(self, data: bytes) -> Block:
        buffer = self._buffer
        open_line = not buffer or buffer[-1] not in _ENDS
        buffer += data
        if open_line and b"\n" not in data and b"\r" not in data and len(buffer) <= self.max_event_bytes:
            return EMPTY  # the middle of a line
        events = []
        begin = 0
        for match in _BLANK.finditer(buffer, self._searched):
            end = match.end()
            if match.group(1) == b"\r" and end == len(buffer):
                if match.group(0) == b"\r\n\r":
                    break  # a CRLF stream: the other half of this line end is still to come
                self._skip_lf = True
            if end - begin > self.max_event_bytes:
                raise EventTooLarge(f"an event of the stream is larger than {self.max_event_bytes} bytes")
            piece = bytes(buffer[begin : match.start()])
            if piece.strip(b"\r\n"):
                events.append(_event(piece, begin, end))
            begin = end
        raw = bytes(buffer[:begin])
        del buffer[:begin]
        if len(buffer) > self.max_event_bytes:
            raise EventTooLarge(f"an event of the stream is larger than {self.max_event_bytes} bytes")
        self._searched = max(0, len(buffer) - 3)
        return Block(raw, events) if raw else EMPTY


def _event(piece: bytes, start: int, end: int) -> Event:
    """The fields of one block, by the WHATWG rules."""
    data: list[bytes] = []
    name = b""
    plain = True
    for line in _LINE.split(piece):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field:
            plain = False
            if field == b"event":
                name = value
    return Event(b"\n".join(data) if data else None, start, end, name, plain)
