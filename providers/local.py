"""Provider over the local engine, and the only module that imports local_engine: of it the client, its messages and its errors.

Renders the chat template, maps request fields to the engine's parameters, gives neutral events. Knows no tensor and no tokenizer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from base64 import b64encode
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
from local_engine.wire import Grammar, Logged, Params, Piece, Vectors
from local_engine.wire import Times as WireTimes
from providers.chat_template import ChatTemplate, Defaults, Prompt, TemplateError
from providers.dialects import DIALECTS, DecodeError, Quirks, to_neutral
from providers.dialects.base import UNREADABLE
from providers.dialects.openai_chat.requests import foreign_fields
from providers.dialects.prompts import prompts_of, texts
from providers.errors import ContextTooLong, Cut, ProviderError, Rejected, TimedOut, Unavailable, Unreachable, Unsupported
from providers.figures import Figures, Times
from providers.tool_calls import CallReader, guided
from providers.tool_calls import grammar as tool_grammar
from providers.types import (
    Deadline,
    Event,
    Failed,
    Finished,
    Frame,
    Message,
    Metered,
    OutputFormat,
    Parameters,
    Request,
    Started,
    Target,
    TextDelta,
    Tool,
    ToolChoice,
    Usage,
    Vector,
)

LOADING_RETRY_S = 2.0
CHECK_S = 1.0
EMBEDDINGS = "openai_embeddings"
INPUTS_AT_ONCE = 128  # of one call to the engine
BARE = "openai_completions"  # the language whose prompts are continued as they stand
NUMBERS = itertools.count(1)
HUNG_S = 30.0  # a step loop that has not turned for so long hangs

FOREIGN = Quirks(takes=frozenset({"top_k"}))  # requests of other languages are read in this one's words
LEAST_LOGPROB = -9999.0  # JSON has no infinity
# Request fields the engine honours, with the parameter and the JSON type of each.
HONOURED: dict[str, tuple[str, Any]] = {
    "n": ("n", int),
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
    "repetition_penalty": ("repetition_penalty", float),
    "logit_bias": ("logit_bias", dict[int, float]),
    "logprobs": ("logprobs", bool),
    "top_logprobs": ("top_logprobs", int),
    "structured_outputs": ("structured", dict[str, Any]),
}
# Fields that do not change what this backend generates.
WITHOUT_EFFECT = frozenset(
    {
        "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "user", "metadata",
        "safety_identifier", "prompt_cache_key", "prompt", "echo",
        "tools", "tool_choice", "parallel_tool_calls", "response_format",  # read in neutral words
    }
)  # fmt: skip
# Fields it cannot carry but that an answer is right without: named in the response header.
DROPPED = frozenset({"store", "service_tier", "verbosity", "prompt_cache_retention"})
# Values that ask for nothing, of fields that are refused otherwise.
ASKS_NOTHING: dict[str, tuple[Any, ...]] = {
    "functions": ([],),
    "function_call": ("none", "auto"),
    "best_of": (1,),
    "suffix": ("",),
    "modalities": (["text"],),
    "store": (False,),
    "service_tier": ("auto", "default"),
}


class LocalProvider:
    """One engine process. Belongs to one event loop; connects when first called."""

    dialect = "local"

    def __init__(self, socket_path: Path, model_dir: Path, model: str, *, embeds: bool = False) -> None:
        self._client = EngineClient(str(socket_path))
        self._embeds = embeds
        self._model_dir = model_dir
        self._model = model
        self._template: ChatTemplate | None = None
        self._template_of = -1  # modification time of the folder it was read from

    async def call(self, request: Request, target: Target, deadline: Deadline) -> AsyncGenerator[Frame, None]:
        """Frames as the engine steps; usage is exact and told with every frame. Closing the iterator frees the sequence."""
        if self._embeds or request.dialect == EMBEDDINGS:
            yield await self._embed(request, deadline)
            return
        template = self._loaded()
        params = read_params(request, target, template.defaults)
        tools = tools_of(request)
        prompt = Prompt(_bare(request)) if request.dialect == BARE else template.render(_messages(request), tools)
        answer = Answer(self._model, params.n, bool(tools))
        started = asyncio.get_running_loop().time()
        began = False
        try:
            async with aclosing(self._client.submit(prompt.text, params, target.salt, -target.priority, prompt.breaks)) as pieces:
                while answer.open:
                    piece = await self._next(pieces, deadline, started, began)
                    if not began:
                        await self._tell_clamped(request, params, piece)
                    yield Frame(events=answer.events(piece))
                    began = True
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

    async def figures(self, within_s: float, most_bytes: int) -> Figures:
        """As Provider.figures, over the engine's socket."""
        try:
            async with asyncio.timeout(within_s):
                stats = await self._client.stats()
        except TimeoutError:
            raise TimedOut(f"the engine did not answer within {within_s:g} s") from None
        except EngineError as error:
            raise translated(error) from None
        return Figures(
            waiting=stats.waiting,
            running=stats.running,
            prefill_tokens=stats.outstanding_prefill_tokens,
            kv_share=stats.kv_bytes_used / stats.kv_bytes_cap if stats.kv_bytes_cap else None,
            kv_bytes_used=stats.kv_bytes_used,
            kv_bytes_cap=stats.kv_bytes_cap,
            kv_blocks_used=stats.kv_blocks_used,
            kv_blocks_free=stats.kv_blocks_free,
            kv_blocks_shared=stats.kv_blocks_shared,
            prompt_tokens=stats.prompt_tokens,
            prefix_hit_tokens=stats.prefix_hit_tokens,
            output_tokens=stats.output_tokens,
            preemptions=stats.preemptions,
            steps=stats.steps,
            batch=stats.batch,
            device_memory_used_bytes=stats.device_memory_used,
            device_memory_bytes=stats.device_memory,
            device_busy_share=stats.device_busy,
            time_to_first_token=_times(stats.first_token),
            time_per_output_token=_times(stats.per_token),
            step=_times(stats.step),
        )

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

    async def _embed(self, request: Request, deadline: Deadline) -> Frame:
        """Vectors of all inputs, as base64 of float32, in one frame."""
        if not self._embeds:
            raise Unsupported("this model generates text and makes no embeddings: use another route", sent=False, param="model")
        if request.dialect != EMBEDDINGS:
            raise Unsupported("this model makes embeddings and generates no text: use another route", sent=False, param="model")
        inputs = [msgspec.json.decode(raw, type=str | list[int]) for raw in request.inputs]
        events: list[Event] = [Started(id=f"local-{time.time_ns():x}-{next(NUMBERS)}", model=self._model, created=int(time.time()))]
        tokens = 0
        try:
            async with asyncio.timeout(deadline.total_s):
                for first in range(0, len(inputs), INPUTS_AT_ONCE):
                    found = await self._client.embed(inputs[first : first + INPUTS_AT_ONCE])
                    tokens += found.tokens
                    events += _vectors(request, found, first)
        except TimeoutError:
            raise TimedOut(f"the local engine took longer than {deadline.total_s:g} s for {len(inputs)} embeddings") from None
        except EngineError as error:
            raise translated(error) from None
        return Frame(events=[*events, Metered(Usage(input=tokens)), Finished("stop")])

    async def _tell_clamped(self, request: Request, params: Params, piece: Piece) -> None:
        if params.clamp and params.max_tokens is not None and request.max_tokens is not None:
            left = (await self._client.state()).context_tokens - piece.prompt_tokens
            request.clamped = left if left < params.max_tokens else None

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


