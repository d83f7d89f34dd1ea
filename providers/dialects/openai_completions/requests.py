"""Requests of this language: from the client, and to a backend of the same language. To any other a lone prompt goes as a message.

Several prompts, token ids and a limit of nothing bind a request to backends of this language (`unknown`). Knows no vendor by name.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from providers.dialects import look
from providers.dialects.base import PLAIN, DecodeError, Quirks
from providers.dialects.openai_completions.fields import FIELDS
from providers.dialects.prompts import as_messages, prompts_of, read_prompts, texts
from providers.dialects.quirks import ask_for_usage, for_target, unsupported
from providers.dialects.rawjson import NULL
from providers.types import Message, Request, Target

NAME = "openai_completions"
DEFAULT_MAX_TOKENS = 16  # the API's own


def decode_request(body: bytes) -> Request:
    """The body of one request. Raises DecodeError, which names the field and says what to send."""
    request, values, seen = look.begin(NAME, body, FIELDS)
    prompts, request.given_tokens = read_prompts(request.fields.get("prompt", NULL), "prompt")
    seen.prompt_bytes = sum(len(memoryview(raw)) for raw in prompts)
    seen.text(request.fields, "suffix")
    request.n = _choices(values) * len(prompts)
    limit = values.get("max_tokens")
    request.max_tokens = DEFAULT_MAX_TOKENS if limit is None else limit
    options = values.get("stream_options")
    request.include_usage = options is not None and options.include_usage is True
    if len(texts(prompts)) != 1 or len(prompts) != 1:
        seen.unknown.append("prompt")
    if limit == 0:
        seen.unknown.append("max_tokens")
    return seen.into(request)


def _choices(values: dict[str, Any]) -> int:
    """Continuations of one prompt that are made, whether or not all of them are shown. Raises DecodeError."""
    n, best_of = values.get("n") or 1, values.get("best_of") or 1
    if best_of > 1 and best_of < n:
        raise DecodeError("`best_of` must be at least `n`: of so many the best are shown.", param="best_of")
    if best_of > n and values.get("stream"):
        raise DecodeError("`best_of` above `n` cannot be streamed: which are the best is known at the end.", param="best_of")
    return max(n, best_of)


def read_messages(request: Request) -> tuple[Message, ...]:
    """A lone prompt as the user's message; several, or token ids, for counting alone: they go to no other language."""
    prompts = prompts_of(request, "prompt")
    found = as_messages(prompts)
    return (Message(role="user", content=found[0].content),) if len(found) == len(prompts) == 1 else found


def encode_request(request: Request, target: Target, quirks: Quirks = PLAIN) -> bytes:
    """The body for one target of this language. Sets `request.dropped`. Raises Unsupported."""
    if request.dialect != NAME:
        raise unsupported("this model continues bare prompts and holds no conversation; use another route", "messages")
    fields, request.dropped = dict(request.fields), ()
    limit = request.max_tokens if target.max_tokens is None else target.max_tokens
    if limit is not None:  # the default too: servers differ in theirs
        fields["max_tokens"] = Raw(str(limit).encode())
    ask_for_usage(fields, request, quirks)
    return for_target(fields, request, target, quirks, FIELDS)
