"""What both conversational languages of OpenAI ask for alike."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from providers.dialects import DecodeError
from providers.dialects.openai_chat import fields as chat
from providers.dialects.openai_fields import COMMON, READERS, read_output_format
from providers.dialects.openai_responses import fields as responses
from providers.types import OutputFormat

SCHEMA = {"type": "object"}
NAMED = {"name": "a", "schema": SCHEMA, "strict": True}


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value, separators=(",", ":")).encode())


def test_both_have_them_and_one_more_row_is_their_own() -> None:
    assert all(table[name] is field for table in (chat.FIELDS, responses.FIELDS) for name, field in COMMON.items())
    assert set(READERS) <= set(COMMON)
    assert "messages" not in COMMON and "input" not in COMMON


@pytest.mark.parametrize("wanted", [None, {"type": "text"}, {}])
def test_plain_text_is_no_format(wanted: Any) -> None:
    assert read_output_format(raw(wanted), "f") is None


def test_json_and_a_schema_in_either_place() -> None:
    assert read_output_format(raw({"type": "json_object"}), "f") == OutputFormat()
    beside = read_output_format(raw({"type": "json_schema", **NAMED}), "f")
    inside = read_output_format(raw({"type": "json_schema", "json_schema": NAMED}), "f.json_schema", "json_schema")
    assert beside == inside == OutputFormat(schema=raw(SCHEMA), name="a", strict=True)


@pytest.mark.parametrize("wanted", [{}, {"json_schema": None}, {"json_schema": "x"}, {"json_schema": {"name": "a"}}])
def test_a_schema_that_is_not_there(wanted: Any) -> None:
    with pytest.raises(DecodeError, match="schema` is missing"):
        read_output_format(raw({"type": "json_schema", **wanted}), "f.json_schema", "json_schema")


@pytest.mark.parametrize("kind", ["grammar", 5, "", {}])
def test_a_format_without_a_counterpart_is_named(kind: Any) -> None:
    with pytest.raises(DecodeError, match=r"`response_format\.type` may be") as wrong:
        read_output_format(raw({"type": kind}), "response_format.json_schema", "json_schema")
    assert wrong.value.param == "response_format.type"
