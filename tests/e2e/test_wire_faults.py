"""Faults of gateways on the wire, each with its public number and the right values, on a running gateway with real clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.e2e.harness import BASIC, Gateway, backend, route, running
from tests.fakes.messages import message
from tests.fakes.messages import stream as message_stream
from tests.fakes.upstream import FakeUpstream, chat_answer, chat_chunks, close, json_reply, sse_reply
from tests.fixtures.waiting import until_true

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
USAGE = {"prompt_tokens": 16111, "completion_tokens": 2, "total_tokens": 16113, "prompt_tokens_details": {"cached_tokens": 15872}}
SIGNATURE = "EqQBCkgIARABGAIiQ=="


pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture(scope="module")
def gateway(upstream: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    claude = f'[[backends]]\nname = "claude"\nvendor = "anthropic"\nmodel = "m-claude"\nbase_url = "{upstream.url}/v1"\n{BASIC}\n'
    claude += 'api_key = "env:UPSTREAM_KEY"\n'
    strict = backend("strict", upstream.url).replace('vendor = "openai-compatible"', 'vendor = "vllm"')
    config = backend("chat", upstream.url) + claude + strict
    config += "".join(route(name, name, more="max_attempts = 1") for name in ("chat", "claude", "strict"))
    with running(tmp_path_factory.mktemp("gateway"), config, UPSTREAM_KEY="x") as made:
        made.key("alpha")
        yield made


def row_of(gateway: Gateway, request_id: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def settled() -> bool:
        status, body, _ = gateway.get(f"/v1/requests/{request_id}", gateway.keys["alpha"])
        if status == 200:
            found.append(json.loads(body))
        return status == 200

    until_true(settled)
    return found[0]


def ask(gateway: Gateway, path: str, **told: Any) -> tuple[int, bytes, Any]:
    return gateway.call("POST", path, json.dumps(told).encode(), gateway.keys["alpha"])


PLACES: dict[str, dict[str, Any]] = {
    "choices empty": {"choices": []},
    "choices null": {"choices": None},
    "an empty delta": {"choices": [{"index": 0, "delta": {}}]},
    "on the finish": {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("wanted", [True, False])
def test_g05_usage_reaches_client_and_ledger_wherever_it_stands(gateway: Gateway, upstream: FakeUpstream, place: str, wanted: bool) -> None:
    events = chat_chunks(["hi"], finish=None if place == "on the finish" else "stop")
    upstream.play(sse_reply([*events, {**events[0], **PLACES[place], "usage": USAGE}]))
    more = {"stream_options": {"include_usage": True}} if wanted else {}
    status, raw, headers = ask(gateway, "/v1/chat/completions", model="chat", messages=HELLO, stream=True, **more)
    assert status == 200 and upstream.requests[0].json()["stream_options"] == {"include_usage": True}
    chunks = [json.loads(line[6:]) for line in raw.decode().split("\n") if line.startswith("data: {")]
    told = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    assert told == ([USAGE] if wanted or place == "on the finish" else [])  # a chunk with more in it is no usage-only one
    row = row_of(gateway, headers["x-tollway-request-id"])
    assert (row["cost_nanousd"], row["outcome"]) == (1_830_200, "completed")
    assert b": tollway-cost-usd 0.001830200" in raw


def test_g08_one_broken_event_does_not_lose_the_rest(gateway: Gateway, upstream: FakeUpstream) -> None:
    events: list[Any] = [*chat_chunks([f"t{n} " for n in range(60)], usage=(5, 60))]
    upstream.play(sse_reply([*events[:20], 'data: {"broken": \n\n', *events[20:]]))
    stream = gateway.client().chat.completions.create(model="chat", messages=HELLO, stream=True)  # type: ignore[call-overload]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == "".join(f"t{n} " for n in range(60))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_g08_a_cut_stream_is_an_error_on_every_surface(gateway: Gateway, upstream: FakeUpstream, path: str) -> None:
    upstream.play(sse_reply(chat_chunks([f"t{n} " for n in range(40)], finish=None), done=False, end=close()))
    told: dict[str, Any] = {"input": "hi"} if path.endswith("responses") else {"messages": HELLO, "max_tokens": 60}
    status, raw, headers = ask(gateway, path, model="chat", stream=True, **told)
    text = raw.decode()
    assert status == 200 and text.count("t39") >= 1
    assert "error" in text and '"finish_reason":"' not in text and "response.completed" not in text and '"stop_reason":"' not in text
    row = row_of(gateway, headers["x-tollway-request-id"])
    assert row["outcome"] == "failed"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize(("status", "expected"), [(429, 429), (400, 400), (404, 404), (500, 503)])  # G32: all down by 5xx is 503
def test_g30_an_error_before_the_first_byte_keeps_its_status_and_is_json(
    gateway: Gateway, upstream: FakeUpstream, path: str, status: int, expected: int
) -> None:
    upstream.play(json_reply({"error": {"message": "no", "type": "x", "code": "y"}}, status))
    told: dict[str, Any] = {"input": "hi"} if path.endswith("responses") else {"messages": HELLO, "max_tokens": 60}
    given, raw, headers = ask(gateway, path, model="chat", stream=True, **told)
    assert given == expected
    assert headers["content-type"].startswith("application/json") and json.loads(raw)["error"]["message"]


def test_g30_a_stream_whose_first_event_is_an_error_has_its_status(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(sse_reply([{"error": {"message": "slow down", "type": "rate_limit_exceeded", "code": 429}}]))
    status, raw, headers = ask(gateway, "/v1/chat/completions", model="chat", messages=HELLO, stream=True)
    assert status == 429 and headers["content-type"].startswith("application/json") and b"slow down" in raw


def test_g24_counts_of_a_message_are_running_totals(gateway: Gateway, upstream: FakeUpstream) -> None:
    start = {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}}
    start["message"]["usage"] = {"input_tokens": 25, "output_tokens": 1}  # type: ignore[index]
    rest = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 15}},
        {"type": "message_stop"},
    ]
    events = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in [start, *rest]]
    upstream.play(sse_reply(events, done=False))
    options = {"include_usage": True}
    status, raw, _ = ask(gateway, "/v1/chat/completions", model="claude", messages=HELLO, stream=True, stream_options=options)
    usage = [json.loads(line[6:])["usage"] for line in raw.decode().split("\n") if line.startswith("data: {")][-1]
    assert status == 200
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (25, 15, 40)


TURNS: dict[str, list[dict[str, Any]]] = {
    "signed": [{"type": "thinking", "thinking": "hm", "signature": SIGNATURE}],
    "empty text": [{"type": "thinking", "thinking": "", "signature": SIGNATURE}],
    "redacted": [{"type": "redacted_thinking", "data": "abc"}],
}


@pytest.mark.parametrize("form", TURNS)
def test_g36_thinking_goes_back_unchanged_before_its_call(gateway: Gateway, upstream: FakeUpstream, form: str) -> None:
    upstream.play(json_reply(message([{"type": "text", "text": "18"}])))
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "18"}
    messages = [*HELLO, {"role": "assistant", "content": [*TURNS[form], call]}, {"role": "user", "content": [result]}]
    thinking = {"type": "enabled", "budget_tokens": 2000}
    status, _, _ = ask(gateway, "/v1/messages", model="claude", max_tokens=4000, messages=messages, thinking=thinking)
    assert status == 200
    sent = upstream.requests[0].json()
    assert sent["messages"] == messages and sent["thinking"] == thinking


@pytest.mark.parametrize("form", TURNS)
def test_g36_thinking_survives_a_client_of_another_language(gateway: Gateway, upstream: FakeUpstream, form: str) -> None:
    """Turn 1 answers with thinking and a call, turn 2 brings both back through chat completions and responses."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}}
    tool = {"name": "f", "parameters": {"type": "object"}}
    upstream.play(json_reply(message([*TURNS[form], call], "tool_use")))
    tools: list[dict[str, Any]] = [{"type": "function", "function": tool}]
    _, raw, _ = ask(gateway, "/v1/chat/completions", model="claude", messages=HELLO, tools=tools, max_tokens=9000, reasoning_effort="low")
    turn = json.loads(raw)["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": "toolu_1", "content": "18"}
    ask(
        gateway,
        "/v1/chat/completions",
        model="claude",
        messages=[*HELLO, turn, result],
        tools=tools,
        max_tokens=9000,
        reasoning_effort="low",
    )
    assert upstream.requests[-1].json()["messages"][1]["content"] == [*TURNS[form], call]
    assert upstream.requests[-1].json()["thinking"]["type"] == "enabled"

    flat = [{"type": "function", **tool}]
    asked = {"model": "claude", "tools": flat, "max_output_tokens": 9000, "store": False, "include": ["reasoning.encrypted_content"]}
    _, raw, _ = ask(gateway, "/v1/responses", **asked, input="hi", reasoning={"effort": "low"})
    items = [{"role": "user", "content": "hi"}, *json.loads(raw)["output"]]
    items.append({"type": "function_call_output", "call_id": "toolu_1", "output": "18"})
    ask(gateway, "/v1/responses", **asked, input=items, reasoning={"effort": "low"})
    assert upstream.requests[-1].json()["messages"][1]["content"] == [*TURNS[form], call]


