"""How many tokens a text is: a bound that costs nothing, an estimate that costs nothing, and a count where it matters.

tiktoken with its vocabularies shipped, loaded on a thread when first needed (0.3 s, 80 MB), never on the event loop. Counts of more
than a few KiB run on that one thread too, whose queue is bounded. Knows no price and no budget.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from providers.dialects import DIALECTS, DecodeError
from providers.types import Document, Message, Opaque, Refusal, Request, Text, Thinking, Tool

if TYPE_CHECKING:
    import tiktoken

INLINE_BYTES = 4 * 1024  # counted on the event loop: under 0.3 ms
SAMPLE_BYTES = 16 * 1024  # the most that a count without the thread looks at; the rest is scaled (about 1 ms)
PIECE_CHARS = 16 * 1024  # of text per call of the tokenizer, whose time grows faster than the text
MAX_WAITING = 32  # counts in the thread's queue; beyond it the bound by bytes is the answer

BYTES_PER_TOKEN = 4  # of English text and JSON; an estimate, not a bound
MESSAGE_TOKENS = 4  # a message's own marks
SCHEMAS = ("response_format", "text", "output_config", "output_format")  # fields that may hold a JSON schema, which is prompt text
PROMPT_TOKENS = 64  # a chat template's fixed text, at most
MEDIA_TOKENS = 1_000  # of an image, document or clip, expected
MEDIA_TOKENS_UPPER = 6_000  # stated maximum of one; what a vendor bills above it is flagged

T = TypeVar("T")

_DATA = Path(__file__).parent / "data" / "tiktoken"
_FILES = {  # vocabulary -> file (the SHA-1 of its address, as tiktoken's cache has it), SHA-256
    "o200k_base": ("fb374d419588a4632f3f557e76b4b70aebbca790", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"),
    "cl100k_base": ("9b5ad71b2ce5302211f9c61530b329a4922fc6a4", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"),
}


# ---- without counting -------------------------------------------------------------------------------------------------------------
def input_upper(request: Request) -> int:
    """No vendor with a byte-level tokenizer counts more input than this: every token is at least one byte."""
    return request.prompt_bytes + PROMPT_TOKENS + request.media * MEDIA_TOKENS_UPPER


def estimate_input(request: Request) -> int:
    """Expected input tokens, from sizes alone; for choosing a backend."""
    return max(1, request.prompt_bytes // BYTES_PER_TOKEN) + request.media * MEDIA_TOKENS


# ---- counting ---------------------------------------------------------------------------------------------------------------------
def count_input_now(request: Request, model: str = "") -> int:
    """Input tokens at once, as well as may be said within about a millisecond: for a request whose vendor stated none."""
    try:
        pieces, fixed = _text_of(request)
    except DecodeError:
        return estimate_input(request)
    least = sum(1 for piece in pieces if piece)  # put together, short inputs of one embedding call may look like one word
    return fixed + max(least, _count_now("".join(pieces), encoding_name(model))) + request.media * MEDIA_TOKENS


def count_output(text: list[str], pieces: int, model: str = "") -> int:
    """Output tokens of what came, at once. `pieces`: how many events brought it, each at least a token."""
    return max(pieces, _count_now("".join(text), encoding_name(model)))


async def count_long(request: Request, text: list[str], model: str = "") -> tuple[int, int] | None:
    """(input, output) tokens of an exchange whose vendor stated none, whole and off the event loop.

    None where it is short enough to be counted at once, and where the thread has too much to do: then a sample must serve.
    """
    size = sum(len(piece) for piece in text)
    if max(request.prompt_bytes, size) <= SAMPLE_BYTES or _thread.waiting >= MAX_WAITING:
        return None
    name = encoding_name(model)
    counted, output = await _thread.run(lambda: _count_both(request, text, _load(name)))
    return (estimate_input(request) if counted is None else counted + request.media * MEDIA_TOKENS), output


def count_later(request: Request, model: str, then: Callable[[int], None]) -> bool:
    """Count a prompt on the thread and say it to `then`, on the event loop; False where the thread is at work: it is not worth waiting."""
    if _thread.waiting:
        return False
    name = encoding_name(model)

    async def count() -> None:
        counted = await _thread.run(lambda: _count_request(request, _load(name)))
        if counted is not None:
            then(counted)

    task = asyncio.create_task(count(), name="token count")
    _later.add(task)
    task.add_done_callback(_later.discard)
    return True


async def count_input(request: Request, factor: float, model: str = "") -> int:
    """A tight upper bound of the input tokens: the count × the family's factor, and never above the bound by bytes."""
    upper = input_upper(request)
    name = encoding_name(model)
    encoding = _loaded.get(name)
    if encoding is not None and request.prompt_bytes <= INLINE_BYTES:
        counted = _count_request(request, encoding)
    elif _thread.waiting >= MAX_WAITING:
        return upper
    else:
        counted = await _thread.run(lambda: _count_request(request, _load(name)))
    if counted is None:
        return upper
    return min(upper, math.ceil(counted * factor) + request.media * MEDIA_TOKENS_UPPER)


