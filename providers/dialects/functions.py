"""Tools, their calls, output formats and reasoning as every language has them: the same few members under the language's own names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import Raw

from providers.dialects.base import DecodeError
from providers.dialects.rawjson import NULL, copied, decode_any, decode_objects, kept, object_or_none, optional, string, written
from providers.errors import Rejected
from providers.types import Call, OutputFormat, Reasoning, Tool, ToolChoice

# Thinking tokens that an effort stands for. The other way, a budget is the first effort of WORDS whose tokens hold it, else "high".
BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768, "max": 32768}
WORDS = ("low", "medium")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")


def own_tools(raw: Raw, kind: str) -> list[tuple[str, dict[str, Raw]]]:
    """(path, members) of the client's own functions in a list of tools: those of this type or of none. The others are a vendor's."""
    found = enumerate([] if raw == NULL else decode_objects(raw))
    return [(f"tools[{n}]", members) for n, members in found if decode_any(members.get("type", NULL)) in (None, kind)]


def read_tool(members: Mapping[str, Raw], path: str, schema: str, cache: Raw | None, known: Collection[str] | None = None) -> Tool:
    """A function. schema: the member with its JSON schema. known: members that do not go into `extra`, None: there is none.

    Raises DecodeError naming what is wrong.
    """
    rest = dict(members)
    strict = decode_any(rest.get("strict", NULL))
    return Tool(
        name=string(rest.get("name", NULL), f"{path}.name"),
        description=optional(rest, "description", path),
        parameters=copied(rest, schema),
        strict=strict if isinstance(strict, bool) else None,
        cache_control=cache,
        extra={} if known is None else kept(rest, {"name", "description", "strict", schema, *known}),
    )


def write_tool(tool: Tool, schema: str) -> dict[str, Any]:
    return written({"name": tool.name, "description": tool.description, schema: tool.parameters, "strict": tool.strict})


def arguments_of(call: Call, path: str) -> Raw:
    """A call's arguments, for a language that has an object there. Raises Rejected for what is none."""
    found = object_or_none(call.arguments)
    if found is None:
        where = f"{path}.function.arguments"
        message = f"`{where}` is not a JSON object; send what the model wrote, whole."
        raise Rejected(message, sent=False, param=where, code="invalid_json")
    return found


def read_format(members: Mapping[str, Raw], path: str) -> OutputFormat:
    """A JSON schema with its name. Raises DecodeError where there is none."""
    schema = copied(members, "schema")
    if schema is None:
        raise DecodeError(f"`{path}.schema` is missing: send a JSON schema.", param=path)
    rest = {name: decode_any(members.get(name, NULL)) for name in ("name", "description", "strict")}
    return OutputFormat(schema=schema, **rest)


def write_format(wanted: OutputFormat | None, inside: str = "") -> dict[str, Any] | None:
    """The output format, as OpenAI's languages write it; `inside`: the member that holds the schema and its name. None says nothing."""
    if wanted is None or wanted.schema is None:
        return None if wanted is None else {"type": "json_object"}
    inner = {"name": wanted.name or "answer", "description": wanted.description, "schema": wanted.schema, "strict": wanted.strict}
    return {"type": "json_schema", **({inside: written(inner)} if inside else written(inner))}


def read_choice(raw: Raw, name_of: Callable[[dict[str, Any]], Any]) -> ToolChoice:
    """A word, or the function that must be called. name_of: where an object has the function's name. Raises DecodeError."""
    value = decode_any(raw)
    if value in ("auto", "none", "required", "any"):  # the last is one vendor's word
        return ToolChoice("required" if value == "any" else value)
    name = name_of(value) if isinstance(value, dict) and value.get("type", "function") == "function" else None
    if isinstance(name, str):
        return ToolChoice("tool", name)
    message = '`tool_choice` must be "none", "auto", "required" or name a function; other forms pass only to backends of this language.'
    raise DecodeError(message, param="tool_choice")


def effort_of(reasoning: Reasoning, known: tuple[str, ...] = ()) -> str:
    """In OpenAI's words; of those that the target knows the nearest below, else the least."""
    effort, budget = reasoning.effort, reasoning.budget_tokens
    if effort is None:
        effort = "medium" if budget is None else next((word for word in WORDS if budget <= BUDGETS[word]), "high")
    effort = "xhigh" if effort == "max" else effort
    if not known or effort in known or effort not in EFFORTS:
        return effort
    below = [word for word in known if word != "none" and EFFORTS.index(word) <= EFFORTS.index(effort)]
    return below[-1] if below else next(word for word in known if word != "none")


def budget_of(reasoning: Reasoning) -> int:
    """In thinking tokens."""
    return reasoning.budget_tokens or BUDGETS.get(reasoning.effort or "medium", BUDGETS["medium"])
