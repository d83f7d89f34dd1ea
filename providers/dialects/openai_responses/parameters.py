"""What a request of this language asks for beside its items and tools, to and from the neutral model."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw
from msgspec.structs import replace

from providers.dialects.base import Quirks
from providers.dialects.crossing import Reader, read_parameters, take_over, take_where_known
from providers.dialects.functions import effort_of, read_choice, write_format
from providers.dialects.openai_fields import READERS as COMMON_READERS
from providers.dialects.openai_fields import read_output_format
from providers.dialects.openai_responses.fields import ENCRYPTED, FIELDS, LOGPROBS
from providers.dialects.quirks import unsupported
from providers.dialects.rawjson import NULL, as_fields, decode_any, decode_object, written
from providers.types import Parameters, Reasoning, Request

_TRUE = Raw(b"true")


def _reasoning(raw: Raw) -> Reasoning | None:
    effort = decode_any(raw).get("effort")
    return None if effort is None else Reasoning(effort=effort, named="reasoning.effort")


READERS: Mapping[str, tuple[Reader, ...]] = {
    **COMMON_READERS,
    "tool_choice": (("tool_choice", lambda raw: read_choice(raw, lambda choice: choice.get("name"))),),
    "text": (("output_format", lambda raw: read_output_format(decode_object(raw).get("format", NULL), "text.format")),),
    "reasoning": (("reasoning", _reasoning),),
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
    choice, reasoning = parameters.tool_choice, parameters.reasoning
    asked = None if reasoning is None or reasoning.effort == "none" else {"effort": effort_of(reasoning, quirks.efforts)}
    include = [ENCRYPTED] * ("reasoning_effort" in quirks.takes) + [LOGPROBS] * (kept.pop("logprobs", NULL) == _TRUE)
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
    dropped += take_where_known(
        found, quirks, {"top_k": ("top_k", "top_k", parameters.top_k), "reasoning_effort": ("reasoning", named, asked)}
    )
    return as_fields(found), dropped