def _times(told: WireTimes) -> Times | None:
    """None of an engine that keeps none."""
    return Times(told.bounds, told.counts, told.sum) if told.bounds else None


def _vectors(request: Request, found: Vectors, first: int) -> list[Event]:
    """Rejected when the request wants another size than the model's."""
    wanted = _value("dimensions", request.fields.get("dimensions", Raw(b"null")), int | None)
    if wanted not in (None, found.size):
        raise Rejected(f"`dimensions` can only be {found.size} with this model", answered=True, param="dimensions")
    width = found.size * 4
    count = len(found.data) // width
    return [Vector(first + i, f'"{b64encode(found.data[i * width : (i + 1) * width]).decode()}"') for i in range(count)]


class Answer:
    """Pieces of one request's choices as neutral events. open: choices that go on."""

    def __init__(self, model: str, choices: int, tools: bool) -> None:
        self._model = model
        self._readers = {choice: CallReader(choice) for choice in range(choices)} if tools else {}
        self._outputs: dict[int, int] = {}  # tokens, by choice
        self.open = choices

    def events(self, piece: Piece) -> list[Event]:
        """Usage is of the whole request: its prompt counts once."""
        events: list[Event] = []
        if not self._outputs:
            events.append(Started(id=f"local-{time.time_ns():x}-{next(NUMBERS)}", model=self._model, created=int(time.time())))
        reader = self._readers.get(piece.choice)
        reason = piece.reason
        if reader is None:
            if piece.text or piece.logged:
                events.append(TextDelta(piece.text, piece.choice, _logprobs(piece.logged)))
        else:
            found = reader.push(piece.text)
            found += reader.finish() if reason is not None else []
            events += _with_logprobs(found, piece)
            if reason == "stop" and reader.calls and not reader.cut:
                reason = "tool_calls"
        if reason is not None:
            self.open -= 1
            events.append(Finished(reason, piece.choice))
        self._outputs[piece.choice] = piece.output_tokens
        events.append(Metered(Usage(input=piece.prompt_tokens, output=sum(self._outputs.values()))))
        return events