# ---- also seen ----------------------------------------------------------------------------------------------------------------------
def test_seen_a_first_chunk_without_choices_breaks_no_client(gateway: Gateway, upstream: FakeUpstream) -> None:
    """semantic-kernel 3650"""
    first = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    upstream.play(sse_reply([first, *chat_chunks(["Hé", "llo"])]))
    stream = gateway.client().chat.completions.create(model="chat", messages=HELLO, stream=True)  # type: ignore[call-overload]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == "Héllo"


def test_seen_null_content_and_null_calls_are_taken_and_kept(gateway: Gateway, upstream: FakeUpstream) -> None:
    """litellm 37711"""
    turns = [*HELLO, {"role": "assistant", "content": None, "tool_calls": None}, {"role": "user", "content": "and?"}]
    upstream.play(json_reply(chat_answer("x")))
    assert ask(gateway, "/v1/chat/completions", model="chat", messages=turns)[0] == 200
    assert upstream.requests[0].json()["messages"] == turns
    upstream.play(json_reply(message([{"type": "text", "text": "x"}])))
    assert ask(gateway, "/v1/chat/completions", model="claude", messages=turns)[0] == 200


def test_seen_late_system_messages_lead_where_a_template_needs_it(gateway: Gateway, upstream: FakeUpstream) -> None:
    """hebo-gateway 251, litellm 39852"""
    turns = [{"role": "developer", "content": "A"}, *HELLO, {"role": "system", "content": "B"}]
    upstream.play(json_reply(chat_answer("x")))
    assert ask(gateway, "/v1/chat/completions", model="strict", messages=turns)[0] == 200
    assert upstream.requests[0].json()["messages"] == [{"role": "system", "content": "A\n\nB"}, *HELLO]
    upstream.play(json_reply(message([{"type": "text", "text": "x"}])))
    assert ask(gateway, "/v1/chat/completions", model="claude", messages=turns)[0] == 200
    sent = upstream.requests[-1].json()
    assert [block["text"] for block in sent["system"]] == ["A", "B"] and sent["messages"] == HELLO


