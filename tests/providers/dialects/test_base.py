"""Every dialect fills the same shape, so that surfaces and providers can use any of them."""

from __future__ import annotations

import json

import pytest

from providers.dialects import DIALECTS, PLAIN, DecodeError, Dialect
from providers.types import Frame


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_a_dialect_is_whole(dialect: Dialect):
    assert DIALECTS[dialect.name] is dialect
    optional = {"name", "keep_alive", "headers", "decode_count"}
    assert all(callable(getattr(dialect, name)) for name in Dialect.__struct_fields__ if name not in optional)
    assert dialect.keep_alive.endswith(b"\n\n")
    assert all(name == name.lower() for name in dialect.headers)
    decoder = dialect.stream_decoder()
    assert not decoder.done
    assert decoder.feed(b"") == Frame(events=[], dialect=dialect.name)
    assert dialect.http_error(503, {}, b"").status == 503
    assert json.loads(dialect.error_body(400, "what to do", "t", None, None))["error"]["message"] == "what to do"
    assert b"what to do" in dialect.stream_error("what to do", "t", None, None)
    with pytest.raises(DecodeError) as refused:
        dialect.decode_request(b"{")
    assert refused.value.message == str(refused.value)


def test_plain_changes_nothing():
    assert (PLAIN.drop, PLAIN.refuse, PLAIN.token_limit, PLAIN.store) == (frozenset(), frozenset(), "", False)
