"""Answers with vectors: from upstream, in whatever order and form, and to the client, in order and in the form it asked for."""

from __future__ import annotations

import binascii
import struct
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from providers.dialects.base import UNREADABLE
from providers.dialects.error_bodies import stated_error
from providers.dialects.openai_embeddings.requests import NAME
from providers.dialects.streams import StreamReader
from providers.errors import BadAnswer
from providers.sse import Event as Block_Event
from providers.types import Event, Finished, Frame, Metered, Request, Started, Usage, Vector

MAX_COUNT = 1_000_000_000  # tokens; a larger count is a vendor's mistake

_any = msgspec.json.Decoder().decode
_floats = msgspec.json.Decoder(list[float]).decode
_encode = msgspec.json.Encoder().encode


class Item(Struct, gc=False):
    embedding: Raw
    index: Any = None


class Answer(Struct, gc=False):
    data: list[Item] | None = None
    model: Any = None
    id: Any = None
    usage: Any = None
    error: Any = None


_answer = msgspec.json.Decoder(Answer).decode


def decode_answer(body: bytes) -> Frame:
    """A whole answer. Raises ProviderError: BadAnswer for what is none, the stated kind for an error under status 200."""
    try:
        answer = _answer(body)
    except UNREADABLE as fault:
        raise BadAnswer(f"the backend's answer cannot be read: {str(fault)[:200]}") from None
    if answer.error is not None:
        raise stated_error(_any(body))
    if not answer.data:
        raise BadAnswer("the backend's answer has no embeddings")
    events: list[Event] = [Started(_name(answer.id), _name(answer.model))]
    for position, item in enumerate(answer.data):
        index = item.index if type(item.index) is int and item.index >= 0 else position
        events.append(Vector(index, _vector(item.embedding)))
    usage = _usage(answer.usage)
    if usage is not None:
        events.append(Metered(usage))
    events.append(Finished("stop"))
    return Frame(events=events, dialect=NAME, whole=True)


def _name(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _vector(raw: Raw) -> str:
    """A vector's JSON, as it came. Raises BadAnswer for what is none."""
    try:
        if memoryview(raw)[0] != 0x22:
            _floats(raw)
        elif len(b64decode(_any(raw), validate=True)) % 4:
            raise BadAnswer("the backend's answer has an embedding that is no base64 of float32")
    except (*UNREADABLE, binascii.Error) as fault:
        raise BadAnswer(f"the backend's answer has an embedding that cannot be read: {str(fault)[:100]}") from None
    return bytes(raw).decode()


def _usage(wire: Any) -> Usage | None:
    """`prompt_tokens`, or `total_tokens` where a vendor states that alone; None where neither is a count."""
    members = wire if isinstance(wire, dict) else {}
    for name in ("prompt_tokens", "total_tokens"):
        count = members.get(name)
        if type(count) is int and 0 <= count <= MAX_COUNT:
            return Usage(input=count)
    return None


def encode_answer(frames: Sequence[Frame], request: Request) -> bytes:
    """One JSON answer, the vectors in the order of the inputs. Raises BadAnswer for a vector that cannot be put into the form asked for."""
    base64 = _any(request.fields.get("encoding_format", Raw(b"null"))) == "base64"
    model, usage, vectors = request.model, Usage(), list[Vector]()
    for event in [event for frame in frames for event in frame.events]:
        if isinstance(event, Vector):
            vectors.append(event)
        elif isinstance(event, Metered):
            usage = event.usage
        elif isinstance(event, Started):
            model = event.model or model
    vectors.sort(key=lambda vector: vector.index)
    data = [{"object": "embedding", "index": vector.index, "embedding": _in_form(vector.data, base64)} for vector in vectors]
    counts = {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens}
    return _encode({"object": "list", "data": data, "model": model, "usage": counts})


def _in_form(data: str, base64: bool) -> Any:
    """A vector as little-endian float32 in base64, or as numbers."""
    if (data[0] == '"') == base64:
        return Raw(data.encode())
    if not base64:
        packed = b64decode(_any(data))
        return list(struct.unpack(f"<{len(packed) // 4}f", packed))
    numbers = _floats(data)
    try:
        return b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
    except OverflowError:
        raise BadAnswer("the backend's answer has an embedding with a number beyond float32") from None


class _Nothing:
    """What a stream of embeddings has brought: there is none."""

    carried = finished = False


class StreamDecoder(StreamReader[_Nothing]):
    """A backend that streams embeddings speaks another language."""

    name = NAME

    def __init__(self) -> None:
        super().__init__(_Nothing())

    def read(self, event: Block_Event, events: list[Event]) -> int:
        raise BadAnswer("the backend streams where one answer was due")


class StreamEncoder:
    """Never used: no request of this language asks for a stream."""

    def __init__(self, request: Request, answer_id: str) -> None:
        self._request = request
        self._frames: list[Frame] = []

    def encode(self, frame: Frame) -> bytes:
        self._frames.append(frame)
        return b""

    def end(self, cost: str | None) -> bytes:
        return encode_answer(self._frames, self._request)
