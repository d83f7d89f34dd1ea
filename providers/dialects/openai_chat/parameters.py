"""What a request of this language asks for beside its messages and tools, to and from the neutral model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from providers.dialects.base import Quirks
from providers.dialects.crossing import Reader, read_parameters, take_over, take_where_known
from providers.dialects.functions import effort_of, read_choice, write_format
from providers.dialects.openai_chat.fields import FIELDS
from providers.dialects.openai_fields import READERS as COMMON_READERS
from providers.dialects.openai_fields import read_output_format
from providers.dialects.rawjson import as_fields, decode_any
from providers.types import Parameters, Reasoning, Request, ToolChoice


def _function(choice: dict[str, Any]) -> Any:
    function = choice.get("function")
    return function.get("name") if isinstance(function, dict) else None


def _stop(raw: Raw) -> tuple[str, ...]:
    value = decode_any(raw)
    return (value,) if isinstance(value, str) else tuple(value)


READERS: Mapping[str, tuple[Reader, ...]] = {
    **COMMON_READERS,
    "stop": (("stop", _stop),),
    "tool_choice": (("tool_choice", lambda raw: read_choice(raw, _function)),),
    "response_format": (("output_format", lambda raw: read_output_format(raw, "response_format.json_schema", "json_schema")),),
    "reasoning_effort": (("reasoning", lambda raw: Reasoning(effort=decode_any(raw), named="reasoning_effort")),),
}


def decode_parameters(request: Request) -> Parameters:
    """Raises DecodeError naming the field that is wrong."""
    return read_parameters(request, FIELDS, READERS)


def encode_parameters(request: Request, parameters: Parameters, quirks: Quirks) -> tuple[dict[str, Raw], list[str]]:
    """(fields, names of what was dropped) for a request of another language. Raises Unsupported."""
    kin = request.dialect.startswith("openai_")  # elsewhere an equal name has another meaning
    known = FIELDS.keys() - {"store"} if kin else frozenset()
    dropped = take_over(parameters, known)
    found: dict[str, Any] = {name: raw for name, raw in {**parameters.refused, **parameters.dropped}.items() if name in known}
    choice, reasoning = parameters.tool_choice, parameters.reasoning
    found |= {
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": parameters.top_p,
        "user": parameters.user,
        "n": request.n if request.n != 1 else None,
        "stream": request.stream or None,
        "stop": list(parameters.stop) or None,
        "tool_choice": None if choice is None else _write_choice(choice),
        "parallel_tool_calls": parameters.parallel_calls if request.decoded_tools else None,
        "response_format": write_format(parameters.output_format, "json_schema"),
    }
    wanted: dict[str, tuple[str, str, Any]] = {"top_k": ("top_k", "top_k", parameters.top_k)}
    if reasoning is not None and reasoning.effort != "none":
        wanted["reasoning_effort"] = ("reasoning_effort", reasoning.named, effort_of(reasoning, quirks.efforts))
    dropped += take_where_known(found, quirks, wanted)
    return as_fields(found), dropped


def _write_choice(choice: ToolChoice) -> Any:
    return choice.mode if choice.name is None else {"type": "function", "function": {"name": choice.name}}
