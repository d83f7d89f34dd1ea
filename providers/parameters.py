"""What a request asked for beside its prompt, and what its backend was sent without: names, numbers and words of fixed lists alone.

`note` is taken on the request's path and holds a few bytes of it; `read` makes values of them later. No text of a client's is told: a word
that stands in no list is "other", a name that no language has is "…". Knows no vendor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from providers.dialects.anthropic_messages.fields import FIELDS as ANTHROPIC_MESSAGES
from providers.dialects.openai_chat.fields import FIELDS as OPENAI_CHAT
from providers.dialects.openai_completions.fields import FIELDS as OPENAI_COMPLETIONS
from providers.dialects.openai_embeddings.requests import FIELDS as OPENAI_EMBEDDINGS
from providers.dialects.openai_responses.fields import FIELDS as OPENAI_RESPONSES
from providers.types import Request

RAW_MOST = 256  # bytes of a value that is looked into
TOLD_MOST = 24  # parameters, and names of what was dropped
LARGEST = 2**63 - 1  # a seed may be as large
Value = bool | int | float | str
OTHER, LONG = "other", "set"

EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
FORMATS = frozenset({"text", "json_object", "json_schema"})
CHOICES = frozenset({"none", "auto", "required", "any", "tool", "function", "custom", "allowed_tools"})
WORDS: Mapping[str, frozenset[str]] = {
    "reasoning_effort": EFFORTS,
    "verbosity": frozenset({"low", "medium", "high"}),
    "service_tier": frozenset({"auto", "default", "flex", "priority", "scale", "standard_only"}),
    "speed": frozenset({"standard", "fast"}),
    "truncation": frozenset({"auto", "disabled"}),
    "encoding_format": frozenset({"float", "base64"}),
}
NUMBERS = frozenset(
    {
        "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "logprobs", "top_logprobs",
        "min_tokens", "best_of", "dimensions", "max_tool_calls", "parallel_tool_calls", "ignore_eos", "store", "echo",
    }
)  # fmt: skip
COUNTS = frozenset({"stop", "stop_sequences", "logit_bias"})
# of objects: the path of a member, and what it may be (None: a number)
MEMBERS: Mapping[str, tuple[tuple[str, frozenset[str] | None], ...]] = {
    "tool_choice": (("type", CHOICES),),
    "response_format": (("type", FORMATS),),
    "output_format": (("type", FORMATS),),
    "text": (("format.type", FORMATS), ("verbosity", WORDS["verbosity"])),
    "reasoning": (("effort", EFFORTS),),
    "output_config": (("effort", EFFORTS), ("format.type", FORMATS)),
    "thinking": (("type", frozenset({"enabled", "disabled", "adaptive"})), ("budget_tokens", None)),
}
LOOKED_AT = frozenset({*WORDS, *NUMBERS, *COUNTS, *MEMBERS})
FIELDS = frozenset({*ANTHROPIC_MESSAGES, *OPENAI_CHAT, *OPENAI_COMPLETIONS, *OPENAI_EMBEDDINGS, *OPENAI_RESPONSES, *LOOKED_AT})
# members of fields, as the languages' translations name them
PARTS = frozenset(
    {
        "name", "citations", "image_url", "detail", "thinking", "signature", "reasoning_content", "reasoning_details", "cache_control",
        "display", "effort", "summary", "strict", "format", "type", "verbosity",
    }
)  # fmt: skip


class Noted(Struct, frozen=True, gc=False):
    """raws: values that are not read so far, empty where they are long."""

    temperature: float | None
    max_tokens: int | None
    n: int
    tools: int
    needs: frozenset[str]
    dropped: tuple[str, ...]
    raws: list[tuple[str, bytes]]


def note(request: Request) -> Noted:
    """Of a request as its last backend got it. Costs half a microsecond, and a quarter more for each parameter of LOOKED_AT."""
    fields = request.fields
    raws = [(name, bytes(fields[name]) if len(fields[name]) <= RAW_MOST else b"") for name in fields if name in LOOKED_AT]
    return Noted(request.temperature, request.max_tokens, request.n, request.tools, request.needs, request.dropped, raws)


def read(noted: Noted) -> tuple[tuple[tuple[str, Value], ...], tuple[str, ...]]:
    """(parameters by name, names of what was dropped)."""
    found: list[tuple[str, Value]] = []
    for name, usual, value in (
        ("temperature", None, noted.temperature),
        ("max_tokens", None, noted.max_tokens),
        ("n", 1, noted.n),
        ("tools", 0, noted.tools),
    ):
        if value is not None and value != usual:
            found.append((name, value))
    for name, raw in noted.raws:
        found += _parameter(name, raw, "json_schema" in noted.needs)
    return tuple(found[:TOLD_MOST]), told_names(noted.dropped)


def _parameter(name: str, raw: bytes, schema: bool) -> list[tuple[str, Value]]:
    if not raw:
        return [(name, "json_schema" if schema and name in ("response_format", "output_format", "text") else LONG)]
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return [(name, OTHER)]
    if value is None:
        return []
    if name in COUNTS:
        return [(name, len(value) if isinstance(value, list | dict) else 1)]
    if name in MEMBERS and isinstance(value, dict):
        return _members(name, value)
    if name in MEMBERS:  # tool_choice may be a word
        return [(name, _word(value, MEMBERS[name][0][1]))]
    return [(name, _word(value, WORDS.get(name)))]


def _members(name: str, value: dict[str, Any]) -> list[tuple[str, Value]]:
    found: list[tuple[str, Value]] = []
    for path, words in MEMBERS[name]:
        member: Any = value
        for step in path.split("."):
            member = member.get(step) if isinstance(member, dict) else None
        if member is not None:
            told = name if path in ("type", "format.type") else f"{name}.{path}"
            found.append((told, _word(member, words)))
    return found or [(name, LONG)]


def _word(value: object, words: frozenset[str] | None) -> Value:
    """A word of the list, or a number where there is none."""
    if words is not None:
        return value if isinstance(value, str) and value in words else OTHER
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and -LARGEST <= value <= LARGEST:
        return value
    return value if isinstance(value, float) and math.isfinite(value) else OTHER


def told_names(dropped: Sequence[str]) -> tuple[str, ...]:
    """Names of fields as far as a language has them; what a client made up is "…"."""
    told = dict.fromkeys(_name(one) for one in dropped[: 2 * TOLD_MOST])
    return tuple(told)[:TOLD_MOST]


def _name(dropped: str) -> str:
    first, *rest = dropped.split(".")
    if first not in FIELDS:
        return "…"
    known: Callable[[str], bool] = PARTS.__contains__
    return dropped if all(map(known, rest)) else f"{first}.…"