def test_seen_cache_marks_reach_their_block(gateway: Gateway, upstream: FakeUpstream) -> None:
    """litellm 33687, llm-gateway 1871"""
    marked = {"type": "text", "text": "long", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    upstream.play(json_reply(message([{"type": "text", "text": "x"}])))
    turns = [{"role": "system", "content": [marked]}, {"role": "user", "content": [marked, {"type": "text", "text": "hi"}]}]
    assert ask(gateway, "/v1/chat/completions", model="claude", messages=turns)[0] == 200
    sent = upstream.requests[0].json()
    assert sent["system"] == [marked] and sent["messages"][0]["content"][0] == marked


def test_seen_clients_of_messages_learn_the_input_tokens_of_a_chat_backend(gateway: Gateway, upstream: FakeUpstream) -> None:
    """ai-gateway 2352"""
    upstream.play(sse_reply(chat_chunks(["hi"], usage=(70, 3))))
    with (
        anthropic.Anthropic(base_url=gateway.url, api_key=gateway.keys["alpha"], max_retries=0) as client,
        client.messages.stream(model="chat", max_tokens=50, messages=HELLO) as stream,  # type: ignore[arg-type]
    ):
        final = stream.get_final_message()
    assert (final.usage.input_tokens, final.usage.output_tokens) == (70, 3)


@pytest.mark.parametrize("backend_of", ["chat", "claude"])
def test_seen_no_event_without_data_and_no_ids(gateway: Gateway, upstream: FakeUpstream, backend_of: str) -> None:
    """openai-python 2721: whatever a backend sends, the official client gets data in every event"""
    if backend_of == "chat":
        events: list[Any] = ["event: ping\n\n", "id: 7\nevent: chunk\n\n", *chat_chunks(["hi"])]
        events[3] = "id: 8\nevent: chunk\ndata: " + json.dumps(events[3]) + "\n\n"
        upstream.play(sse_reply(events))
    else:
        pieces = message_stream([({"type": "text", "text": ""}, [{"type": "text_delta", "text": "hi"}])])
        upstream.play(sse_reply(["event: ping\n\n", *pieces], done=False))
    _, raw, _ = ask(gateway, "/v1/chat/completions", model=backend_of, messages=HELLO, stream=True)
    for block in raw.decode().strip().split("\n\n"):
        assert block.startswith(("data: ", ":")), block
        assert "\nid:" not in block and "\nevent:" not in block
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.keys["alpha"], max_retries=0) as client:
        stream = client.chat.completions.create(model=backend_of, messages=HELLO, stream=True)  # type: ignore[call-overload]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == "hi"
