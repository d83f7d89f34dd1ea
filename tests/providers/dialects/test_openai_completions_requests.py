"""Requests for completions: what a body asks for, what binds it to its own language, and what a target gets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects import DIALECTS, PLAIN, DecodeError, Quirks, to_neutral
from providers.dialects.openai_completions.requests import decode_request, encode_request
from providers.errors import Unsupported
from providers.tokens import count_input_now
from providers.types import Message, Request, Target

TARGET = Target(backend="b", model="m")


def asked(prompt: Any = "Once upon", **members: Any) -> Request:
    return decode_request(json.dumps({"model": "route", "prompt": prompt, **members}).encode())


def sent(request: Request, quirks: Quirks = PLAIN, target: Target = TARGET) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode_request(request, target, quirks))
    return found


def test_the_apis_own_default_limit_holds_everywhere() -> None:
    request = asked()
    assert (request.max_tokens, request.n, request.unknown) == (16, 1, ())
    assert sent(request) == {"model": "m", "prompt": "Once upon", "max_tokens": 16}
    assert sent(request, target=Target(backend="b", model="m", max_tokens=5))["max_tokens"] == 5


@pytest.mark.parametrize(
    ("prompt", "members", "n", "unknown"),
    [
        (["Once"], {}, 1, ()),
        (["a", "b"], {"n": 3}, 6, ("prompt",)),
        ([5, 6], {}, 1, ("prompt",)),
        ([[5], [6]], {"best_of": 4, "n": 2}, 8, ("prompt",)),
        ("a", {"best_of": 4}, 4, ()),
        ("a", {"max_tokens": 0}, 1, ("max_tokens",)),
        ("a", {"new_field": 1}, 1, ("new_field",)),
    ],
)
def test_what_is_made_and_what_binds(prompt: Any, members: dict[str, Any], n: int, unknown: tuple[str, ...]) -> None:
    request = asked(prompt, **members)
    assert (request.n, request.unknown) == (n, unknown)
    assert sent(request)["prompt"] == prompt


def test_best_of_that_cannot_be() -> None:
    for members in ({"best_of": 2, "n": 3}, {"best_of": 2, "stream": True}):
        with pytest.raises(DecodeError) as refused:
            asked(**members)
        assert refused.value.param == "best_of"


def test_usage_is_asked_for_where_the_target_knows_how() -> None:
    assert sent(asked(stream=True))["stream_options"] == {"include_usage": True}
    assert "stream_options" not in sent(asked(stream=True, stream_options={"include_usage": True}), Quirks(usage_option=False))
    assert "stream_options" not in sent(asked())


def test_a_lone_prompt_is_a_message_elsewhere() -> None:
    request = asked(["Once"])
    to_neutral(request)
    assert request.decoded == (Message(role="user", content="Once"),)


def test_prompts_are_counted() -> None:
    assert count_input_now(asked([1, 2, 3])) == 3
    assert 0 < count_input_now(asked(["one two", "three"])) < 12


def test_a_conversation_is_refused_by_a_model_that_continues_prompts() -> None:
    chat = DIALECTS["openai_chat"].decode_request(b'{"model":"m","messages":[{"role":"user","content":"hi"}]}')
    with pytest.raises(Unsupported):
        encode_request(chat, TARGET)
