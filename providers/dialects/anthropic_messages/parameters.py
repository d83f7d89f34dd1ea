"""What a request of this language asks for beside its messages and tools, to and from the neutral model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from providers.dialects.anthropic_messages.fields import FIELDS
from providers.dialects.base import DecodeError, Quirks
from providers.dialects.crossing import Reader, read_parameters, take_over
from providers.dialects.functions import BUDGETS, budget_of, read_format
from providers.dialects.quirks import unsupported
from providers.dialects.rawjson import NULL, as_fields, decode_any, decode_object, encode_json
from providers.dialects.sealed import is_sealed
from providers.types import Message, OutputFormat, Parameters, Reasoning, RedactedThinking, Request, Thinking, ToolChoice

_CHOICES = {"auto": "auto", "any": "required", "none": "none", "tool": "tool"}
_FORMS = {"adaptive", "adaptive_only", "always"}  # of Quirks.thinking: those that take an effort
_EFFORTS = {"minimal": "low"}  # a word that this language does not have
MIN_BUDGET = 1024  # thinking tokens; the vendor's own minimum, and what is left to the answer at least


def _tool_choice(raw: Raw) -> ToolChoice | None:
    choice = decode_any(raw)
    if choice and choice.get("type") not in list(_CHOICES):  # by equality: what stands there may not be a text
        raise DecodeError('`tool_choice.type` must be "auto", "any", "tool" or "none".', param="tool_choice.type")
    return ToolChoice(_CHOICES[choice["type"]], choice.get("name")) if choice else None


def _parallel(raw: Raw) -> bool | None:
    one = decode_any(raw).get("disable_parallel_tool_use")
    return None if one is None else not one


def _output_format(raw: Raw) -> OutputFormat | None:
    members = decode_object(raw)
    if members and decode_any(members.get("type", NULL)) != "json_schema":
        raise DecodeError("`output_config.format` must have the type json_schema and a `schema`.", param="output_config.format")
    return read_format(members, "output_config.format") if members else None


def _format_of(raw: Raw) -> OutputFormat | None:
    found = decode_object(raw).get("format", NULL)
    return None if found == NULL else _output_format(found)


READERS: Mapping[str, tuple[Reader, ...]] = {
    "top_p": (("top_p", decode_any),),
    "top_k": (("top_k", decode_any),),
    "stop_sequences": (("stop", lambda raw: tuple(decode_any(raw))),),
    "tool_choice": (("tool_choice", _tool_choice), ("parallel_calls", _parallel)),
    "output_config": (("output_format", _format_of),),
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
    return replace(found, reasoning=_reasoning(thinking, config.get("effort")), dropped=dropped)


def _reasoning(thinking: dict[str, Any], effort: str | None) -> Reasoning | None:
    kind = thinking.get("type")
    if kind == "disabled":
        return Reasoning(effort="none", named="thinking")
    if kind == "enabled":
        return Reasoning(budget_tokens=thinking.get("budget_tokens"), named="thinking")
    if kind is not None:
        return Reasoning(effort=effort, named="thinking")
    return None if effort is None else Reasoning(effort=effort, named="output_config.effort")


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
    config: dict[str, Any] = {}
    if parameters.output_format is not None:
        if parameters.output_format.schema is None:
            raise unsupported("JSON without a schema is not possible with this backend; send a JSON schema.", "response_format")
        config["format"] = {"type": "json_schema", "schema": parameters.output_format.schema}
    thinking = _write_reasoning(request, parameters, limit, quirks)
    if thinking is None and parameters.reasoning is not None and parameters.reasoning.effort != "none":
        dropped.append(parameters.reasoning.named)
    if thinking is not None:
        found["thinking"] = thinking
        if thinking["type"] == "adaptive" and parameters.reasoning is not None and parameters.reasoning.effort is not None:
            config["effort"] = _EFFORTS.get(parameters.reasoning.effort, parameters.reasoning.effort)
        dropped += [name for name, value in sampling.items() if value is not None and value != 1]
        sampling = {}
    found |= {**sampling, "tool_choice": choice, "output_config": config or None}
    return as_fields(found), dropped


def _write_choice(parameters: Parameters) -> dict[str, Any] | None:
    choice, parallel = parameters.tool_choice, parameters.parallel_calls
    if choice is None and parallel is not False:
        return None
    mode = "auto" if choice is None else {own: wire for wire, own in _CHOICES.items()}[choice.mode]
    written: dict[str, Any] = {"type": mode} if choice is None or choice.name is None else {"type": mode, "name": choice.name}
    return {**written, "disable_parallel_tool_use": not parallel} if parallel is not None and mode != "none" else written


def _write_reasoning(request: Request, parameters: Parameters, limit: int, quirks: Quirks) -> dict[str, Any] | None:
    """None: no thinking, be it not asked for or not possible in this turn."""
    wanted, choice = parameters.reasoning, parameters.tool_choice
    forced = choice is not None and choice.mode in ("required", "tool")  # the vendor refuses thinking beside a forced call
    if wanted is None or wanted.effort == "none" or forced or not may_think(request.decoded or ()):
        return None
    if quirks.thinking == "none":
        return None
    if "adaptive_thinking" in quirks.takes or quirks.thinking in _FORMS:
        return {"type": "adaptive"}
    return _budget(budget_of(wanted), limit)


def _budget(wanted: int, limit: int) -> dict[str, Any] | None:
    """Thinking by a budget that leaves the answer something; None where the limit has no room for it."""
    budget = min(wanted, limit - MIN_BUDGET)
    return {"type": "enabled", "budget_tokens": budget} if budget >= MIN_BUDGET else None


def own_thinking(fields: dict[str, Raw], limit: int | None, form: str) -> tuple[str, ...]:
    """The client's own `thinking` in the form that the model knows, changed in `fields`; the names of what was lost on the way."""
    asked = decode_any(fields["thinking"])
    kind = asked.get("type") if isinstance(asked, dict) else None
    config = decode_any(fields.get("output_config", NULL)) or {}
    if kind == "adaptive" and form == "budget":
        written = _budget(BUDGETS.get(config.get("effort") or "high", BUDGETS["high"]), limit or 0)
        if written is None:
            del fields["thinking"]
            return ("thinking",)
        fields["thinking"] = Raw(encode_json(written))
        return ()
    if kind == "disabled" and form == "always":
        del fields["thinking"]
        return ("thinking",)
    if kind != "enabled" or form not in ("adaptive_only", "always"):
        return ()
    fields["thinking"] = Raw(encode_json({"type": "adaptive", **{name: asked[name] for name in ("display",) if name in asked}}))
    budget = asked.get("budget_tokens")
    if "effort" not in config and type(budget) is int:
        effort = next((word for word in ("low", "medium", "high") if budget <= BUDGETS[word]), "max")
        fields["output_config"] = Raw(encode_json({**decode_object(fields.get("output_config", b"{}")), "effort": effort}))
    return ("thinking.budget_tokens",)


def may_think(messages: tuple[Message, ...]) -> bool:
    """A turn that goes on after tool calls must have begun with signed thinking, and a prefilled answer with none: else it is refused."""
    last = next((message for message in reversed(messages) if message.role == "assistant"), None)
    if last is None or (not last.calls and messages[-1] is not last):
        return True
    first = last.content[0] if isinstance(last.content, tuple) and last.content else None
    signature = first.signature if isinstance(first, Thinking) else first.data if isinstance(first, RedactedThinking) else None
    return bool(last.calls) and signature is not None and not is_sealed(signature)
