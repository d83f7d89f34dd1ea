"""The documentation of the inferring routes: a twin app that is never served, whose document is merged into the real one."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from litestar import Litestar, post
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Reference, Schema
from litestar.params import JSONBody
from msgspec import Struct


class ChatMessage(Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class ChatRequest(Struct):
    """OpenAI's chat completion request; fields not listed pass to backends of the same language."""

    model: str
    messages: list[ChatMessage]
    stream: bool = False
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None


class ChatChoice(Struct):
    index: int
    message: ChatMessage
    finish_reason: str | None = None


class ChatUsage(Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatAnswer(Struct):
    """With `stream: true` the answer is text/event-stream: chat.completion.chunk events, a cost comment, then [DONE]."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage | None = None
    object: str = "chat.completion"


@post("/v1/chat/completions", status_code=200, summary="Chat completions, whole or streamed")
async def chat(data: JSONBody[ChatRequest]) -> ChatAnswer:
    raise NotImplementedError(f"documentation only: {data.model}")


class ResponsesRequest(Struct):
    """OpenAI's responses request without stored state; fields not listed pass to backends of the same language."""

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    stream: bool = False
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    include: list[str] | None = None


class ResponsesUsage(Struct):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: dict[str, Any] | None = None
    output_tokens_details: dict[str, Any] | None = None


class ResponsesAnswer(Struct):
    """With `stream: true` the answer is text/event-stream: response.created …, a cost comment, then response.completed or incomplete."""

    id: str
    created_at: int
    model: str
    status: str
    output: list[dict[str, Any]]
    usage: ResponsesUsage | None = None
    incomplete_details: dict[str, Any] | None = None
    object: str = "response"


@post("/v1/responses", status_code=200, summary="OpenAI responses without stored state, whole or streamed")
async def responses(data: JSONBody[ResponsesRequest]) -> ResponsesAnswer:
    raise NotImplementedError(f"documentation only: {data.model}")


class AnthropicMessage(Struct):
    role: str
    content: str | list[dict[str, Any]]


class MessagesRequest(Struct):
    """Anthropic's messages request; fields not listed pass to backends of the same language."""

    model: str
    messages: list[AnthropicMessage]
    max_tokens: int
    system: str | list[dict[str, Any]] | None = None
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None


class MessagesUsage(Struct):
    """The classes are disjoint: the prompt is their sum."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class MessagesAnswer(Struct):
    """With `stream: true` the answer is text/event-stream: message_start … message_delta, a cost comment, then message_stop."""

    id: str
    model: str
    content: list[dict[str, Any]]
    usage: MessagesUsage
    stop_reason: str | None = None
    stop_sequence: str | None = None
    role: str = "assistant"
    type: str = "message"


class CountRequest(Struct):
    model: str
    messages: list[AnthropicMessage]
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None


class CountAnswer(Struct):
    """An estimate, made here."""

    input_tokens: int


@post("/v1/messages", status_code=200, summary="Anthropic messages, whole or streamed")
async def messages(data: JSONBody[MessagesRequest]) -> MessagesAnswer:
    raise NotImplementedError(f"documentation only: {data.model}")


@post("/v1/messages/count_tokens", status_code=200, summary="The input tokens of a messages request, estimated")
async def count_tokens(data: JSONBody[CountRequest]) -> CountAnswer:
    raise NotImplementedError(f"documentation only: {data.model}")


class EmbeddingsRequest(Struct):
    """OpenAI's embeddings request; fields not listed pass to backends of the same language."""

    model: str
    input: str | list[Any]
    dimensions: int | None = None
    encoding_format: str | None = None
    user: str | None = None


class Embedding(Struct):
    index: int
    embedding: list[float] | str
    object: str = "embedding"


class EmbeddingsUsage(Struct):
    """What was billed; an answer wholly from the cache repeats what it cost then."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(Struct):
    data: list[Embedding]
    model: str
    usage: EmbeddingsUsage
    object: str = "list"


@post("/v1/embeddings", status_code=200, summary="Embeddings, cached per input")
async def embeddings(data: JSONBody[EmbeddingsRequest]) -> EmbeddingsAnswer:
    raise NotImplementedError(f"documentation only: {data.model}")


class CompletionsRequest(Struct):
    """OpenAI's old completions request; a chat model is asked with the prompt as the user's message."""

    model: str
    prompt: str | list[Any]
    max_tokens: int = 16
    stream: bool = False
    n: int | None = None
    best_of: int | None = None
    echo: bool = False
    suffix: str | None = None
    logprobs: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None


class CompletionsChoice(Struct):
    text: str
    index: int
    logprobs: dict[str, Any] | None = None
    finish_reason: str | None = None


class CompletionsAnswer(Struct):
    """With `stream: true` the answer is text/event-stream: text_completion events, a cost comment, then [DONE]."""

    id: str
    created: int
    model: str
    choices: list[CompletionsChoice]
    usage: ChatUsage | None = None
    object: str = "text_completion"


@post("/v1/completions", status_code=200, summary="The old completions, whole or streamed")
async def completions(data: JSONBody[CompletionsRequest]) -> CompletionsAnswer:
    raise NotImplementedError(f"documentation only: {data.model}")


TWINS: list[HTTPRouteHandler] = [chat, responses, messages, count_tokens, embeddings, completions]


def version() -> str:
    return metadata.version("tollway")


class ErrorDetail(Struct):
    """code: docs/errors.md has what each means and what to do. param: the field that is meant."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class Error(Struct):
    """Every error of every call has this shape; under /v1/messages it has Anthropic's."""

    error: ErrorDetail


@post("/error")
async def error() -> Error:
    raise NotImplementedError("documentation only")


def document(app: Litestar) -> None:
    """Add the twins' paths and schemas to the app's own document, and to each call what an error looks like."""
    twin = Litestar(route_handlers=TWINS, logging_config=None)
    real, more = app.openapi_schema, twin.openapi_schema
    if real.paths is not None and more.paths is not None:
        real.paths.update(more.paths)
    real.components.schemas.update(more.components.schemas)
    shapes = Litestar(route_handlers=[error], logging_config=None).openapi_schema.components.schemas
    real.components.schemas.update(shapes)
    told = OpenAPIResponse(
        description="What happened and what to do.",
        content={"application/json": OpenAPIMediaType(schema=Reference(ref="#/components/schemas/Error"))},
    )
    for path in (real.paths or {}).values():
        for operation in (path.get, path.post, path.put, path.patch, path.delete):
            if operation is not None and operation.responses is not None:
                operation.responses.pop("400", None)  # the framework's own, in a shape that is never sent
                for answer in operation.responses.values():
                    _any_of(answer)
                operation.responses["default"] = told


def _any_of(answer: OpenAPIResponse | Reference) -> None:
    """An answer of one of several shapes: a brief shape is the beginning of the whole one, so both may fit."""
    for media in (answer.content or {}).values() if isinstance(answer, OpenAPIResponse) else ():
        if isinstance(media.schema, Schema) and media.schema.one_of:
            media.schema.any_of, media.schema.one_of = media.schema.one_of, None
