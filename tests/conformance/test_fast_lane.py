"""The same language on both sides: what goes up and what comes down are the client's and the backend's own bytes, but for what is named.

Up: only `model`, `stream_options`, `store`, the token limit and what the target's data map or drop. Down: the cost comment and the end
mark are added, and a usage-only chunk is left out for a client that did not ask for it.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from providers.dialects import PLAIN, DecodeError, Quirks
from providers.dialects.body import STEERING
from providers.types import Target
from tests.conformance.recordings import LANGUAGES, Record, answers, asked, body, dialect, language, needed, play, streamed, told

TARGET = Target(backend="b", model="upstream")
LIMITS = {"chat": ("max_tokens", "max_completion_tokens"), "messages": ("max_tokens",), "responses": ("max_output_tokens",)}
OURS = {"model", "stream_options", "store"}
# how a client may write: spaces, escapes, numbers of every form, a key twice inside, an empty key, text beyond the basic plane
ODD = '{ "b" : [1.0, 1e2, -0, "\\u00e9\\ud83d\\ude00é😀",\t{"b":1,"b":2}], "" :{"x":null , "y" : 1E+3} }'
ODD_FIELDS = {
    "chat": {"metadata": ODD, "x_news": ODD, "tools": f'[{{"type":"function","function":{{"name":"f","parameters":{ODD}}} }}]'},
    "messages": {"x_news": ODD, "tools": f'[{{"name":"f", "input_schema":{ODD} }}]'},
    "responses": {"metadata": ODD, "x_news": ODD, "tools": f'[{{"type":"function","name":"f", "parameters":{ODD} }}]'},
}
SAID = '[ {"role":"user", "content" : "h\\u00e9é  😀"} ]'
CORE = {
    "chat": {"messages": SAID},
    "messages": {"messages": SAID, "max_tokens": "9"},
    "responses": {"input": SAID},
}


def written(fields: dict[str, str]) -> bytes:
    return ("{ " + " ,\n".join(f'"{name}" : {value}' for name, value in fields.items()) + "}\n").encode()


def members(raw: bytes) -> dict[str, bytes]:
    return {name: bytes(value) for name, value in msgspec.json.decode(raw, type=dict[str, Raw]).items()}


def request_of(spoken: str, **more: str) -> dict[str, str]:
    return {"model": '"route"', **CORE[spoken], **ODD_FIELDS[spoken], "temperature": "0.50", **more}


@pytest.mark.parametrize("spoken", LANGUAGES)
@pytest.mark.parametrize("stream", ["true", "false"])
def test_a_body_goes_up_as_it_came_but_for_what_is_named(spoken: str, stream: str):
    given = request_of(spoken, stream=stream)
    request = LANGUAGES[spoken].decode_request(written(given))
    for quirks, target, changed in (
        (PLAIN, TARGET, set()),
        (Quirks(store=True, usage_option=spoken == "chat"), TARGET, set()),
        (PLAIN, Target(backend="b", model="upstream", max_tokens=5), set(LIMITS[spoken])),
        (Quirks(drop=frozenset({"temperature"}), names={"seed": "random_seed"}), TARGET, {"temperature"}),
    ):
        sent = members(LANGUAGES[spoken].encode_request(request, target, quirks))
        assert sent.pop("model") == b'"upstream"'
        for name in given.keys() - OURS - changed:
            assert sent[name] == given[name].encode(), name
        assert sent.keys() <= {*given, *OURS, *LIMITS[spoken]}
        assert ("temperature" in sent) == ("temperature" not in changed)
        assert request.dropped == (("temperature",) if "temperature" in changed else ())


names = st.text(max_size=4).filter(lambda name: name.lower().replace("-", "_") not in STEERING)  # "HOST" is refused, not carried
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
)


@given(st.sampled_from(sorted(LANGUAGES)), st.dictionaries(st.text("abc", min_size=1, max_size=3).map("x_".__add__), values, max_size=4))
def test_whatever_a_client_writes_inside_goes_up_byte_for_byte(spoken: str, odd: dict[str, Any]):
    given = request_of(spoken) | {name: json.dumps(value, ensure_ascii=bool(len(name) % 2), indent=1) for name, value in odd.items()}
    try:
        raw = written(given)
        request = LANGUAGES[spoken].decode_request(raw)
    except UnicodeEncodeError:
        return  # half a character, which no JSON in UTF-8 can hold unescaped
    sent = members(LANGUAGES[spoken].encode_request(request, TARGET, PLAIN))
    for name in given.keys() - OURS:
        assert sent[name] == given[name].encode(), name


@pytest.mark.parametrize("spoken", LANGUAGES)
@pytest.mark.parametrize("twice", ["model", "stream", "x_news", "temperature"])
def test_a_field_that_stands_twice_is_refused_and_nothing_is_made_to_send(spoken: str, twice: str):
    given = written(request_of(spoken, stream="false"))
    value = members(given)[twice]
    for body_of in (given.rstrip()[:-1] + b', "%b" : %b }' % (twice.encode(), value), b'{"%b":%b,' % (twice.encode(), value) + given[1:]):
        with pytest.raises(DecodeError) as refused:
            LANGUAGES[spoken].decode_request(body_of)
        assert (refused.value.code, refused.value.param) == ("repeated_parameter", twice)


@pytest.mark.parametrize("spoken", LANGUAGES)
def test_a_name_that_steers_is_refused(spoken: str):
    for name in ("api_base", "base_url", "api_key", "extra_headers"):
        with pytest.raises(DecodeError) as refused:
            LANGUAGES[spoken].decode_request(written({**request_of(spoken), name: '"http://127.0.0.1:1"'}))
        assert (refused.value.code, refused.value.param) == ("steering_field", name)
        inside = {**request_of(spoken), "metadata": f'{{"{name}":"x"}}', "extra_body": "{}"}
        with pytest.raises(DecodeError) as refused:
            LANGUAGES[spoken].decode_request(written(inside))
        assert refused.value.param == f"metadata.{name}"


# ---- down ---------------------------------------------------------------------------------------------------------------------------
def events_of(text: str) -> list[str]:
    """Whole events with the blank line that ends each."""
    return [piece for piece in re.findall(r".*?(?:\r\n\r\n|\n\n|\r\r|\Z)", text, re.DOTALL) if piece.strip()]


def data_of(event: str) -> str:
    return "\n".join(line[5:].removeprefix(" ") for line in event.splitlines() if line.startswith("data:"))


def usage_only(event: str) -> bool:
    """A chunk of the chat language that says nothing but the usage."""
    data = data_of(event)
    if not data:
        return False
    chunk = json.loads(data)
    if not chunk.get("usage"):
        return False
    for choice in chunk.get("choices") or []:
        delta = {name: value for name, value in (choice.get("delta") or {}).items() if value and name != "role"}
        if delta or choice.get("finish_reason"):
            return False
    return True


def expected(record: Record, *, usage: bool) -> list[str]:
    """What of the recorded events a client gets: all, without the end mark and what stands behind it."""
    kept: list[str] = []
    for event in events_of(body(record)):
        if data_of(event) == "[DONE]" or 'data: {"type":"message_stop"' in event.replace(": {", ": {"):
            break
        if language(record) == "chat":
            if not usage and usage_only(event):
                continue
            lines = [line for line in event.splitlines() if line.startswith(("data:", ":"))]
            named = len(lines) != len([line for line in event.splitlines() if line])  # names of events, which clients of chat trip over
            kept.append("".join(line + "\n" for line in lines) + "\n" if named else event)
        else:
            kept.append(event)
    return kept


@needed
@pytest.mark.parametrize("usage", [True, False])
def test_recorded_streams_come_down_as_they_were(usage: bool):
    count = 0
    for record in answers():
        if not streamed(record):
            continue
        surface = language(record)
        request = asked(surface, True)
        request.include_usage = usage
        text = told(play(record, 3), surface, request)
        ends = {"chat": "data: [DONE]\n\n", "messages": 'event: message_stop\ndata: {"type":"message_stop"}\n\n', "responses": ""}[surface]
        assert text.endswith(ends), record["id"]
        comment = ": tollway-cost-usd 0.000123000\n\n"
        assert text.count(comment) == 1
        given = text[: len(text) - len(ends)].replace(comment, "")
        wanted = [event for event in expected(record, usage=usage) if surface != "messages" or '"message_stop"' not in event]
        assert sorted(events_of(given)) == sorted(wanted) if usage else events_of(given) == wanted, record["id"]
        assert dialect(record) is LANGUAGES[surface]
        count += 1
    assert count > 100


@needed
def test_recorded_whole_answers_come_down_as_they_were():
    for record in answers():
        if not streamed(record):
            assert told(play(record), language(record), asked(language(record), False)) == body(record), record["id"]
