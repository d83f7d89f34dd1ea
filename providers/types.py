"""The neutral model: what every dialect decodes to and encodes from.

A request keeps its top-level fields as raw bytes (the fast lane writes them again untouched) beside the few values that routing and
money read. An answer is a sequence of events in frames; a whole answer is one frame. Knows no vendor and no wire format.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Protocol

from msgspec import Raw, Struct, field

from providers.errors import ProviderError
from providers.figures import Figures
from providers.limit_headers import Limits


class Usage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one answer in DISJOINT classes: they may be added, and no token stands in two of them.

    Vendors nest them differently (OpenAI counts cached tokens inside `prompt_tokens`, Anthropic outside): the dialect un-nests.
    """

    input: int = 0  # uncached text, and images where the vendor does not count them apart; at the full input price
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    input_audio: int = 0
    input_image: int = 0
    output: int = 0  # visible output, without reasoning
    reasoning: int = 0
    output_audio: int = 0
    output_image: int = 0
    estimated: bool = False  # counted by us, not stated by the vendor
    stated_nanousd: int | None = None  # the vendor's own figure of the cost, kept beside ours

    @property
    def prompt_tokens(self) -> int:
        return self.input + self.cache_read + self.cache_write_5m + self.cache_write_1h + self.input_audio + self.input_image

    @property
    def completion_tokens(self) -> int:
        return self.output + self.reasoning + self.output_audio + self.output_image


# ---- messages ----------------------------------------------------------------------------------------------------------------------
class Text(Struct, frozen=True, tag="text"):
    """citations: what an earlier answer's text rests on, as its vendor wrote it; another language leaves it out and names it."""

    text: str
    cache_control: Raw | None = None
    citations: Raw | None = None


class Image(Struct, frozen=True, tag="image"):
    """One of `url` (as the client gave it; never fetched by us) and `data` (base64) with its media type."""

    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    detail: str | None = None
    cache_control: Raw | None = None


class Document(Struct, frozen=True, tag="document"):
    """One of `data` (base64; plain text too, with media type text/plain), `file_id` (known to one vendor alone) and `url`."""

    data: str | None = None
    file_id: str | None = None
    media_type: str | None = None
    name: str | None = None
    cache_control: Raw | None = None
    url: str | None = None


class Audio(Struct, frozen=True, tag="audio"):
    data: str
    format: str


class Thinking(Struct, frozen=True, tag="thinking"):
    text: str
    signature: str | None = None


class RedactedThinking(Struct, frozen=True, tag="redacted_thinking"):
    data: str


class Refusal(Struct, frozen=True, tag="refusal"):
    text: str


class Opaque(Struct, frozen=True, tag="opaque"):
    """A part that only its own dialect knows, as it came; another dialect refuses it by `type`."""

    dialect: str
    type: str = field(name="kind")  # encoded under another name: "type" is the tag
    raw: Raw


Part = Text | Image | Document | Audio | Thinking | RedactedThinking | Refusal | Opaque


class Call(Struct, frozen=True):
    """A tool call in a message; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str
    cache_control: Raw | None = None


class Message(Struct, frozen=True, kw_only=True):
    """`content` is None (the client said null or nothing), a string, or typed parts: the three are kept apart.

    extra: members that only the message's own dialect knows, as they came; another dialect leaves them out and names them.
    """

    role: str  # system | developer | user | assistant | tool
    content: str | tuple[Part, ...] | None = None
    name: str | None = None
    calls: tuple[Call, ...] = ()
    call_id: str | None = None  # role tool: which call this answers
    is_error: bool | None = None  # role tool: the call failed; None = not said
    extra: Mapping[str, Raw] = {}


class Tool(Struct, frozen=True, kw_only=True):
    """A function the model may call; `parameters` is its JSON schema. extra: as in Message."""

    name: str
    description: str | None = None
    parameters: Raw | None = None
    strict: bool | None = None
    cache_control: Raw | None = None
    extra: Mapping[str, Raw] = {}


class ToolChoice(Struct, frozen=True):
    """mode: auto | none | required | tool, which `name` then names."""

    mode: str
    name: str | None = None


class OutputFormat(Struct, frozen=True, kw_only=True):
    """The answer must be JSON: by `schema`, or any object where it is None."""

    schema: Raw | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class Reasoning(Struct, frozen=True, kw_only=True):
    """How much to think before the answer: by word, by a budget, or as the model sees fit (both None). effort "none": not at all."""

    effort: str | None = None  # none | minimal | low | medium | high | xhigh | max
    budget_tokens: int | None = None
    named: str = "reasoning"  # the client's own name of the field, for what it is told


class Parameters(Struct, frozen=True, kw_only=True):
    """What a request asks for beside messages, tools and the eager fields of Request, in no language's words.

    refused, dropped: fields, as they were written, that no neutral one stands for. A language that does not know one of them refuses
    the request by its name, or leaves it out and names it.
    """

    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_calls: bool | None = None
    output_format: OutputFormat | None = None
    reasoning: Reasoning | None = None
    user: str | None = None
    refused: Mapping[str, Raw] = {}
    dropped: Mapping[str, Raw] = {}


class Request(Struct, kw_only=True):
    """One request. Eager: what routing and money read. Lazy: messages and tools, decoded on demand by the dialect.

    fields: every top-level field as the client wrote it, in order. unknown: names of fields the dialect's table does not know; they
    bind the request to backends of the same dialect.
    """

    dialect: str
    fields: Mapping[str, Raw]
    model: str
    stream: bool = False
    include_usage: bool = False  # the client asked for a usage chunk at the end of its stream
    max_tokens: int | None = None
    n: int = 1
    temperature: float | None = None
    unknown: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset()  # capabilities: tools, images, audio, documents, json_schema, logprobs, n, …
    sealed: bool = False  # earlier turns hold reasoning that only the vendors of another language can read
    asks: frozenset[str] = frozenset()  # parameters that not every model takes, set to something: temperature, stop, …
    size_bytes: int = 0  # of the body
    prompt_bytes: int = 0  # UTF-8 bytes of messages and tools without base64 payloads: upper bound of text tokens
    media: int = 0  # images, documents and audio clips in the messages
    tools: int = 0  # how many are offered
    dropped: tuple[str, ...] = ()  # fields that the chosen target cannot carry, named in x-tollway-dropped
    clamped: int | None = None  # the max_tokens that the chosen target's context left, where less was allowed
    decoded: tuple[Message, ...] | None = None  # filled by the dialect's `messages(request)`
    decoded_tools: tuple[Tool, ...] | None = None  # filled by the dialect's `tools(request)`
    parameters: Parameters | None = None  # filled by the dialect's `parameters(request)`
    inputs: tuple[Raw, ...] = ()  # what is to be embedded, one by one: JSON of a text or of token ids
    given_tokens: int = 0  # token ids that the client sent in place of text
    headers: Mapping[str, str] = {}  # of the client's headers those that its dialect carries to a backend of the same dialect


# ---- events ------------------------------------------------------------------------------------------------------------------------
class Started(Struct, frozen=True, tag="started"):
    id: str
    model: str
    created: int = 0  # Unix seconds


class TextDelta(Struct, frozen=True, tag="text"):
    text: str
    choice: int = 0
    logprobs: str | None = None  # JSON text, as the vendor wrote it
    refusal: bool = False


class ReasoningDelta(Struct, frozen=True, tag="reasoning"):
    text: str = ""
    choice: int = 0
    signature: str | None = None
    redacted: str | None = None


class ToolCallDelta(Struct, frozen=True, tag="tool_call"):
    """A piece of a call. `index` counts calls of this choice from 0; id and name come with the first piece."""

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None
    choice: int = 0


class Finished(Struct, frozen=True, tag="finished"):
    reason: str  # stop | length | tool_calls | content_filter, or the vendor's own word where none fits
    choice: int = 0
    sequence: str | None = None  # the stop sequence that ended it, where the vendor says so


class Extra(Struct, frozen=True, tag="extra"):
    """A piece of an answer that only its own dialect knows, as JSON text; another dialect leaves it out. kind: that dialect's word."""

    dialect: str
    kind: str
    raw: str
    choice: int = 0


