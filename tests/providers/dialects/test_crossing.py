"""What two languages do alike when a request passes from one to the other."""

from __future__ import annotations

import pytest
from msgspec import Raw

from providers.dialects import DIALECTS, Quirks, to_neutral
from providers.dialects.body import Field
from providers.dialects.crossing import take_over, take_where_known, without_counterpart
from providers.errors import Rejected, Unsupported
from providers.types import Parameters, Request

TABLE = {
    "same": Field(None, "x"),
    "must": Field(None, "x", default=0, abroad="refused"),
    "may": Field(None, "x", default={}, abroad="dropped"),
}


def asked(**fields: bytes) -> Request:
    return Request(dialect="d", fields={name: Raw(value) for name, value in fields.items()}, model="m")


def test_fields_are_sorted_by_the_table_of_their_own_language():
    request = asked(same=b"1", must=b"2", may=b"3", news=b"4")
    assert without_counterpart(request, TABLE) == ({"must": Raw(b"2")}, {"may": Raw(b"3")})
    assert without_counterpart(asked(must=b"0", may=b"{}"), TABLE) == ({}, {})
    assert without_counterpart(asked(must=b"null", may=b"null"), TABLE) == ({}, {})


def test_what_may_not_be_dropped_is_refused_by_name():
    parameters = Parameters(refused={"must": Raw(b"2")}, dropped={"may": Raw(b"3"), "other": Raw(b"4")})
    with pytest.raises(Unsupported) as refused:
        take_over(parameters)
    assert refused.value.param == "must" and not refused.value.sent
    assert take_over(parameters, frozenset({"must", "may"})) == ["other"]


def test_a_request_that_its_own_language_cannot_read_is_rejected_unsent():
    request = DIALECTS["openai_chat"].decode_request(
        b'{"model":"m","messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"custom"}}'
    )
    with pytest.raises(Rejected) as refused:
        to_neutral(request)
    assert refused.value.param == "tool_choice" and not refused.value.sent
    to_neutral(Request(dialect="none", fields={}, model="m"))  # decoded already, by whoever made it


def test_what_only_some_targets_take_is_written_or_named_as_the_client_knows_it():
    found: dict[str, object] = {"kept": 1}
    wanted = {"a": ("a", "a", 5), "b": ("ours", "client.b", 6), "c": ("c", "c", None)}
    assert take_where_known(found, Quirks(takes=frozenset({"a"})), wanted) == ["client.b"]
    assert found == {"kept": 1, "a": 5}
    assert take_where_known(found, Quirks(takes=frozenset({"b"})), wanted) == ["a"]
    assert found["ours"] == 6
