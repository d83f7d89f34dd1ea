"""Which form of thinking a target gets, by what its data say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from providers.dialects import Quirks
from providers.dialects.thinking_forms import MIN_BUDGET, may_think, own_thinking, write_thinking
from providers.types import Call, Message, Parameters, Reasoning, RedactedThinking, Request, Thinking, ToolChoice

ADAPTIVE = Quirks(takes=frozenset({"adaptive_thinking"}))


# ---- from another language ----------------------------------------------------------------------------------------------------------
def asked(reasoning: Reasoning | None, quirks: Quirks = Quirks(), limit: int = 9000, choice: ToolChoice | None = None) -> Any:  # noqa: B008
    request = Request(dialect="other", fields={}, model="m", decoded=(Message(role="user", content="hi"),))
    return write_thinking(request, Parameters(reasoning=reasoning, tool_choice=choice), limit, quirks)


def test_an_effort_becomes_what_the_target_knows():
    low = Reasoning(effort="low")
    assert asked(low) == ({"type": "enabled", "budget_tokens": 2048}, None, [])
    assert asked(low, limit=2048 + 900) == ({"type": "enabled", "budget_tokens": 2948 - MIN_BUDGET}, None, [])
    assert asked(low, ADAPTIVE) == asked(low, Quirks(thinking="always")) == ({"type": "adaptive"}, "low", [])
    assert asked(Reasoning(effort="minimal"), ADAPTIVE)[1] == "low"
    assert asked(Reasoning(budget_tokens=4000), ADAPTIVE) == ({"type": "adaptive"}, None, [])


@pytest.mark.parametrize(
    ("reasoning", "more"),
    [
        (None, {}),
        (Reasoning(effort="none"), {}),
        (Reasoning(effort="low"), {"quirks": Quirks(thinking="none")}),
        (Reasoning(effort="low"), {"limit": MIN_BUDGET + 1}),
        (Reasoning(effort="low"), {"choice": ToolChoice("required")}),
        (Reasoning(effort="low"), {"choice": ToolChoice("tool", "f")}),
    ],
)
def test_there_is_none_where_nobody_asked_or_it_would_be_refused(reasoning: Reasoning | None, more: dict[str, Any]):
    meant = reasoning is not None and reasoning.effort != "none"
    assert asked(reasoning, **more) == (None, None, [reasoning.named] if reasoning is not None and meant else [])


def test_a_turn_that_goes_on_needs_its_signed_thinking():
    user, result = Message(role="user", content="hi"), Message(role="tool", call_id="a")
    calls = (Call("a", "f", "{}"),)
    assert may_think((user,)) and may_think((user, Message(role="assistant", content="So."), user))
    for thought in (Thinking("hm", "s"), RedactedThinking("x")):
        assert may_think((user, Message(role="assistant", content=(thought,), calls=calls), result))
    for content in ((Thinking("hm"),), None, "text"):
        assert not may_think((user, Message(role="assistant", content=content, calls=calls), result))
    assert not may_think((user, Message(role="assistant", content="pre")))


# ---- the client's own thinking, in the form that a model knows ------------------------------------------------------------------------
def own(thinking: dict[str, Any], form: str, limit: int = 100_000, **members: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    fields = {name: Raw(json.dumps(value).encode()) for name, value in {"thinking": thinking, **members}.items()}
    dropped = own_thinking(fields, limit, form)
    return {name: json.loads(bytes(value)) for name, value in fields.items()}, dropped


@pytest.mark.parametrize("form", ["adaptive_only", "always"])
def test_a_budget_becomes_an_effort_where_budgets_are_refused(form: str):
    for budget, effort in ((1024, "low"), (2048, "low"), (8000, "medium"), (16384, "high"), (60_000, "max")):
        found, dropped = own({"type": "enabled", "budget_tokens": budget, "display": "omitted"}, form)
        assert found == {"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": effort}}
        assert dropped == ("thinking.budget_tokens",)
    kept = {"effort": "xhigh", "format": {"type": "json_schema"}}
    assert own({"type": "enabled", "budget_tokens": 1024}, form, output_config=kept)[0]["output_config"] == kept


def test_an_adaptive_wish_becomes_a_budget_where_models_know_no_other():
    assert own({"type": "adaptive"}, "budget") == ({"thinking": {"type": "enabled", "budget_tokens": 16384}}, ())
    found, _ = own({"type": "adaptive"}, "budget", output_config={"effort": "low"})
    assert found["thinking"]["budget_tokens"] == 2048
    assert own({"type": "adaptive"}, "budget", limit=1500) == ({}, ("thinking",))


def test_thinking_that_cannot_be_off_is_left_to_the_model_and_named():
    assert own({"type": "disabled"}, "always") == ({}, ("thinking",))


@pytest.mark.parametrize("form", ["adaptive", "adaptive_only"])
def test_what_the_model_knows_stays_as_it_came(form: str):
    for thinking in ({"type": "adaptive"}, {"type": "disabled"}):
        assert own(thinking, form) == ({"thinking": thinking}, ())


@pytest.mark.parametrize("effort", [5, {}, ["high"], None])
def test_an_effort_of_another_type_does_not_keep_adaptive_thinking_from_its_budget(effort: Any) -> None:
    fields = {"thinking": Raw(b'{"type":"adaptive"}'), "output_config": Raw(json.dumps({"effort": effort}).encode())}
    assert own_thinking(fields, 100_000, "budget") == ()
    assert json.loads(bytes(fields["thinking"])) == {"type": "enabled", "budget_tokens": 16_384}