def _with_logprobs(events: list[Event], piece: Piece) -> list[Event]:
    """The tokens of what is text; those of a call have no place in any language."""
    first = events[0] if events else TextDelta("", piece.choice)
    if not piece.logged or not isinstance(first, TextDelta):
        return events
    return [TextDelta(first.text, piece.choice, _logprobs(piece.logged)), *events[1:]]


def _logprobs(logged: list[Logged]) -> str | None:
    """In the words of chat completions."""
    if not logged:
        return None
    content = [{**_token(one.token, one.logprob), "top_logprobs": [_token(token, logprob) for token, logprob in one.top]} for one in logged]
    return msgspec.json.encode({"content": content, "refusal": None}).decode()


def _token(token: bytes, logprob: float) -> dict[str, Any]:
    return {"token": token.decode(errors="replace"), "logprob": max(logprob, LEAST_LOGPROB), "bytes": list(token)}


def read_params(request: Request, target: Target, defaults: Defaults) -> Params:
    """The engine's parameters; sets `request.dropped`. Unsupported names a field that it cannot honour, Rejected one that is wrong."""
    found: dict[str, Any] = {name: value for name, value in msgspec.structs.asdict(defaults).items() if value is not None}
    to_neutral(request)
    fields, dropped = request.fields, list[str]()
    if request.dialect != "openai_chat" and request.dialect in DIALECTS:
        fields, left = foreign_fields(request, FOREIGN)
        fields |= {name: request.fields[name] for name in request.unknown if name in request.fields}
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
    found["logprobs"] = _log(found)
    structured = found.pop("structured", None)
    grammar = _structured(structured) if structured else _grammar(request)
    limit = target.max_tokens if target.max_tokens is not None else request.max_tokens
    clamp = target.clamp or request.max_tokens is None  # a limit that only the gateway set is no wish of the client's
    return Params(max_tokens=limit, clamp=clamp and limit is not None, grammar=grammar, **found)


def _log(found: dict[str, Any]) -> int | None:
    """How many of the likeliest tokens are told beside each token; None: nothing is."""
    top, wanted = found.pop("top_logprobs", None), found.pop("logprobs", None)
    if wanted is False and top:
        raise Rejected("`top_logprobs` wants `logprobs` to be true", sent=False, param="top_logprobs")
    return (top or 0) if wanted or top else None


def tools_of(request: Request) -> tuple[Tool, ...]:
    """Those that the model is told of."""
    parameters = request.parameters or Parameters()
    choice = parameters.tool_choice or ToolChoice("auto")
    tools = request.decoded_tools or ()
    if choice.mode == "tool":
        tools = tuple(tool for tool in tools if tool.name == choice.name)
        if not tools:
            raise Rejected(f"`tool_choice` names {choice.name!r}, which is not among the tools", sent=False, param="tool_choice")
    if choice.mode == "required" and not tools:
        raise Rejected("`tool_choice` requires a call, but there are no tools", sent=False, param="tool_choice")
    return () if choice.mode == "none" else tools


def _grammar(request: Request) -> Grammar | None:
    """What tools and output format demand of the answer."""
    parameters, tools = request.parameters or Parameters(), tools_of(request)
    form = parameters.output_format
    schema = None if form is None else _schema(form)
    if tools:
        mode = parameters.tool_choice.mode if parameters.tool_choice is not None else "auto"
        several = parameters.parallel_calls is not False and mode != "tool"
        return Grammar("lark", tool_grammar(tools, forced=mode in ("required", "tool"), several=several, otherwise=schema), "tools")
    return None if schema is None else Grammar("json_schema", msgspec.json.encode(schema).decode())


def _schema(form: OutputFormat) -> dict[str, Any]:
    if form.schema is None:
        return guided({"type": "object"}, strict=True)
    schema = msgspec.json.decode(form.schema)
    if not isinstance(schema, dict):
        raise Rejected("`response_format`: the schema must be an object", sent=False, param="response_format")
    return guided(schema, form.strict is True)


def _structured(wanted: dict[str, Any]) -> Grammar:
    """vLLM's field for what the other languages have no word for: {"regex": …}, {"choice": […]}, {"json": …} or {"grammar": … in lark}."""
    (kind, value), *others = wanted.items()
    if not others and kind in ("regex", "grammar") and isinstance(value, str):
        return Grammar("regex" if kind == "regex" else "lark", value, "structured_outputs")
    if not others and kind == "choice" and isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return Grammar("lark", "start: " + " | ".join(json.dumps(one) for one in value), "structured_outputs")
    if not others and kind == "json" and isinstance(value, dict):
        return Grammar("json_schema", msgspec.json.encode(guided(value, strict=True)).decode(), "structured_outputs")
    message = "`structured_outputs` takes one of `regex`, `choice` (texts), `json` (a schema) and `grammar` (lark)"
    raise Rejected(message, sent=False, param="structured_outputs")


def _bare(request: Request) -> str:
    """The prompt of a request that wants it continued as it stands, without a template around it."""
    return texts(prompts_of(request, "prompt"))[0]


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
