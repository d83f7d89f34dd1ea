"""Provider over the local engine, and the only module that imports local_engine: of it the client, its messages and its errors.

Renders the chat template, maps request fields to the engine's parameters, gives neutral events. Knows no tensor and no tokenizer.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from local_engine.client import EngineClient
from local_engine.errors import BadRequest, ContextExceeded, EngineError
from local_engine.errors import Unavailable as EngineUnavailable
from local_engine.errors import Unreachable as EngineUnreachable
from local_engine.wire import Params, Piece
from providers.chat_template import ChatTemplate, Defaults, TemplateError
from providers.dialects import DIALECTS, DecodeError, Quirks, to_neutral
from providers.dialects.base import UNREADABLE
from providers.dialects.openai_chat.requests import foreign_fields
from providers.errors import ContextTooLong, Cut, ProviderError, Rejected, TimedOut, Unavailable, Unreachable, Unsupported
from providers.types import Deadline, Event, Failed, Finished, Frame, Message, Metered, Request, Started, Target, TextDelta, Usage

LOADING_RETRY_S = 2.0
CHECK_S = 1.0
HUNG_S = 30.0  # a step loop that has not turned for so long hangs

FOREIGN = Quirks(takes=frozenset({"top_k"}))  # requests of other languages are read in this one's words
# Request fields the engine honours, with the parameter and the JSON type of each.
HONOURED: dict[str, tuple[str, Any]] = {
    "temperature": ("temperature", float),
    "top_p": ("top_p", float),
    "top_k": ("top_k", int),
    "min_p": ("min_p", float),
    "min_tokens": ("min_tokens", int),
    "ignore_eos": ("ignore_eos", bool),
    "seed": ("seed", int),
    "stop": ("stop", str | tuple[str, ...]),
    "stop_sequences": ("stop", tuple[str, ...]),
    "presence_penalty": ("presence_penalty", float),
    "frequency_penalty": ("frequency_penalty", float),
    "logit_bias": ("logit_bias", dict[int, float]),
}
# Fields that do not change what this backend generates.
WITHOUT_EFFECT = frozenset(
    {
        "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "user", "metadata",
        "safety_identifier", "prompt_cache_key", "parallel_tool_calls",
    }
)  # fmt: skip
# Fields it cannot carry but that an answer is right without: named in the response header.
DROPPED = frozenset({"store", "service_tier", "verbosity", "prompt_cache_retention"})
# Values that ask for nothing, of fields that are refused otherwise.
ASKS_NOTHING: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "store": (False,),
    "service_tier": ("auto", "default"),
}


class LocalProvider:
    """One engine process. Belongs to one event loop; connects when first called."""

    dialect = "local"

    def __init__(self, socket_path: Path, model_dir: Path, model: str) -> None:
        self._client = EngineClient(str(socket_path))
        self._model_dir = model_dir
        self._model = model
        self._template: ChatTemplate | None = None
        self._template_of = -1  # modification time of the folder it was read from
        self._numbers = itertools.count(1)

    async def call(self, request: Request, target: Target, deadline: Deadline) -> AsyncGenerator[Frame, None]:
        """Frames as the engine steps; usage is exact and told with every frame. Closing the iterator frees the sequence."""
        template = self._loaded()
        params = read_params(request, target, template.defaults)
        prompt = template.render(_messages(request))
        started = asyncio.get_running_loop().time()
        began = False
        try:
            async with aclosing(self._client.submit(prompt, params, target.salt)) as pieces:
                while True:
                    piece = await self._next(pieces, deadline, started, began)
                    yield Frame(events=self._events(piece, began))
                    began = True
                    if piece.reason is not None:
                        return
        except (EngineError, TimedOut) as error:
            failure = error if isinstance(error, ProviderError) else translated(error)
            if not began:
                raise failure from None
            yield Frame(events=[Failed(failure)])

    async def check(self) -> str | None:
        """None when the engine is ready; else its state, or why it cannot be reached."""
        try:
            async with asyncio.timeout(CHECK_S):
                state = await self._client.state()
                if state.state != "ready":
                    return state.detail or state.state
                age_s = (await self._client.stats()).heartbeat_age_s
        except TimeoutError:
            return f"the engine did not answer within {CHECK_S:g} s"
        except EngineError as error:
            return error.message
        return f"the engine's step has hung for {age_s:.0f} s" if age_s > HUNG_S else None

    async def close(self) -> None:
        await self._client.close()

    async def _next(self, pieces: AsyncGenerator[Piece, None], deadline: Deadline, started: float, began: bool) -> Piece:
        """The next piece, or TimedOut by whichever limit passes first."""
        now = asyncio.get_running_loop().time()
        idle_s = deadline.idle_s if began else deadline.first_byte_s
        try:
            async with asyncio.timeout_at(min(now + idle_s, started + deadline.total_s)):
                return await anext(pieces)
        except TimeoutError:
            raise TimedOut("the local engine took too long: " + ("it stopped in its answer" if began else "no first token")) from None

    def _events(self, piece: Piece, began: bool) -> list[Event]:
        events: list[Event] = []
        if not began:
            events.append(Started(id=f"local-{time.time_ns():x}-{next(self._numbers)}", model=self._model, created=int(time.time())))
        if piece.text:
            events.append(TextDelta(piece.text))
        if piece.reason is not None:
            events.append(Finished(piece.reason))
        events.append(Metered(Usage(input=piece.prompt_tokens, output=piece.output_tokens)))
        return events

    def _loaded(self) -> ChatTemplate:
        """The folder's template, read again when the folder has changed. Unavailable while there is none."""
        try:
            changed = self._model_dir.stat().st_mtime_ns
            if self._template is None or changed != self._template_of:
                self._template = ChatTemplate(self._model_dir)
                self._template_of = changed
        except FileNotFoundError:
            message = f"there is no model in {self._model_dir} yet: run `tollway models get {self._model}`"
            raise Unavailable(message, sent=False, retry_after_s=LOADING_RETRY_S) from None
        except TemplateError as error:
            raise Unavailable(str(error), sent=False, retry_after_s=LOADING_RETRY_S) from None
        return self._template