def warm() -> None:
    """Load the tokenizer on its thread, so that the first count need not wait for it."""
    _thread.load("o200k_base")


def encoding_name(model: str) -> str:
    """OpenAI's older models have their own vocabulary; everything else is counted with the newer one."""
    name = model.rpartition("/")[2]
    old = name.startswith(("gpt-4", "gpt-3.5", "text-embedding")) and not name.startswith(("gpt-4o", "gpt-4.1", "gpt-4.5"))
    return "cl100k_base" if old else "o200k_base"


def _count(text: str, encoding: tiktoken.Encoding) -> int:
    if len(text) <= PIECE_CHARS:
        return len(encoding.encode_ordinary(text))
    return sum(len(encoding.encode_ordinary(text[at : at + PIECE_CHARS])) for at in range(0, len(text), PIECE_CHARS))


def _count_now(text: str, name: str) -> int:
    if not text:
        return 0
    encoding = _loaded.get(name)
    if encoding is None:
        _thread.load(name)
        return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)
    if len(text) <= SAMPLE_BYTES:
        return _count(text, encoding)
    return math.ceil(_count(text[:SAMPLE_BYTES], encoding) * len(text) / SAMPLE_BYTES)


def _count_request(request: Request, encoding: tiktoken.Encoding) -> int | None:
    """None where the messages cannot be read; the backend will say what is wrong with them."""
    try:
        pieces, fixed = _text_of(request)
    except DecodeError:
        return None
    return fixed + sum(_count(piece, encoding) for piece in pieces)


def _count_both(request: Request, text: list[str], encoding: tiktoken.Encoding) -> tuple[int | None, int]:
    return _count_request(request, encoding), _count("".join(text), encoding)


def _text_of(request: Request) -> tuple[list[str], int]:
    """The texts of a prompt and the tokens of its marks."""
    dialect = DIALECTS.get(request.dialect)
    messages = request.decoded if dialect is None else dialect.messages(request)
    tools = request.decoded_tools if dialect is None else dialect.tools(request)
    pieces: list[str] = []
    for message in messages or ():
        _message_text(message, pieces)
    for tool in tools or ():
        _tool_text(tool, pieces)
    pieces += [bytes(request.fields[name]).decode("utf-8", "replace") for name in SCHEMAS if name in request.fields]
    marks = MESSAGE_TOKENS * sum(1 for message in messages or () if message.role)  # a bare prompt has none
    return pieces, (3 + marks if marks else 0) + request.given_tokens


def _message_text(message: Message, pieces: list[str]) -> None:
    content = message.content
    if isinstance(content, str):
        pieces.append(content)
    else:
        for part in content or ():
            if isinstance(part, Text | Thinking | Refusal):
                pieces.append(part.text)
            elif isinstance(part, Opaque):
                pieces.append(bytes(part.raw).decode("utf-8", "replace"))
            elif isinstance(part, Document) and part.name is not None:
                pieces.append(part.name)
    if message.name is not None:
        pieces.append(message.name)
    for call in message.calls:
        pieces += (call.name, call.arguments)
    pieces += [bytes(raw).decode("utf-8", "replace") for raw in message.extra.values()]


def _tool_text(tool: Tool, pieces: list[str]) -> None:
    pieces += (tool.name, tool.description or "")
    if tool.parameters is not None:
        pieces.append(bytes(tool.parameters).decode("utf-8", "replace"))


# ---- the thread -------------------------------------------------------------------------------------------------------------------
_loaded: dict[str, tiktoken.Encoding] = {}
_loading = threading.Lock()


def _load(name: str) -> tiktoken.Encoding:
    """The tokenizer from the shipped file. On the thread only. Raises RuntimeError where the file is not the one that was shipped."""
    with _loading:
        encoding = _loaded.get(name)
        if encoding is None:
            file, digest = _FILES[name]
            path = _DATA / file
            if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                raise RuntimeError(f"{path} is damaged: its SHA-256 is not {digest}; install tollway again")
            os.environ["TIKTOKEN_CACHE_DIR"] = str(_DATA)  # read once, at loading; without it tiktoken would use the network
            import tiktoken

            encoding = _loaded[name] = tiktoken.get_encoding(name)
        return encoding


class _Thread:
    """One thread for loading and long counts; made when first needed, so that a fork before it is harmless."""

    def __init__(self) -> None:
        self.waiting = 0
        self._executor: ThreadPoolExecutor | None = None
        self._asked: set[str] = set()

    def _pool(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "tokens")
        return self._executor

    def load(self, name: str) -> None:
        if name not in self._asked:
            self._asked.add(name)
            self._pool().submit(_load, name)

    async def run(self, count: Callable[[], T]) -> T:
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool(), count)
        finally:
            self.waiting -= 1


_thread = _Thread()
_later: set[asyncio.Task[None]] = set()  # counts that nobody waits for
