"""Which form of thinking a target gets: by a budget, as the model sees fit, or none. What models know is data (`Quirks.thinking`).

The members are those of the vendor that has these forms, whoever serves its models. Knows no request's own language.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from providers.dialects.base import DecodeError, Quirks
from providers.dialects.functions import BUDGETS, budget_of
from providers.dialects.rawjson import NULL, decode_any, decode_object, encode_json
from providers.dialects.sealed import is_sealed
from providers.types import Message, Parameters, Reasoning, RedactedThinking, Request, Thinking

MIN_BUDGET = 1024  # thinking tokens; the vendor's own minimum, and what is left to the answer at least
_FORMS = {"adaptive", "adaptive_only", "always"}  # of Quirks.thinking: those that take an effort
_EFFORTS = {"minimal": "low"}  # a word that the vendor does not have


def write_thinking(
    request: Request, parameters: Parameters, limit: int, quirks: Quirks
) -> tuple[dict[str, Any] | None, str | None, list[str]]:
    """(thinking, the effort beside it, names of what was dropped) for a request of another language. limit: of its answer, in tokens."""
    wanted, form = parameters.reasoning, _form(request, parameters, limit, quirks)
    if wanted is None or form is None:
        return None, None, [] if wanted is None or wanted.effort == "none" else [wanted.named]
    effort = None if wanted.effort is None or form["type"] != "adaptive" else _EFFORTS.get(wanted.effort, wanted.effort)
    return form, effort, []


def _form(request: Request, parameters: Parameters, limit: int, quirks: Quirks) -> dict[str, Any] | None:
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


def read_thinking(thinking: Mapping[str, Any], effort: Any) -> Reasoning | None:
    """What a client of such a language asks for, by `thinking` and an effort beside it. Raises DecodeError."""
    kind, budget = thinking.get("type"), thinking.get("budget_tokens")
    if kind == "disabled":
        return Reasoning(effort="none", named="thinking")
    if kind == "enabled":
        if budget is not None and (type(budget) is not int or budget < 1):
            message = "`thinking.budget_tokens` must be a whole number of tokens, 1,024 or more."
            raise DecodeError(message, param="thinking.budget_tokens", code="invalid_type")
        return Reasoning(budget_tokens=budget, named="thinking")
    if effort is not None and not isinstance(effort, str):
        raise DecodeError('`output_config.effort` must be a text such as "high".', param="output_config.effort", code="invalid_type")
    if kind is not None:
        return Reasoning(effort=effort, named="thinking")
    return None if effort is None else Reasoning(effort=effort, named="output_config.effort")


def own_thinking(fields: dict[str, Raw], limit: int | None, form: str) -> tuple[str, ...]:
    """The client's own `thinking` in the form that the model knows, changed in `fields`; the names of what was lost on the way."""
    asked = decode_any(fields["thinking"])
    kind = asked.get("type") if isinstance(asked, dict) else None
    config = decode_any(fields.get("output_config", NULL)) or {}
    if kind == "adaptive" and form == "budget":
        effort = config.get("effort")
        written = _budget(BUDGETS.get(effort if isinstance(effort, str) else "high", BUDGETS["high"]), limit or 0)
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
