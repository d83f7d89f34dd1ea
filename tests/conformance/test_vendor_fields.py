"""Every field that the chat surface takes, at every vendor: sent, renamed, dropped by name or refused by name, and never lost (G34)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects import DIALECTS
from providers.dialects.openai_chat.fields import FIELDS
from providers.errors import Unsupported
from providers.models import family_of, fitted
from providers.types import Target
from providers.vendors import VENDORS, Vendor

CHAT = DIALECTS["openai_chat"]
TARGET = Target(backend="b", model="m")
FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
SAID: dict[str, Any] = {  # a value that says something
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 7,
    "max_completion_tokens": 7,
    "temperature": 0.5,
    "top_p": 0.5,
    "n": 2,
    "stop": ["END"],
    "presence_penalty": 1.0,
    "frequency_penalty": 1.0,
    "logit_bias": {"5": 1},
    "logprobs": True,
    "top_logprobs": 2,
    "seed": 4,
    "user": "u",
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "functions": [FUNCTION],
    "function_call": "auto",
    "response_format": {"type": "json_object"},
    "reasoning_effort": "low",
    "verbosity": "low",
    "service_tier": "flex",
    "store": True,
    "metadata": {"a": "b"},
    "modalities": ["text", "audio"],
    "audio": {"voice": "v", "format": "wav"},
    "prediction": {"type": "content", "content": "x"},
    "web_search_options": {"search_context_size": "low"},
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "safety_identifier": "s",
    "moderation": {"model": "omni-moderation-latest"},
}
LIMITS = {"max_tokens", "max_completion_tokens"}
ROWS = [row for row in VENDORS.values() if row.dialect == "openai_chat"]
MODELS = ("m", "gpt-5-mini", "o3-mini", "grok-4", "deepseek-reasoner", "gpt-oss-120b")


def sent(row: Vendor, **members: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    body = {"model": "route", "messages": [{"role": "user", "content": "hi"}], **members}
    request = CHAT.decode_request(json.dumps(body).encode())
    return json.loads(CHAT.encode_request(request, TARGET, row.quirks)), request.dropped


def test_the_table_is_covered() -> None:
    assert set(SAID) == set(FIELDS) - {"model", "messages"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_g34_no_field_is_lost_on_the_way_to_any_vendor(row: Vendor) -> None:
    for model in MODELS:
        fit = fitted(row, family_of(model))
        for name, value in SAID.items():
            try:
                body, dropped = sent(fit, **{name: value})
            except Unsupported as refused:
                assert refused.param == name, (model, name)
                continue
            here = {body.get(other) == value for other in (LIMITS if name in LIMITS else {name, fit.quirks.names.get(name, name)})}
            asked_unsaid = name == "stream_options" and not fit.quirks.usage_option  # usage comes unasked there
            assert True in here or dropped == (name,) or asked_unsaid, (model, name, body, dropped)
            assert not (True in here and dropped), (model, name)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_g33_one_limit_goes_out_under_one_name(row: Vendor) -> None:
    for model in MODELS:
        fit = fitted(row, family_of(model))
        for name in LIMITS:
            body, _ = sent(fit, **{name: 200})
            assert {other: body[other] for other in LIMITS if other in body} == {fit.quirks.token_limit: 200}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_defaults_say_nothing_and_are_neither_named_nor_refused(row: Vendor) -> None:
    for model in MODELS:
        defaults = {name: field.default for name, field in FIELDS.items() if field.default is not None and name != "modalities"}
        _, dropped = sent(fitted(row, family_of(model)), **{name: value for name, value in defaults.items() if name != "logprobs"})
        assert dropped == ()
