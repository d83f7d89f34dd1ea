"""What a request of this language asks for beside its messages and tools, to and from the neutral model."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from providers.dialects.anthropic_messages.fields import FIELDS
from providers.dialects.base import DecodeError, Quirks
from providers.dialects.crossing import take_over, unsupported, without_counterpart
from providers.types import Message, OutputFormat, Parameters, Reasoning, RedactedThinking, Request, Thinking, ToolChoice

_any = msgspec.json.Decoder().decode
_object = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder().encode
_NULL = Raw(b"null")
_CHOICES = {"auto": "auto", "any": "required", "none": "none", "tool": "tool"}
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768, "max": 32768}
_FORMS = {"adaptive", "adaptive_only", "always"}  # of Quirks.thinking: those that take an effort
_EFFORTS = {"minimal": "low"}  # a word that this language does not have
_OBJECTS = ("tool_choice", "thinking", "output_config", "metadata")
MIN_BUDGET = 1024  # thinking tokens; the vendor's own minimum, and what is left to the answer at least


def decode_parameters(request: Request) -> Parameters:
    """Raises DecodeError naming the field that is wrong."""
    value = {name: _any(request.fields[name]) or {} for name in _OBJECTS if name in request.fields}
    choice, metadata = value.get("tool_choice", {}), dict(value.get("metadata", {}))
    refused, dropped = without_counterpart(request, FIELDS)
    user = metadata.pop("user_id", None)
    if metadata:
        dropped["metadata"] = request.fields["metadata"]
    if value.get("thinking", {}).get("display") is not None:
        dropped["thinking.display"] = request.fields["thinking"]
    if choice and choice.get("type") not in list(_CHOICES):  # by equality: what stands there may not be a text
        raise DecodeError('`tool_choice.type` must be "auto", "any", "tool" or "none".', param="tool_choice.type")
    config = _object(request.fields.get("output_config", Raw(b"{}"))) if value.get("output_config") else {}
    return Parameters(
        top_p=_any(request.fields.get("top_p", _NULL)),
        top_k=_any(request.fields.get("top_k", _NULL)),
        stop=tuple(_any(request.fields.get("stop_sequences", _NULL)) or ()),
        tool_choice=ToolChoice(_CHOICES[choice["type"]], choice.get("name")) if choice else None,
        parallel_calls=None if "disable_parallel_tool_use" not in choice else not choice["disable_parallel_tool_use"],
        output_format=_output_format(config.get("format", request.fields.get("output_format", _NULL))),
        reasoning=_reasoning(value.get("thinking", {}), value.get("output_config", {}).get("effort")),
        user=user,
        refused=refused,
        dropped=dropped,
    )


def _output_format(raw: Raw) -> OutputFormat | None:
    members = {} if raw == _NULL else _object(raw)
    schema = members.get("schema")
    if not members:
        return None
    if schema is None or _any(members.get("type", _NULL)) != "json_schema":
        raise DecodeError("`output_config.format` must have the type json_schema and a `schema`.", param="output_config.format")
    return OutputFormat(schema=schema.copy())


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
    return {name: value if isinstance(value, Raw) else Raw(_encode(value)) for name, value in found.items() if value is not None}, dropped


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
    if wanted is None or wanted.effort == "none" or forced or not _may_think(request.decoded or ()):
        return None
    if quirks.thinking == "none":
        return None
    if "adaptive_thinking" in quirks.takes or quirks.thinking in _FORMS:
        return {"type": "adaptive"}
    return _budget(wanted.budget_tokens or _BUDGETS.get(wanted.effort or "medium", _BUDGETS["medium"]), limit)


def _budget(wanted: int, limit: int) -> dict[str, Any] | None:
    """Thinking by a budget that leaves the answer something; None where the limit has no room for it."""
    budget = min(wanted, limit - MIN_BUDGET)
    return {"type": "enabled", "budget_tokens": budget} if budget >= MIN_BUDGET else None


def own_thinking(fields: dict[str, Raw], limit: int | None, form: str) -> tuple[str, ...]:
    """The client's own `thinking` in the form that the model knows, changed in `fields`; the names of what was lost on the way."""
    asked = _any(fields["thinking"])
    kind = asked.get("type") if isinstance(asked, dict) else None
    if kind == "adaptive" and form == "budget":
        effort = _any(fields.get("output_config", _NULL)) or {}
        written = _budget(_BUDGETS.get(effort.get("effort") or "high", _BUDGETS["high"]), limit or 0)
        if written is None:
            del fields["thinking"]
            return ("thinking",)
        fields["thinking"] = Raw(_encode(written))
        return ()
    if kind == "disabled" and form == "always":
        del fields["thinking"]
        return ("thinking",)
    if kind != "enabled" or form not in ("adaptive_only", "always"):
        return ()
    fields["thinking"] = Raw(_encode({"type": "adaptive", **{name: asked[name] for name in ("display",) if name in asked}}))
    config = _any(fields.get("output_config", _NULL)) or {}
    budget = asked.get("budget_tokens")
    if "effort" not in config and type(budget) is int:
        effort = next((word for word in ("low", "medium", "high") if budget <= _BUDGETS[word]), "max")
        fields["output_config"] = Raw(_encode({**_object(fields.get("output_config", Raw(b"{}"))), "effort": effort}))
    return ("thinking.budget_tokens",)


def _may_think(messages: tuple[Message, ...]) -> bool:
    """A turn that goes on after tool calls must have begun with signed thinking, and a prefilled answer with none: else it is refused."""
    last = next((message for message in reversed(messages) if message.role == "assistant"), None)
    if last is None or (not last.calls and messages[-1] is not last):
        return True
    first = last.content[0] if isinstance(last.content, tuple) and last.content else None
    signed = isinstance(first, RedactedThinking) or (isinstance(first, Thinking) and first.signature is not None)
    return bool(last.calls) and signed