def read_params(request: Request, target: Target, defaults: Defaults) -> Params:
    """The engine's parameters; sets `request.dropped`. Unsupported names a field that it cannot honour, Rejected one that is wrong."""
    found: dict[str, Any] = {name: value for name, value in msgspec.structs.asdict(defaults).items() if value is not None}
    fields, dropped = request.fields, list[str]()
    if request.dialect != "openai_chat" and request.dialect in DIALECTS:
        to_neutral(request)
        fields, left = foreign_fields(request, FOREIGN)
        dropped += left
    for name, raw in fields.items():
        if name in WITHOUT_EFFECT or bytes(raw) == b"null":
            continue
        if name in HONOURED:
            parameter, kind = HONOURED[name]
            found[parameter] = _value(name, raw, kind)
        elif _value(name, raw, Any) in ASKS_NOTHING.get(name, ()):
            continue
        elif name in DROPPED:
            dropped.append(name)
        else:
            raise Unsupported(f"the local backend does not support `{name}`: leave it out or use another route", sent=False, param=name)
    if isinstance(found.get("stop"), str):
        found["stop"] = (found["stop"],)
    request.dropped = tuple(dropped)
    limit = target.max_tokens if target.max_tokens is not None else request.max_tokens
    return Params(max_tokens=limit, **found)


def _messages(request: Request) -> tuple[Message, ...]:
    if request.decoded is not None:
        return request.decoded
    try:
        return DIALECTS[request.dialect].messages(request)
    except DecodeError as error:
        raise Rejected(error.message, sent=False, param=error.param, code=error.code) from None


def _value(name: str, raw: Raw, kind: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except UNREADABLE as error:
        raise Rejected(f"`{name}` is wrong: {error}", sent=False, param=name, code="invalid_type") from None


def translated(error: EngineError) -> ProviderError:
    """The engine's error as a provider's: what was refused costs nothing, what was cut may have cost tokens."""
    if isinstance(error, EngineUnreachable):
        return Unreachable(f"the local engine cannot be reached: {error.message}", retry_after_s=error.retry_after_s)
    if isinstance(error, EngineUnavailable):
        return Unavailable(error.message, answered=True, retry_after_s=error.retry_after_s)
    if isinstance(error, ContextExceeded):
        return ContextTooLong(error.message, answered=True, param=error.param)
    if isinstance(error, BadRequest):
        return Rejected(error.message, answered=True, param=error.param)
    return Cut(f"the local engine broke off: {error.message}", retry_after_s=error.retry_after_s)
