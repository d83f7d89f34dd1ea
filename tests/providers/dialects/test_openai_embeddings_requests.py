"""Requests for embeddings: every form of input, each mistake named, and what a target gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from providers.dialects import DIALECTS, PLAIN, DecodeError, Quirks
from providers.dialects.openai_embeddings.requests import decode_request, encode_request
from providers.dialects.prompts import MOST
from providers.errors import Unsupported
from providers.tokens import count_input_now
from providers.types import Request, Target

TARGET = Target(backend="b", model="text-embedding-3-small")


def asked(given: Any, **members: Any) -> Request:
    return decode_request(json.dumps({"model": "route", "input": given, **members}, ensure_ascii=False).encode())


def sent(request: Request, quirks: Quirks = PLAIN) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode_request(request, TARGET, quirks))
    return found


@pytest.mark.parametrize(
    ("given_input", "inputs", "tokens"),
    [
        ("one", ["one"], 0),
        (["one", "two"], ["one", "two"], 0),
        ([1, 2, 3], [[1, 2, 3]], 3),
        ([[1, 2], [3]], [[1, 2], [3]], 3),
        (["mixed", [1, 2]], ["mixed", [1, 2]], 2),
    ],
)
def test_every_form_of_input(given_input: Any, inputs: list[Any], tokens: int) -> None:
    request = asked(given_input)
    assert [json.loads(bytes(raw)) for raw in request.inputs] == inputs
    assert request.given_tokens == tokens
    assert (request.max_tokens, request.temperature, request.needs) == (0, 0.0, {"embeddings"})
    assert sent(request) == {"model": "text-embedding-3-small", "input": inputs}


@pytest.mark.parametrize(
    ("given_input", "param", "code"),
    [
        ("", "input", "invalid_value"),
        ([], "input", "invalid_value"),
        (None, "input", "missing_required_parameter"),
        (7, "input", "invalid_type"),
        ({"text": "x"}, "input", "invalid_type"),
        (["a", ""], "input[1]", "invalid_value"),
        (["a", 5], "input[1]", "invalid_type"),
        ([5, "a"], "input", "invalid_type"),
        ([[1], []], "input[1]", "invalid_value"),
        ([[1, -1]], "input[0]", "invalid_type"),
        ([[1, 2.5]], "input[0]", "invalid_type"),
        ([True], "input", "invalid_type"),
        (["x"] * (MOST + 1), "input", "invalid_value"),
    ],
)
def test_a_bad_input_is_named(given_input: Any, param: str, code: str) -> None:
    with pytest.raises(DecodeError) as refused:
        asked(given_input)
    assert (refused.value.param, refused.value.code) == (param, code)


@pytest.mark.parametrize(
    ("name", "value"), [("dimensions", 0), ("dimensions", "many"), ("encoding_format", "hex"), ("stream", True), ("model", "")]
)
def test_a_bad_field_is_named(name: str, value: Any) -> None:
    with pytest.raises(DecodeError) as refused:
        asked("x", **{name: value})
    assert refused.value.param == name


def test_unknown_fields_pass_to_the_same_language_and_steering_ones_nowhere() -> None:
    request = asked("x", input_type="query")
    assert request.unknown == ("input_type",) and sent(request)["input_type"] == "query"
    with pytest.raises(DecodeError) as refused:
        asked("x", api_base="http://elsewhere")
    assert refused.value.code == "steering_field"


def test_what_a_target_does_not_know_is_renamed_left_out_or_refused() -> None:
    request = asked("x", dimensions=2, encoding_format="base64", user="u")
    quirks = Quirks(names={"dimensions": "output_dimension"}, drop=frozenset({"encoding_format", "user"}))
    assert sent(request, quirks) == {"model": "text-embedding-3-small", "input": ["x"], "output_dimension": 2}
    assert request.dropped == ("user",), "the form of the vectors is made here"
    with pytest.raises(Unsupported) as refused:
        sent(request, Quirks(refuse=frozenset({"dimensions"})))
    assert refused.value.param == "dimensions"
    assert asked("x", dimensions=2).asks == {"dimensions"} and asked("x").asks == frozenset()


def test_a_chat_is_refused_by_a_model_that_makes_embeddings() -> None:
    chat = DIALECTS["openai_chat"].decode_request(b'{"model":"m","messages":[{"role":"user","content":"hi"}]}')
    with pytest.raises(Unsupported):
        encode_request(chat, TARGET)


def test_counting_takes_texts_without_marks_and_ids_as_they_are() -> None:
    assert count_input_now(asked([1, 2, 3])) == 3
    assert count_input_now(replace(asked(["tollway tollway"]), given_tokens=0)) <= 8


@given(st.lists(st.text(min_size=1), min_size=1, max_size=20))
def test_any_texts_go_out_as_they_came(texts: list[str]) -> None:
    try:
        request = asked(texts)
    except UnicodeEncodeError:
        return  # a lone surrogate is no UTF-8
    assert sent(request)["input"] == texts
    assert request.prompt_bytes >= sum(len(text.encode()) for text in texts)
