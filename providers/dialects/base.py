"""What a dialect is: one codec for a wire language, used by a surface to serve it and by a provider to speak it.

Knows no particular language; `providers.dialects.DIALECTS` has them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec
from msgspec import Struct

from providers.errors import ProviderError
from providers.types import Frame, Message, Parameters, Request, Target, Tool

# what decoding foreign bytes may raise: no JSON, the wrong shape, no UTF-8, nested beyond reading
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class DecodeError(Exception):
    """The client's body cannot be taken: 400. `message` says what is wrong and what to do; `param` names the field."""

    def __init__(self, message: str, *, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Around the decoding of a field's insides: whatever in there cannot be read is told as the client's error."""
    try:
        yield
    except UNREADABLE as fault:
        raise DecodeError(f"`{name}` cannot be read: {str(fault)[:160]}.", param=name, code="invalid_json") from None


class Quirks(Struct, frozen=True, kw_only=True):
    """What a backend of this dialect takes, where servers that speak it differ. Data of the vendor's row and the model's entry.

    usage_option: knows `stream_options.include_usage`. store: knows `store` (set to false where the client did not say).
    token_limit: the one name of the limit it takes (`max_tokens` or `max_completion_tokens`); empty = as the client wrote it.
    names: other fields that it knows under another name, such as seed -> random_seed. roles: roles it does not know -> what to write
    instead, such as developer -> system. system_first: all system messages must be one, and lead. call_ids: `nine` = ids of tool calls
    have nine letters and digits. thoughts: what becomes of thinking in messages of earlier turns, which not all servers know: empty = it
    stays `reasoning_content`, `reasoning` = it goes by that name, `none` = it is left out and named.

    drop: fields it cannot carry, left out and named in `request.dropped`. refuse: fields that refuse the request for this backend. A
    field with its default value is neither named nor refused.

    efforts: the words of reasoning effort that it knows, from the least up; empty = all. thinking: how it thinks, where a language has
    several forms: empty = not known, `none`, `budget`, `adaptive` (or by a budget), `adaptive_only`, `always` (adaptive, never off).

    takes: what it takes beside the core of its language, asked for a request that came in another one: `cache_control`, `top_k`,
    `reasoning_effort`, `reasoning_details` (thinking of earlier turns), `reasoning_content` (its text alone), `adaptive_thinking` (by
    effort, not by budget), `unsigned_thinking`.
    """

    usage_option: bool = True
    store: bool = False
    token_limit: str = ""
    names: Mapping[str, str] = {}
    roles: Mapping[str, str] = {}
    system_first: bool = False
    call_ids: str = ""
    thoughts: str = ""
    drop: frozenset[str] = frozenset()
    refuse: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()
    efforts: tuple[str, ...] = ()
    thinking: str = ""


PLAIN = Quirks()


class StreamDecoder(Protocol):
    """Upstream bytes of one stream -> frames."""

    def feed(self, data: bytes) -> Frame:
        """Raises ProviderError for an error before the first event that carries something; after it a Failed event ends the frame."""
        ...

    @property
    def done(self) -> bool:
        """The end marker or an error was seen: nothing more is read."""
        ...

    def close(self) -> Frame:
        """The stream is over: what was left. Raises Cut where it ended before its end."""
        ...


class StreamEncoder(Protocol):
    """Frames -> the bytes of one stream to a client."""

    def encode(self, frame: Frame) -> bytes: ...

    def end(self, cost: str | None) -> bytes:
        """The closing bytes; `cost` in USD goes into a comment, None = no comment."""
        ...


class Dialect(Struct, frozen=True, kw_only=True):
    """One wire language in both directions: what each of its modules does.

    decode_request raises DecodeError. encode_request raises Unsupported and sets `request.dropped`. http_error never raises.
    stream_encoder takes the request and the id to use where the backend gave none. keep_alive: what a silent stream is kept open with.
    headers: the client's headers, in lower case, that go on to a backend of the same language. decode_count: the body of a request to
    count its tokens, where the language has one. read_messages, read_tools and read_parameters are for `messages`, `tools` and
    `parameters` alone.
    """

    name: str
    decode_request: Callable[[bytes], Request]
    read_messages: Callable[[Request], tuple[Message, ...]]
    read_tools: Callable[[Request], tuple[Tool, ...]]
    read_parameters: Callable[[Request], Parameters]
    encode_request: Callable[[Request, Target, Quirks], bytes]
    stream_decoder: Callable[[], StreamDecoder]
    decode_answer: Callable[[bytes], Frame]
    encode_answer: Callable[[Sequence[Frame], Request], bytes]
    stream_encoder: Callable[[Request, str], StreamEncoder]
    http_error: Callable[[int, Mapping[str, str], bytes], ProviderError]
    error_body: Callable[[int, str, str, str | None, str | None], bytes]
    stream_error: Callable[[str, str, str | None, str | None], bytes]
    keep_alive: bytes = b": keep-alive\n\n"
    headers: tuple[str, ...] = ()
    decode_count: Callable[[bytes], Request] | None = None

    def messages(self, request: Request) -> tuple[Message, ...]:
        """In the neutral model, the system prompt first; decoded once. Raises DecodeError naming the message that is wrong."""
        if request.decoded is None:
            with reading("messages"):
                request.decoded = self.read_messages(request)
        return request.decoded

    def tools(self, request: Request) -> tuple[Tool, ...]:
        """The client's own functions, decoded once. Tools of the vendor bind a request to its language (`unknown`) and are not here."""
        if request.decoded_tools is None:
            with reading("tools"):
                request.decoded_tools = self.read_tools(request)
        return request.decoded_tools

    def parameters(self, request: Request) -> Parameters:
        """What else is asked for, decoded once. Raises DecodeError naming the field that is wrong."""
        if request.parameters is None:
            with reading("parameters"):
                request.parameters = self.read_parameters(request)
        return request.parameters
