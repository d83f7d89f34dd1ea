"""What a request of this language asks for beside its items and tools, to and from the neutral model."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw
from msgspec.structs import replace

from providers.dialects.base import Quirks
from providers.dialects.crossing import Reader, read_parameters, take_over
from providers.dialects.functions import effort_of, read_choice, read_format, write_format
from providers.dialects.openai_responses.fields import ENCRYPTED, FIELDS, LOGPROBS
from providers.dialects.quirks import unsupported
from providers.dialects.rawjson import NULL, as_fields, decode_any, decode_object, written
from providers.types import OutputFormat, Parameters, Reasoning, Request

_TRUE = Raw(b"true")


def _output_format(raw: Raw) -> OutputFormat | None:
    wanted = decode_object(raw).get("format", NULL)
    members = {} if wanted == NULL else decode_object(wanted)
    kind = decode_any(members.get("type", NULL))
    if kind != "json_schema":
        return OutputFormat() if kind == "json_object" else None
    return read_format(members, "text.format")


def _reasoning(raw: Raw) -> Reasoning | None:
    effort = decode_any(raw).get("effort")
    return None if effort is None else Reasoning(effort=effort, named="reasoning.effort")


READERS: Mapping[str, tuple[Reader, ...]] = {
    "top_p": (("top_p", decode_any),),
    "tool_choice": (("tool_choice", lambda raw: read_choice(raw, lambda choice: choice.get("name"))),),
    "parallel_tool_calls": (("parallel_calls", decode_any),),
    "text": (("output_format", _output_format),),
    "reasoning": (("reasoning", _reasoning),),
    "user": (("user", decode_any),),
    "safety_identifier": (("user", decode_any),),
}


def decode_parameters(request: Request) -> Parameters:
    """Raises DecodeError naming the field that is wrong."""
    found, fields = read_parameters(request, FIELDS, READERS), request.fields
    refused, dropped = dict(found.refused), dict(found.dropped)
    if "top_logprobs" in refused or LOGPROBS in (decode_any(fields.get("include", NULL)) or ()):
        refused["logprobs"] = _TRUE
    verbosity = decode_object(fields.get("text", NULL)).get("verbosity", NULL) if fields.get("text", NULL) != NULL else NULL
    if verbosity != NULL:
        dropped["verbosity"] = verbosity
    met = {"effort"} if found.reasoning is None else {"effort", "summary"}  # where there is an effort, reasoning is shown
    dropped |= {f"reasoning.{name}": NULL for name in written(decode_any(fields.get("reasoning", NULL)) or {}) if name not in met}
    return replace(found, refused=refused, dropped=dropped)


def encode_parameters(request: Request, parameters: Parameters, quirks: Quirks) -> tuple[dict[str, Raw], list[str]]:
    """(fields, names of what was dropped) for a request of another language. Raises Unsupported."""
    known = {*FIELDS, "logprobs", "verbosity"} if request.dialect.startswith("openai_") else frozenset[str]()
    dropped = take_over(parameters, known)
    kept = {name: raw for name, raw in {**parameters.refused, **parameters.dropped}.items() if name in known}
    for name, given in (("n", request.n != 1), ("stop", parameters.stop)):
        if given:
            raise unsupported(f"`{name}` has no counterpart in the language of this backend; leave it out or use another route.", name)
    choice, reasoning, takes = parameters.tool_choice, parameters.reasoning, quirks.takes
    asked = None if reasoning is None or reasoning.effort == "none" else {"effort": effort_of(reasoning, quirks.efforts)}
    include = [ENCRYPTED] * ("reasoning_effort" in takes) + [LOGPROBS] * (kept.pop("logprobs", NULL) == _TRUE)
    text = written({"format": write_format(parameters.output_format), "verbosity": kept.pop("verbosity", None)})
    found = kept | {
        "max_output_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": parameters.top_p,
        "user": parameters.user,
        "stream": request.stream or None,
        "tool_choice": None if choice is None else choice.mode if choice.name is None else {"type": "function", "name": choice.name},
        "parallel_tool_calls": parameters.parallel_calls if request.decoded_tools else None,
        "text": text or None,
        "include": include or None,
    }
    named = "reasoning" if reasoning is None else reasoning.named
    for take, name, told, value in (("top_k", "top_k", "top_k", parameters.top_k), ("reasoning_effort", "reasoning", named, asked)):
        if take in takes:
            found[name] = value
        elif value is not None:
            dropped.append(told)
    return as_fields(found), dropped
