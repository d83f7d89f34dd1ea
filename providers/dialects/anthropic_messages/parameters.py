"""What a request of this language asks for beside its messages and tools, to and from the neutral model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from providers.dialects.anthropic_messages.fields import FIELDS
from providers.dialects.base import DecodeError, Quirks
from providers.dialects.crossing import Reader, read_parameters, take_over
from providers.dialects.functions import read_format
from providers.dialects.quirks import unsupported
from providers.dialects.rawjson import NULL, as_fields, decode_any, decode_object, written
from providers.dialects.thinking_forms import read_thinking, write_thinking
from providers.types import OutputFormat, Parameters, Request, ToolChoice

_CHOICES = {"auto": "auto", "any": "required", "none": "none", "tool": "tool"}


def _tool_choice(raw: Raw) -> ToolChoice | None:
    choice = decode_any(raw)
    if choice and choice.get("type") not in list(_CHOICES):  # by equality: what stands there may not be a text
        raise DecodeError('`tool_choice.type` must be "auto", "any", "tool" or "none".', param="tool_choice.type")
    return ToolChoice(_CHOICES[choice["type"]], choice.get("name")) if choice else None


def _parallel(raw: Raw) -> bool | None:
    one = decode_any(raw).get("disable_parallel_tool_use")
    return None if one is None else not one


def _output_format(raw: Raw) -> OutputFormat | None:
    members = {} if raw == NULL else decode_object(raw)
    if members and decode_any(members.get("type", NULL)) != "json_schema":
        raise DecodeError("`output_config.format` must have the type json_schema and a `schema`.", param="output_config.format")
    return read_format(members, "output_config.format") if members else None


READERS: Mapping[str, tuple[Reader, ...]] = {
    "top_p": (("top_p", decode_any),),
    "top_k": (("top_k", decode_any),),
    "stop_sequences": (("stop", lambda raw: tuple(decode_any(raw))),),
    "tool_choice": (("tool_choice", _tool_choice), ("parallel_calls", _parallel)),
    "output_config": (("output_format", lambda raw: _output_format(decode_object(raw).get("format", NULL))),),
    "output_format": (("output_format", _output_format),),
    "metadata": (("user", lambda raw: decode_any(raw).get("user_id")),),
}


def decode_parameters(request: Request) -> Parameters:
    """Raises DecodeError naming the field that is wrong."""
    found = read_parameters(request, FIELDS, READERS)
    thinking, config, metadata = (decode_any(request.fields.get(name, NULL)) or {} for name in ("thinking", "output_config", "metadata"))
    dropped = dict(found.dropped)
    if set(metadata) - {"user_id"}:
        dropped["metadata"] = request.fields["metadata"]
    if thinking.get("display") is not None:
        dropped["thinking.display"] = request.fields["thinking"]
    return replace(found, reasoning=read_thinking(thinking, config.get("effort")), dropped=dropped)


def encode_parameters(request: Request, parameters: Parameters, limit: int, quirks: Quirks) -> tuple[dict[str, Raw], list[str]]:
    """(fields, names of what was dropped) for a request of another language. limit: max_tokens, which is due here. Raises Unsupported."""
    dropped = take_over(parameters)
    if request.n != 1:
        raise unsupported("`n` above 1 has no counterpart in the language of this backend; send the request n times.", "n")
    if request.temperature is not None and request.temperature > 1:
        raise unsupported("`temperature` above 1 is not possible with this backend.", "temperature")
    found: dict[str, Any] = {"max_tokens": limit, "stream": request.stream or None, "stop_sequences": list(parameters.stop) or None}
    found["metadata"] = None if parameters.user is None else {"user_id": parameters.user}
    sampling = {"temperature": request.temperature, "top_p": parameters.top_p, "top_k": parameters.top_k}
    choice = _write_choice(parameters) if request.decoded_tools else None
    wanted = parameters.output_format
    if wanted is not None and wanted.schema is None:
        raise unsupported("JSON without a schema is not possible with this backend; send a JSON schema.", "response_format")
    output_format = None if wanted is None else {"type": "json_schema", "schema": wanted.schema}
    thinking, effort, lost = write_thinking(request, parameters, limit, quirks)
    dropped += lost
    if thinking is not None:  # which takes no other sampling than its own
        dropped += [name for name, value in sampling.items() if value is not None and value != 1]
        sampling = {}
    config = written({"format": output_format, "effort": effort})
    found |= {"thinking": thinking, **sampling, "tool_choice": choice, "output_config": config or None}
    return as_fields(found), dropped


def _write_choice(parameters: Parameters) -> dict[str, Any] | None:
    choice, parallel = parameters.tool_choice, parameters.parallel_calls
    if choice is None and parallel is not False:
        return None
    mode = "auto" if choice is None else {own: wire for wire, own in _CHOICES.items()}[choice.mode]
    written: dict[str, Any] = {"type": mode} if choice is None or choice.name is None else {"type": mode, "name": choice.name}
    return {**written, "disable_parallel_tool_use": not parallel} if parallel is not None and mode != "none" else written
