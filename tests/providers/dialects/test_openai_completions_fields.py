"""Every field of the table on its way to another language: translated, refused by its name, or dropped and named (G34)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects import DIALECTS, PLAIN, DecodeError, to_neutral
from providers.dialects.openai_completions.fields import FIELDS
from providers.errors import Unsupported
from providers.types import Target

TARGET = Target(backend="b", model="m", most_tokens=1000)
SAID: dict[str, Any] = {  # a value that says something, for every field
    "model": "route",
    "prompt": "Once",
    "suffix": "end.",
    "max_tokens": 7,
    "temperature": 0.5,
    "top_p": 0.5,
    "n": 2,
    "best_of": 3,
    "stream": True,
    "stream_options": {"include_usage": True},
    "logprobs": 2,
    "echo": True,
    "stop": ["END"],
    "presence_penalty": 1.0,
    "frequency_penalty": 1.0,
    "logit_bias": {"5": 1},
    "seed": 4,
    "user": "u",
}
HERE = {"stream_options", "echo"}  # what the surface itself does with them, whoever answers
TO_CHAT: dict[str, Any] = {  # what is sent; "refused", "dropped"
    "suffix": "refused",
    "max_tokens": {"max_tokens": 7},
    "temperature": {"temperature": 0.5},
    "top_p": {"top_p": 0.5},
    "n": {"n": 2},
    "best_of": "refused",
    "stream": {"stream": True},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "stop": {"stop": ["END"]},
    "presence_penalty": {"presence_penalty": 1.0},
    "frequency_penalty": {"frequency_penalty": 1.0},
    "logit_bias": {"logit_bias": {"5": 1}},
    "seed": {"seed": 4},
    "user": {"user": "u"},
}
TO_MESSAGES: dict[str, Any] = {
    "suffix": "refused",
    "max_tokens": {"max_tokens": 7},
    "temperature": {"temperature": 0.5},
    "top_p": {"top_p": 0.5},
    "n": "refused",
    "best_of": "refused",
    "stream": {"stream": True},
    "logprobs": "refused",
    "stop": {"stop_sequences": ["END"]},
    "presence_penalty": "refused",
    "frequency_penalty": "refused",
    "logit_bias": "refused",
    "seed": "dropped",
    "user": {"metadata": {"user_id": "u"}},
}


def carried(language: str, **members: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    request = DIALECTS["openai_completions"].decode_request(json.dumps({"model": "route", "prompt": "Once", **members}).encode())
    to_neutral(request)
    body = DIALECTS[language].encode_request(request, TARGET, PLAIN)
    return json.loads(body), request.dropped


def test_the_table_is_covered() -> None:
    assert set(SAID) == set(FIELDS)
    assert set(TO_CHAT) == set(TO_MESSAGES) == set(FIELDS) - HERE - {"model", "prompt"}


@pytest.mark.parametrize(("language", "fates"), [("openai_chat", TO_CHAT), ("anthropic_messages", TO_MESSAGES)])
@pytest.mark.parametrize("name", sorted(TO_CHAT))
def test_g34_each_field_abroad(language: str, fates: dict[str, Any], name: str) -> None:
    plain, _ = carried(language)
    fate = fates[name]
    if fate == "refused":
        with pytest.raises(Unsupported) as refused:
            carried(language, **{name: SAID[name]})
        assert refused.value.param == name
        return
    body, dropped = carried(language, **{name: SAID[name]})
    if fate == "dropped":
        assert (body, dropped) == (plain, (name,))
    else:
        assert {member: body[member] for member in fate} == fate and dropped == ()


@pytest.mark.parametrize("name", sorted(set(FIELDS) - {"model"}))
def test_a_wrong_type_is_named(name: str) -> None:
    wrong = {"a": 1} if name in ("stop", "prompt") else [[{}]]
    with pytest.raises(DecodeError) as refused:
        carried("openai_chat", **{name: wrong})
    assert (refused.value.param or "").startswith(name)
