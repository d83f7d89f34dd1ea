"""What a request of this language asks for beside its messages and tools, to and from the neutral model."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from providers.dialects.base import DecodeError, Quirks
from providers.dialects.crossing import take_over, without_counterpart
from providers.dialects.openai_chat.fields import FIELDS
from providers.types import OutputFormat, Parameters, Reasoning, Request, ToolChoice

_any = msgspec.json.Decoder().decode
_object = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode
_NULL = Raw(b"null")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")
EFFORT_BUDGETS = (("low", 2048), ("medium", 8192))  # thinking tokens up to which an effort stands for a budget; beyond them "high"


def decode_parameters(request: Request) -> Parameters:
    """Raises DecodeError naming the field that is wrong."""
    fields = request.fields
    values: dict[str, Any] = {
        name: _any(fields[name]) for name in ("top_p", "stop", "parallel_tool_calls", "reasoning_effort") if name in fields
    }
    stop, effort = values.get("stop"), values.get("reasoning_effort")
    users = (_any(fields.get(name, _NULL)) for name in ("user", "safety_identifier"))
    refused, dropped = without_counterpart(request, FIELDS)
    return Parameters(
        top_p=values.get("top_p"),
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        tool_choice=_tool_choice(fields.get("tool_choice", _NULL)),
        parallel_calls=values.get("parallel_tool_calls"),
        output_format=_output_format(fields.get("response_format", _NULL)),
        reasoning=None if effort is None else Reasoning(effort=effort, named="reasoning_effort"),
        user=next((user for user in users if user is not None), None),
        refused=refused,
        dropped=dropped,
    )


def _tool_choice(raw: Raw) -> ToolChoice | None:
    value = _any(raw)
    if value is None:
        return None
    if value in ("auto", "none", "required"):
        return ToolChoice(value)
    function = value.get("function") if isinstance(value, dict) else None
    if isinstance(function, dict) and value.get("type") == "function" and isinstance(function.get("name"), str):
        return ToolChoice("tool", function["name"])
    message = '`tool_choice` must be "none", "auto", "required" or name a function; other forms pass only to backends of this language.'
    raise DecodeError(message, param="tool_choice")


def _output_format(raw: Raw) -> OutputFormat | None:
    if raw == _NULL:
        return None
    members = _object(raw)
    kind = _any(members.get("type", _NULL))
    if kind == "json_object":
        return OutputFormat()
    if kind != "json_schema":
        return None
    inner = members.get("json_schema", _NULL)
    schema = _object(inner).get("schema") if memoryview(inner)[0] == 0x7B else None
    if schema is None:
        raise DecodeError("`response_format.json_schema.schema` is missing: send a JSON schema.", param="response_format")
    rest = _any(inner)
    return OutputFormat(schema=schema.copy(), name=rest.get("name"), description=rest.get("description"), strict=rest.get("strict"))


def encode_parameters(request: Request, parameters: Parameters, quirks: Quirks) -> tuple[dict[str, Raw], list[str]]:
    """(fields, names of what was dropped) for a request of another language. Raises Unsupported."""
    known = FIELDS.keys() if request.dialect.startswith("openai_") else frozenset()  # elsewhere an equal name has another meaning
    dropped = take_over(parameters, known)
    found: dict[str, Any] = {name: raw for name, raw in {**parameters.refused, **parameters.dropped}.items() if name in known}
    found |= {"max_tokens": request.max_tokens, "temperature": request.temperature, "top_p": parameters.top_p, "user": parameters.user}
    found["n"] = request.n if request.n != 1 else None
    found["stream"] = request.stream or None
    found["stop"] = list(parameters.stop) or None
    choice = parameters.tool_choice
    if choice is not None:
        found["tool_choice"] = choice.mode if choice.name is None else {"type": "function", "function": {"name": choice.name}}
    if request.decoded_tools:
        found["parallel_tool_calls"] = parameters.parallel_calls
    if parameters.output_format is not None:
        found["response_format"] = _write_format(parameters.output_format)
    if parameters.top_k is not None:
        if "top_k" in quirks.takes:
            found["top_k"] = parameters.top_k
        else:
            dropped.append("top_k")
    reasoning = parameters.reasoning
    if reasoning is not None and reasoning.effort != "none":
        if "reasoning_effort" in quirks.takes:
            found["reasoning_effort"] = _effort(reasoning, quirks.efforts)
        else:
            dropped.append(reasoning.named)
    return {name: value if isinstance(value, Raw) else Raw(_encode(value)) for name, value in found.items() if value is not None}, dropped


def _write_format(wanted: OutputFormat) -> dict[str, Any]:
    if wanted.schema is None:
        return {"type": "json_object"}
    inner = {"name": wanted.name or "answer", "description": wanted.description, "schema": wanted.schema, "strict": wanted.strict}
    return {"type": "json_schema", "json_schema": {name: value for name, value in inner.items() if value is not None}}


def _effort(reasoning: Reasoning, known: tuple[str, ...]) -> str:
    """The word for it; of the words that the target knows the nearest below, else the least."""
    effort = reasoning.effort
    if effort is None:
        budget = reasoning.budget_tokens
        effort = "medium" if budget is None else next((word for word, most in EFFORT_BUDGETS if budget <= most), "high")
    effort = "xhigh" if effort == "max" else effort
    if not known or effort in known or effort not in EFFORTS:
        return effort
    below = [word for word in known if word != "none" and EFFORTS.index(word) <= EFFORTS.index(effort)]
    return below[-1] if below else next(word for word in known if word != "none")