class Vector(Struct, frozen=True, tag="vector"):
    """The embedding of input `index`: JSON of its numbers, or of base64 of little-endian float32."""

    index: int
    data: str


class Metered(Struct, frozen=True, tag="metered"):
    """Running totals so far: the last one counts, they are never summed."""

    usage: Usage


class Failed(Struct, tag="failed"):
    """The stream broke after its first event. Nothing follows."""

    error: ProviderError


Event = Started | TextDelta | ReasoningDelta | ToolCallDelta | Extra | Vector | Finished | Metered | Failed
StoredEvent = Started | TextDelta | ReasoningDelta | ToolCallDelta | Extra | Vector | Finished | Metered  # what the response cache may hold


class Frame(Struct, kw_only=True):
    """What one read brought.

    wire: in a stream, whole SSE events as the vendor sent them, without `[DONE]` and without a usage-only chunk, which stands in
    `usage_wire`; for a whole answer its JSON body. An encoder of the same `dialect` and form may send it as it is (the fast lane).
    An empty `events` with `wire` is liveness (role chunk, comment, ping), not yet an answer. limits: of an answer's first frame, what its
    headers say of the vendor's rate limits, None where they say nothing.
    """

    events: list[Event]
    wire: bytes = b""
    usage_wire: bytes = b""
    dialect: str = ""
    whole: bool = False
    limits: Limits | None = None


# ---- calling -----------------------------------------------------------------------------------------------------------------------
class Target(Struct, frozen=True, kw_only=True):
    """One backend for one attempt. max_tokens: the limit to send upstream when it is not the client's own (clamped or supplied).

    most_tokens: the model's own maximum where it is known, for a language that demands a limit and a client that gave none. clamp: the
    client allows a lower max_tokens than it asked for. priority: 1 goes before 0, which goes before -1, where a backend has a queue.
    """

    backend: str
    model: str
    max_tokens: int | None = None
    most_tokens: int | None = None
    clamp: bool = False
    priority: int = 0
    salt: str = ""  # the tenant, for prefix caches
    headers: Mapping[str, str] = {}  # of the trace, for a backend over HTTP that is told it


class Deadline(Struct, frozen=True, kw_only=True):
    """Limits of one attempt in seconds; `total_s` counts from the start of the attempt, `idle_s` is reset by every byte."""

    connect_s: float = 5.0
    first_byte_s: float = 60.0
    idle_s: float = 60.0
    total_s: float = 600.0


class Provider(Protocol):
    """Speaks to one backend."""

    dialect: str  # the wire language this backend speaks

    def call(self, request: Request, target: Target, deadline: Deadline) -> AsyncGenerator[Frame, None]:
        """Frames of one attempt. Raises ProviderError before the first frame that carries an event; a Failed event comes after it.

        Closing the iterator closes the upstream connection at once and, for a local engine, frees the sequence.
        """
        ...

    async def check(self) -> str | None:
        """Reach the backend without cost: None when it answers, else what is wrong and what to do."""
        ...

    async def figures(self, within_s: float, most_bytes: int) -> Figures:
        """What the engine behind it says of itself now. Raises NoFigures where it says nothing, else ProviderError."""
        ...

    async def close(self) -> None: ...
