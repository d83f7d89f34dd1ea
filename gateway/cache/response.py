"""What may be cached, under which key, and what is stored: an exact response cache for whole, complete answers.

Knows no store (store.py) and no request in flight (flights.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from gateway.catalog import Route
from gateway.labels import Labels, text_of
from providers.types import Failed, Finished, Frame, ReasoningDelta, Request, StoredEvent, TextDelta, ToolCallDelta, Usage

VERSION = b"2"  # raised with every change of the key, of an entry's shape or of the events' meaning
NOT_IN_KEY = frozenset({"model", "stream", "stream_options", "user"})  # the route stands for the model; the rest does not change the answer
KEY_MOST_BYTES = 1024 * 1024  # a larger body is not hashed on the event loop, so not cached
EVENT_BYTES = 64  # charged per event beside its text
CONTENT = (TextDelta, ReasoningDelta, ToolCallDelta)
CUT_REASONS = frozenset({"error"})  # vendors' words for an answer that did not come to its end


# why a request was not answered by the cache, and what became of its own answer
OFF, ROUTE, TEMPERATURE, NO_STORE, TOO_LARGE = "off", "route", "temperature", "no_store", "too_large"
FRESH, ABSENT, PARTIAL = "fresh", "absent", "partial"
STORED = {FRESH: "fresh_stored", ABSENT: "stored", PARTIAL: "partial_stored"}


class Policy(Struct, frozen=True):
    """read: a stored answer, or one in flight, may serve this request. write: its answer may be stored. max_age_s: of a stored answer.
    why: of what may not be, OFF to NO_STORE, or FRESH where the client wants no stored one; else ABSENT, should none be found."""

    read: bool = False
    write: bool = False
    max_age_s: float | None = None
    why: str = ABSENT


DISABLED = Policy(why=OFF)
BY_ROUTE, BY_TEMPERATURE, BY_CLIENT = Policy(why=ROUTE), Policy(why=TEMPERATURE), Policy(why=NO_STORE)
OPEN = Policy(True, True)


class StoredFrame(Struct, kw_only=True):
    """providers.types.Frame with the events that can be stored."""

    events: list[StoredEvent]
    wire: bytes = b""
    usage_wire: bytes = b""
    dialect: str = ""
    whole: bool = False


class Entry(Struct, frozen=True, kw_only=True):
    """One stored answer. created: Unix seconds. cost: nano-USD that it cost then and a hit saves. backend, model: who answered."""

    created: float
    frames: tuple[StoredFrame, ...]
    usage: Usage
    cost: int | None
    backend: str = ""
    model: str = ""

    def replay(self) -> list[Frame]:
        """Fresh frames, for the same encoder as live traffic."""
        return [Frame(events=list(f.events), wire=f.wire, usage_wire=f.usage_wire, dialect=f.dialect, whole=f.whole) for f in self.frames]


def policy(request: Request, route: Route, cache_control: str | None) -> Policy:
    """What the cache may do for this request. cache_control: the request header. A temperature that is left out is not 0."""
    if route.cache == "never":
        return BY_ROUTE
    if route.cache != "always" and request.temperature != 0:
        return BY_TEMPERATURE
    if not cache_control:
        return OPEN
    words = [word.strip().lower() for word in cache_control.split(",")]
    if "no-store" in words:
        return BY_CLIENT
    max_age_s = None
    for word in words:
        name, _, value = word.partition("=")
        if name == "max-age" and value.strip('"').isdecimal():
            max_age_s = float(value.strip('"')[:12])
    read = "no-cache" not in words and max_age_s != 0.0
    return Policy(read, True, max_age_s, ABSENT if read else FRESH)


def key(request: Request, tenant_id: int, route: str, allowed: frozenset[str] | None = None, labels: Labels = ()) -> bytes | None:
    """Names the answer to this request: every top-level field as it was written but for NOT_IN_KEY, the route, the surface's dialect and
    the headers that it carries, the tenant, the key's allow-list (a hit must not serve a model that its caller may not use) and the labels
    that a backend must carry. None: too large to be cached.
    """
    if request.size_bytes > KEY_MOST_BYTES:
        return None
    return hashlib.blake2b(b"".join(scope_parts(request, tenant_id, route, (allowed, labels), NOT_IN_KEY)), digest_size=24).digest()


def scope_parts(
    request: Request, tenant_id: int, route: str, binding: tuple[frozenset[str] | None, Labels], without: frozenset[str]
) -> list[bytes]:
    """What a key is made of: whose request it is, by which surface, and its fields but for `without`. No two requests make the same.

    binding: what backends may answer it, by the key's allow-list (None = all) and by labels.
    """
    allowed, labels = binding
    scope = b"*" if allowed is None else msgspec.json.encode(sorted(allowed))
    parts = [VERSION, str(tenant_id).encode(), request.dialect.encode(), route.encode(), scope, text_of(labels).encode()]
    for name in sorted(request.fields.keys() - without):
        parts.append(name.encode())
        parts.append(bytes(request.fields[name]))
    for name, value in sorted(request.headers.items()):
        parts += (name.encode(), value.encode())
    return [",".join([str(len(part)) for part in parts]).encode(), b";", *parts]


def weight(frame: Frame) -> int:
    """About the bytes a frame holds."""
    total = len(frame.wire) + len(frame.usage_wire)
    for event in frame.events:
        total += EVENT_BYTES
        if isinstance(event, TextDelta):
            total += len(event.text) + (0 if event.logprobs is None else len(event.logprobs))
        elif isinstance(event, ReasoningDelta):
            total += len(event.text)
        elif isinstance(event, ToolCallDelta):
            total += len(event.arguments)
    return total


class Recorder:
    """Keeps an answer's frames as they pass, up to `max_bytes`, and makes an entry of them if they turn out complete."""

    __slots__ = ("_bytes", "_choices", "_failed", "_finished", "_frames", "_max_bytes", "_n")

    def __init__(self, n: int, max_bytes: int) -> None:
        self._n = n  # choices that were asked for
        self._max_bytes = max_bytes
        self._bytes = 0
        self._failed = False
        self._frames: list[Frame] = []
        self._choices: set[int] = set()
        self._finished: set[int] = set()

    def add(self, frame: Frame) -> None:
        if self._failed:
            return
        self._bytes += weight(frame)
        if self._bytes > self._max_bytes:
            self.discard()
            return
        self._frames.append(frame)
        for event in frame.events:
            if isinstance(event, CONTENT):
                self._choices.add(event.choice)
            elif isinstance(event, Finished):
                self._finished.add(event.choice)
                self._failed = self._failed or event.reason in CUT_REASONS
            elif isinstance(event, Failed):
                self.discard()
                return

    def discard(self) -> None:
        """Nothing will be stored: an error was seen, the answer is too large or was made under other limits than the client's."""
        self._failed = True
        self._frames.clear()

    def entry(self, created: float, usage: Usage, cost: int | None, served: tuple[str, str]) -> Entry | None:
        """The entry, if every choice asked for has finished and nothing failed. served: names of backend and upstream model."""
        if self._failed or len(self._finished) < self._n or not self._choices <= self._finished:
            return None
        return Entry(created=created, frames=_merged(self._frames), usage=usage, cost=cost, backend=served[0], model=served[1])


