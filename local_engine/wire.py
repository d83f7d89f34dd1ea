"""The messages of the engine's socket and their framing: u32 length (big endian), then msgpack. Standard library and msgspec only.

Both sides open with Hello / Welcome, which carry the protocol version. After that the client sends Submit, Embed, Cancel, StatsQuery and
Ping; the engine answers with Batch (one a step), Vectors, Refused, Stats, Pong and, when its state changes, another Welcome.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from local_engine.errors import BadRequest, EngineError

VERSION = 3
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_STOP_STRINGS = 16
MAX_LOGPROBS = 20
MAX_CHOICES = 128
MAX_GRAMMAR_BYTES = 256 * 1024
LENGTH = struct.Struct(">I")


class Grammar(Struct, frozen=True):
    """What the answer must be. kind: json_schema, regex or lark, whose text `source` is. param: the client's field, for errors."""

    kind: str
    source: str
    param: str = "response_format"


class Params(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to continue one prompt. temperature 0 = the likeliest token; top_k 0, top_p 1 = no cut; max_tokens None = up to the context.

    logprobs: tell each token's log probability and those of so many likeliest. n: answers, each a choice of its own. clamp: a max_tokens
    that does not fit the context is lowered, not refused. repetition_penalty counts the prompt too, the others the answer alone.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    logprobs: int | None = None
    n: int = 1
    clamp: bool = False
    grammar: Grammar | None = None


class Hello(Struct, frozen=True, tag="hello"):
    version: int = VERSION


class Submit(Struct, frozen=True, tag="submit", kw_only=True, omit_defaults=True):
    """One of `text` (tokenised as it stands, no special tokens added) and `ids`. `id` is the client's, unique on its connection.

    breaks: offsets of the text, in characters, rising, that no special token may span: what looks like one there is text.
    """

    id: int
    text: str | None = None
    breaks: list[int] = []
    ids: list[int] | None = None
    params: Params = Params()
    salt: str = ""  # the tenant: prefixes are never shared across salts, and tenants take turns
    priority: int = 0  # lower goes first: 0 for someone who waits; above it offline work, which gives way while it runs


class Embed(Struct, frozen=True, tag="embed"):
    """Texts, or token ids without those that the model puts around a text. `id` is the client's, as of Submit."""

    id: int
    inputs: list[str | list[int]]


class Cancel(Struct, frozen=True, tag="cancel"):
    id: int


class StatsQuery(Struct, frozen=True, tag="stats?"):
    pass


class Ping(Struct, frozen=True, tag="ping"):
    n: int = 0


class Welcome(Struct, frozen=True, tag="welcome", kw_only=True):
    version: int = VERSION
    state: str = "loading"  # loading | no model | ready | failed | stopping
    detail: str = ""
    model: str = ""
    context_tokens: int = 0


class Logged(Struct, frozen=True, array_like=True):
    """One token of an answer with its log probability, and those of the likeliest in its place, by the model alone. Tokens are bytes."""

    token: bytes
    logprob: float
    top: list[tuple[bytes, float]] = []


class Piece(Struct, frozen=True, array_like=True):
    """What one step brought for one choice of a request. Counts are totals so far, `output_tokens` of this choice; `reason` (stop |
    length) only on the choice's last piece."""

    id: int
    text: str
    ids: list[int]
    prompt_tokens: int
    output_tokens: int
    reason: str | None = None
    choice: int = 0
    logged: list[Logged] = []


class Batch(Struct, frozen=True, tag="batch"):
    pieces: list[Piece]


class Vectors(Struct, frozen=True, tag="vectors"):
    """The whole answer to Embed: `size` little-endian f32 for each input, in order; tokens of all inputs."""

    id: int
    size: int
    tokens: int
    data: bytes


class Refused(Struct, frozen=True, tag="refused", kw_only=True, omit_defaults=True):
    """`kind` is one of errors.KINDS. The request is over."""

    id: int
    kind: str
    message: str
    retry_after_s: float | None = None
    param: str | None = None


class Times(Struct, frozen=True, array_like=True):
    """A histogram: bounds in seconds, counts between them (one more than bounds, for what is beyond), the sum in seconds."""

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    sum: float = 0.0


class Stats(Struct, frozen=True, tag="stats", kw_only=True):
    state: str = "loading"
    waiting: int = 0
    running: int = 0
    outstanding_prefill_tokens: int = 0
    kv_bytes_used: int = 0
    kv_bytes_cap: int = 0
    kv_blocks_used: int = 0
    kv_blocks_free: int = 0  # those of known tokens included: they are reused when they are needed
    kv_blocks_shared: int = 0  # of those in use, held by more than one sequence
    steps: int = 0
    step_ms: float = 0.0  # the last one
    prompt_tokens: int = 0  # totals since start
    output_tokens: int = 0
    prefix_hit_tokens: int = 0  # of the prompts, found computed already
    preemptions: int = 0
    batch: int = 0  # sequences in the last step
    first_token: Times = Times()  # from the queue to a request's first token
    per_token: Times = Times()  # of ended requests, after the first
    step: Times = Times()
    device_memory_used: int | None = None  # bytes on its GPU, by all processes
    device_memory: int | None = None
    device_busy: float | None = None  # 0 to 1
    connections: int = 0
    dropped_connections: int = 0
    heartbeat_age_s: float = 0.0  # since the step loop last turned; grows while a step hangs


class Pong(Struct, frozen=True, tag="pong"):
    n: int = 0


ToEngine = Hello | Submit | Embed | Cancel | StatsQuery | Ping
ToClient = Welcome | Batch | Vectors | Refused | Stats | Pong

_encoder = msgspec.msgpack.Encoder()
decode_to_engine = msgspec.msgpack.Decoder(ToEngine).decode
decode_to_client = msgspec.msgpack.Decoder(ToClient).decode


def frame(message: ToEngine | ToClient) -> bytes:
    """Length and body of one message. Raises BadRequest for one over the limit: what a client asks is all that can grow so long."""
    body = _encoder.encode(message)
    if len(body) > MAX_MESSAGE_BYTES:
        raise BadRequest(f"a message of {len(body)} bytes is over the limit of {MAX_MESSAGE_BYTES}", param="messages")
    return LENGTH.pack(len(body)) + body


def refusal(key: int, error: EngineError) -> Refused:
    """The end of request `key`, as a message."""
    return Refused(id=key, kind=error.kind, message=error.message, retry_after_s=error.retry_after_s, param=error.param)


class FrameReader:
    """Cuts a byte stream into message bodies. Raises EngineError for a length over the limit: the peer speaks something else."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= LENGTH.size:
            (size,) = LENGTH.unpack_from(buffer, at)
            if size > MAX_MESSAGE_BYTES:
                raise EngineError(f"a message of {size} bytes is over the limit of {MAX_MESSAGE_BYTES}")
            if len(buffer) - at - LENGTH.size < size:
                break
            yield bytes(buffer[at + LENGTH.size : at + LENGTH.size + size])
            at += LENGTH.size + size
        del buffer[:at]
