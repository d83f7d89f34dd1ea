"""Every dialect fills the same shape, so that surfaces and providers can use any of them."""

from __future__ import annotations

import json

import pytest

from providers.dialects import DIALECTS, PLAIN, DecodeError, Dialect, to_neutral
from providers.errors import Rejected
from providers.tokens import count_input_now
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


BIG = b"1" + b"0" * 5000  # more digits than Python reads
CHAT, MESSAGES = b'{"model":"m","messages":[', b'{"model":"m","max_tokens":9,"messages":['


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("openai_chat", CHAT + b'{"role":"user","content":[{"type":"odd","odd":%b}]}]}' % BIG),
        ("openai_chat", CHAT + b'{"role":"user","content":[{"type":"text"}]},{"role":"assistant","content":5}]}'),
        ("openai_chat", CHAT + b'{"role":"assistant","tool_calls":[{"id":{},"function":{"name":"f","arguments":""}}]}]}'),
        ("openai_chat", CHAT + b'{"role":"user","content":"hi"}],"unknown":{"a":%b}}' % BIG),
        ("anthropic_messages", MESSAGES + b'{"role":"user","content":[{"type":"odd","odd":%b}]}]}' % BIG),
        ("anthropic_messages", MESSAGES + b'{"role":"user","content":[{"type":"image"}]}]}'),
        ("anthropic_messages", MESSAGES + b'{"role":"user","content":"hi"}],"unknown":{"a":%b}}' % BIG),
        ("anthropic_messages", MESSAGES + b'{"role":"user","content":"hi"}],"tool_choice":{"type":[]}}'),
    ],
)
def test_what_a_client_writes_inside_is_its_own_error_and_never_ours(name: str, body: bytes):
    """Whether it is seen at once or when another language's backend, or a count, needs to know."""
    dialect = DIALECTS[name]
    with pytest.raises((DecodeError, Rejected)) as refused:
        request = dialect.decode_request(body)
        assert count_input_now(request) > 0
        to_neutral(request)
    assert refused.value.param


def test_a_title_that_is_no_text_is_left_to_the_backend_and_can_be_counted():
    document = b'{"type":"document","title":5,"source":{"type":"text","media_type":"text/plain","data":"d"}}'
    request = DIALECTS["anthropic_messages"].decode_request(MESSAGES + b'{"role":"user","content":[' + document + b"]}]}")
    assert count_input_now(request) > 0