def _merged(frames: Sequence[Frame]) -> tuple[StoredFrame, ...]:
    """Neighbours of one stream become one frame: a replay writes once."""
    groups: list[list[Frame]] = []
    for frame in frames:
        last = groups[-1][-1] if groups else None
        same = (
            last is not None and not (frame.whole or last.whole) and frame.dialect == last.dialect and bool(frame.wire) == bool(last.wire)
        )
        if same and last is not None and not last.usage_wire:
            groups[-1].append(frame)
        else:
            groups.append([frame])
    return tuple(_joined(group) for group in groups)


def _joined(group: Sequence[Frame]) -> StoredFrame:
    return StoredFrame(
        events=_events(group),
        wire=b"".join([frame.wire for frame in group]),
        usage_wire=b"".join([frame.usage_wire for frame in group]),
        dialect=group[0].dialect,
        whole=group[0].whole,
    )


def _events(group: Sequence[Frame]) -> list[StoredEvent]:
    """All events; pieces of one text that stand side by side become one."""
    events: list[StoredEvent] = []
    pieces: list[str] = []  # of the text that stands last in `events`
    for event in [event for frame in group for event in frame.events if not isinstance(event, Failed)]:
        last = events[-1] if events else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta) and _continues(event, last):
            pieces.append(event.text)
            continue
        if len(pieces) > 1 and isinstance(last, TextDelta):
            events[-1] = TextDelta("".join(pieces), last.choice, None, last.refusal)
        events.append(event)
        pieces = [event.text] if isinstance(event, TextDelta) else []
    if len(pieces) > 1 and isinstance(events[-1], TextDelta):
        events[-1] = TextDelta("".join(pieces), events[-1].choice, None, events[-1].refusal)
    return events


def _continues(event: TextDelta, last: TextDelta) -> bool:
    plain = event.logprobs is None and last.logprobs is None
    return plain and event.choice == last.choice and event.refusal == last.refusal


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Entry)


def encode(entry: Entry) -> bytes:
    return _encoder.encode(entry)


def decode(data: bytes) -> Entry:
    """Raises msgspec.MsgspecError for bytes that are no entry of this version."""
    return _decoder.decode(data)
