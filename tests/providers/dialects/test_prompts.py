"""Bare prompts: every form, each mistake by its place, and what counts as text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from providers.dialects import DecodeError
from providers.dialects.prompts import MOST, as_messages, read_prompts, texts
from providers.types import Message


def read(value: Any) -> tuple[list[Any], int]:
    prompts, ids = read_prompts(Raw(json.dumps(value).encode()), "prompt")
    return [json.loads(bytes(raw)) for raw in prompts], ids


@pytest.mark.parametrize(
    ("value", "found", "ids"),
    [
        ("a", ["a"], 0),
        (["a", "b"], ["a", "b"], 0),
        ([1, 2], [[1, 2]], 2),
        ([[1], [2, 3]], [[1], [2, 3]], 3),
        (["a", [1]], ["a", [1]], 1),
    ],
)
def test_forms(value: Any, found: list[Any], ids: int) -> None:
    assert read(value) == (found, ids)


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (None, "prompt"),
        ("", "prompt"),
        ([], "prompt"),
        (5, "prompt"),
        ({}, "prompt"),
        (["a", ""], "prompt[1]"),
        (["a", {}], "prompt[1]"),
        ([1, "a"], "prompt"),
        ([[2**31]], "prompt[0]"),
        (["a"] * (MOST + 1), "prompt"),
    ],
)
def test_mistakes_are_named(value: Any, param: str) -> None:
    with pytest.raises(DecodeError) as refused:
        read(value)
    assert refused.value.param == param


def test_texts_alone_are_counted_as_text() -> None:
    prompts, _ = read_prompts(Raw(b'["a",[1,2],"b"]'), "prompt")
    assert texts(prompts) == ["a", "b"]
    assert as_messages(prompts) == (Message(role="", content="a"), Message(role="", content="b"))
