"""The official OpenAI client's `responses` against a running gateway, on backends of every language, and other clients on a backend
that speaks this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from pydantic import BaseModel

from tests.e2e.harness import Gateway, backend, route, running
from tests.e2e.test_chat import row_of
from tests.fakes.messages import message
from tests.fakes.messages import stream as messages_stream
from tests.fakes.responses import call, event, reasoning, response, stream, text
from tests.fakes.upstream import FakeUpstream, chat_answer, chat_chunks, json_reply, sse_reply

PRICE = 'price = { input = "1.00", output = "2.00", cache_read = "0.10" }'
HELLO = "Say hello."
SIGNATURE = "EqQBCkgIARABGAIiQ=="
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False},
    "strict": True,
}
SCRIPT = """
script = '''
reasoning = "I look it up"
text = "Two cities."
[[tool_calls]]
name = "weather"
arguments = '{"city": "Bonn"}'
[[tool_calls]]
name = "weather"
arguments = '{"city": "Kiel"}'
'''
"""


def other(name: str, url: str, dialect: str, more: str = "") -> str:
    vendor = "anthropic" if dialect == "anthropic_messages" else "openai-compatible"
    language = f'dialect = "{dialect}"' if vendor == "openai-compatible" else 'api_key = "env:UPSTREAM_KEY"'
    address = f'base_url = "{url}/v1"\n{language}\n{PRICE}\n{more}\n'
    return f'[[backends]]\nname = "{name}"\nvendor = "{vendor}"\nmodel = "m-{name}"\n{address}'


pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture(scope="module")
def gateway(upstream: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    thinks = 'capabilities = ["tools", "images", "json_schema", "reasoning_effort", "reasoning_details"]'
    config = (
        "".join(other(name, upstream.url, "openai_responses", thinks) for name in ("gpt", "limited", "failing"))
        + other("claude", upstream.url, "anthropic_messages")
        + backend("chat", upstream.url, more=thinks)
        + f'[[backends]]\nname = "script"\nvendor = "scripted"\nmodel = "m-script"\n{PRICE}\n{SCRIPT}\n'
        + "".join(route(name, name, more="max_attempts = 1") for name in ("gpt", "limited", "failing", "claude", "chat", "script"))
        + route("kept", "gpt", more='cache = "always"')
        + route("mixed", "chat", "gpt")
    )
    with running(tmp_path_factory.mktemp("gateway"), config, UPSTREAM_KEY="upstream-secret-key") as made:
        made.key("alpha")
        yield made


# ---- the same language on both sides ------------------------------------------------------------------------------------------------
def test_a_whole_answer_of_the_same_language(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(json_reply(response(reasoning("", "gAAA"), text("Hello"))))
    raw = gateway.client().responses.with_raw_response.create(
        model="gpt", input=HELLO, include=["reasoning.encrypted_content"], tools=[{"type": "web_search"}], max_output_tokens=50
    )
    answer = raw.parse()
    assert answer.output_text == "Hello"
    assert answer.usage is not None and answer.usage.output_tokens_details.reasoning_tokens == 10
    assert raw.headers["x-tollway-cost-usd"] == "0.000050500"  # 20 in, 5 from the cache, 15 out
    assert raw.headers["x-tollway-backend"] == "gpt" and raw.headers["x-tollway-attempts"] == "1"
    seen = upstream.requests[0]
    assert seen.target == "/v1/responses"
    assert seen.json() == {
        "model": "m-gpt",
        "input": HELLO,
        "include": ["reasoning.encrypted_content"],
        "tools": [{"type": "web_search"}],
        "max_output_tokens": 50,
        "store": False,
    }


def test_a_stream_of_the_same_language_byte_for_byte(gateway: Gateway, upstream: FakeUpstream) -> None:
    *events, last = stream(reasoning("hm", "gAAA"), text("Hello"))
    upstream.play(sse_reply([*events, last], done=True))
    body = json.dumps({"model": "gpt", "input": HELLO, "stream": True}).encode()
    status, raw, headers = gateway.call("POST", "/v1/responses", body, gateway.keys["alpha"])
    assert (status, raw) == (200, b"".join(events) + b": tollway-cost-usd 0.000050500\n\n" + last)
    assert headers["content-type"].startswith("text/event-stream")


def test_a_kept_answer_is_replayed_in_either_form(gateway: Gateway, upstream: FakeUpstream) -> None:
    output = (reasoning("hm", "gAAA"), text("Hello"), call("c1", "weather", '{"city":"Bonn"}'))
    upstream.play(json_reply(response(*output)))
    ask: dict[str, Any] = {"model": "kept", "input": "Say hello, kept.", "tools": [TOOL]}
    first = gateway.client().responses.create(**ask)
    again = gateway.client().responses.with_raw_response.create(**ask)
    assert again.headers["x-tollway-cache"] == "hit" and again.headers["x-tollway-cost-usd"] == "0.000000000"
    assert again.parse() == first
    with gateway.client().responses.stream(**ask) as opened:
        final = opened.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output_text == "Hello" and final.output[0].encrypted_content == "gAAA"  # type: ignore[union-attr]
    assert len(upstream.requests) == 1


# ---- the official client over backends of every language ----------------------------------------------------------------------------
def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


CITIES = ('{"city": "Bonn"}', '{"city": "Kiel"}')
CALLS = [call(f"c{n}", "weather", city) for n, city in enumerate(CITIES)]
USES = [{"type": "tool_use", "id": f"c{n}", "name": "weather", "input": json.loads(city)} for n, city in enumerate(CITIES)]
TOLD = [{"id": f"c{n}", "type": "function", "function": {"name": "weather", "arguments": city}} for n, city in enumerate(CITIES)]
THOUGHT = {"type": "thinking", "thinking": "I look it up", "signature": SIGNATURE}


def replies(kind: str, *, streamed: bool) -> list[Any]:
    """Thinking, a text and two parallel calls, as a vendor of each language answers."""
    if kind == "gpt":
        output = (reasoning("I look it up", "gAAA"), text("Two cities."), *CALLS)
        return sse_reply(stream(*output), done=False) if streamed else json_reply(response(*output))
    if kind == "claude" and not streamed:
        return json_reply(message([THOUGHT, {"type": "text", "text": "Two cities."}, *USES], "tool_use"))
    if kind == "claude":
        deltas = [{"type": "thinking_delta", "thinking": "I look it up"}, {"type": "signature_delta", "signature": SIGNATURE}]
        blocks = [({"type": "thinking", "thinking": "", "signature": ""}, deltas), ({"type": "text", "text": ""}, [])]
        blocks[1] = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in ("Two ", "cities.")])
        for use in USES:
            pieces = [{"type": "input_json_delta", "partial_json": json.dumps(use["input"])}]
            blocks.append(({**use, "input": {}}, pieces))
        return sse_reply(messages_stream(blocks, "tool_use"), done=False)
    if not streamed:
        said = {"role": "assistant", "reasoning_content": "I look it up", "content": "Two cities.", "tool_calls": TOLD}
        answer = chat_answer("", usage=(12, 3))
        answer["choices"][0] |= {"message": said, "finish_reason": "tool_calls"}
        return json_reply(answer)
    chunks = [chunk({"role": "assistant", "reasoning_content": "I look it up"}), chunk({"content": "Two "}), chunk({"content": "cities."})]
    chunks += [chunk({"tool_calls": [{"index": n, **one}]}) for n, one in enumerate(TOLD)]
    return sse_reply([*chunks, chunk({}, "tool_calls"), {**chunk({}), "choices": [], "usage": chat_answer("", usage=(12, 3))["usage"]}])


def check(answer: Any, kind: str) -> None:
    assert [item.type for item in answer.output] == ["reasoning", "message", "function_call", "function_call"]
    assert answer.output[0].summary[0].text == "I look it up"
    assert answer.output_text == "Two cities."
    assert [json.loads(item.arguments)["city"] for item in answer.output[2:]] == ["Bonn", "Kiel"]
    assert [item.status for item in answer.output[1:]] == ["completed"] * 3 and answer.status == "completed"
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0
    if kind != "script":
        assert [item.call_id for item in answer.output[2:]] == ["c0", "c1"]


KINDS = ("gpt", "chat", "claude", "script")


@pytest.mark.parametrize("kind", KINDS)
def test_the_official_client(gateway: Gateway, upstream: FakeUpstream, kind: str) -> None:
    ask: dict[str, Any] = {"model": kind, "instructions": "Be brief.", "input": HELLO, "tools": [TOOL]}
    if kind != "script":
        upstream.play(replies(kind, streamed=False), *[replies(kind, streamed=True)] * 2)
    client = gateway.client()
    check(client.responses.create(**ask), kind)
    kinds = [event.type for event in client.responses.create(**ask, stream=True)]
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed"
    for expected in ("response.reasoning_summary_text.delta", "response.output_text.delta", "response.function_call_arguments.done"):
        assert expected in kinds
    with client.responses.stream(**ask) as opened:
        said = [event.delta for event in opened if event.type == "response.output_text.delta"]
        final = opened.get_final_response()
    check(final, kind)
    assert "".join(said) == "Two cities."


@pytest.mark.parametrize("kind", KINDS)
async def test_the_asynchronous_client(gateway: Gateway, upstream: FakeUpstream, kind: str) -> None:
    ask: dict[str, Any] = {"model": kind, "input": HELLO, "tools": [TOOL]}
    if kind != "script":
        upstream.play(replies(kind, streamed=False), replies(kind, streamed=True))
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.keys["alpha"], max_retries=0) as client:
        check(await client.responses.create(**ask), kind)
        async with client.responses.stream(**ask) as opened:
            check(await opened.get_final_response(), kind)


@pytest.mark.parametrize("kind", ["gpt", "chat", "claude"])
def test_a_turn_after_tool_calls_carries_the_reasoning_back(gateway: Gateway, upstream: FakeUpstream, kind: str) -> None:
    client = gateway.client()
    upstream.play(replies(kind, streamed=False))
    ask: dict[str, Any] = {"model": kind, "tools": [TOOL], "reasoning": {"effort": "low"}, "max_output_tokens": 5000}
    first = client.responses.create(input=HELLO, include=["reasoning.encrypted_content"], **ask)
    turns: list[Any] = [{"role": "user", "content": HELLO}, *[item.model_dump(exclude_none=True) for item in first.output]]
    turns += [{"type": "function_call_output", "call_id": f"c{n}", "output": "rain"} for n in range(2)]
    upstream.play(replies(kind, streamed=False))
    client.responses.create(input=turns, **ask)
    sent = upstream.requests[-1].json()
    if kind == "gpt":
        assert sent["input"] == turns and turns[1]["encrypted_content"] == "gAAA"
    elif kind == "claude":
        assert sent["messages"][1]["content"] == [THOUGHT, {"type": "text", "text": "Two cities."}, *USES]
        assert [block["tool_use_id"] for block in sent["messages"][2]["content"]] == ["c0", "c1"]
        assert sent["thinking"]["type"] == "enabled"
    else:
        said = sent["messages"][1]
        assert (said["reasoning_content"], said["content"], said["tool_calls"]) == ("I look it up", "Two cities.", TOLD)
        assert [one["tool_call_id"] for one in sent["messages"][2:]] == ["c0", "c1"] and sent["reasoning_effort"] == "low"


class City(BaseModel):
    city: str


def test_structured_output_over_another_language(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(json_reply(chat_answer('{"city": "Bonn"}')), sse_reply(chat_chunks(['{"city": ', '"Bonn"}'])))
    answer = gateway.client().responses.parse(model="chat", input=HELLO, text_format=City)
    assert answer.output_parsed == City(city="Bonn")
    with gateway.client().responses.stream(model="chat", input=HELLO, text_format=City) as opened:
        assert opened.get_final_response().output_parsed == City(city="Bonn")
    asked = upstream.requests[0].json()["response_format"]
    assert asked["type"] == "json_schema" and asked["json_schema"]["strict"] is True
    assert asked["json_schema"]["schema"]["required"] == ["city"]


def test_an_answer_that_a_limit_ended(gateway: Gateway) -> None:
    answer = gateway.client().responses.create(model="script", input=HELLO, max_output_tokens=1)
    assert answer.status == "incomplete" and answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    found = list(gateway.client().responses.create(model="script", input=HELLO, max_output_tokens=1, stream=True))
    assert found[-1].type == "response.incomplete"


# ---- refusals and errors ------------------------------------------------------------------------------------------------------------
def test_what_needs_stored_state_is_refused_by_name(gateway: Gateway, upstream: FakeUpstream) -> None:
    for members in ({"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"background": True}, {"prompt": {"id": "p"}}):
        with pytest.raises(openai.BadRequestError) as refused:
            gateway.client().responses.create(model="gpt", input=HELLO, **members)  # type: ignore[call-overload]
        assert refused.value.param == next(iter(members))
    assert upstream.requests == []


def test_what_only_this_language_has_goes_to_its_backends_alone(gateway: Gateway, upstream: FakeUpstream) -> None:
    ask: dict[str, Any] = {"input": HELLO, "tools": [{"type": "file_search", "vector_store_ids": ["vs"]}]}
    with pytest.raises(openai.BadRequestError, match=r"tools\[0\].type=file_search") as refused:
        gateway.client().responses.create(model="chat", **ask)
    assert refused.value.code == "unknown_field" and upstream.requests == []
    upstream.play(json_reply(response(text("found"))))
    assert gateway.client().responses.create(model="mixed", **ask).output_text == "found"
    assert upstream.requests[0].target == "/v1/responses"


def test_what_was_left_out_is_told(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(json_reply(chat_answer("Hello")))
    raw = gateway.client().responses.with_raw_response.create(model="chat", input=HELLO, truncation="auto", store=True)
    assert set(raw.headers["x-tollway-dropped"].split(", ")) == {"truncation", "store"}
    assert "store" not in upstream.requests[0].json()


def test_errors_come_in_the_surfaces_shape(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(json_reply({"error": {"message": "slow", "type": "requests", "code": "rate_limit_exceeded"}}, 429, {"retry-after": "7"}))
    with pytest.raises(openai.RateLimitError) as limited:
        gateway.client().responses.create(model="limited", input=HELLO, stream=True)
    assert limited.value.code == "rate_limit_exceeded"
    status, raw, _ = gateway.call("POST", "/v1/responses", b'{"model":"gpt"}', gateway.keys["alpha"])
    assert status == 400 and json.loads(raw)["error"]["param"] == "input"
    assert gateway.call("POST", "/v1/responses", b"{}", "tw-wrong")[0] == 401
    assert gateway.call("GET", "/v1/responses", None, gateway.keys["alpha"])[0] == 405


def test_an_error_inside_a_stream_is_an_error(gateway: Gateway, upstream: FakeUpstream) -> None:
    begun = stream(text("Hello"), end=None)
    broken = event(9, type="response.failed", response=response(status="failed", error={"code": "server_error", "message": "boom"}))
    upstream.play(sse_reply([*begun[:2], broken], done=False))
    with pytest.raises(openai.APIStatusError):  # before its first word: with a status of its own
        list(gateway.client().responses.create(model="failing", input=HELLO, stream=True))
    upstream.play(sse_reply([*begun, broken], done=False))
    with pytest.raises(openai.APIError) as failed:
        list(gateway.client().responses.create(model="failing", input=HELLO, stream=True))
    assert not isinstance(failed.value, openai.APIStatusError) and "boom" in failed.value.message


# ---- other clients on a backend of this language ------------------------------------------------------------------------------------
def test_a_chat_client_carries_encrypted_reasoning_between_turns(gateway: Gateway, upstream: FakeUpstream) -> None:
    tools: list[Any] = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
    turns: list[Any] = [{"role": "user", "content": HELLO}]
    upstream.play(replies("gpt", streamed=False))
    chat = gateway.client().chat.completions
    choice = chat.create(model="gpt", messages=turns, tools=tools, max_tokens=50).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Two cities.")
    first = upstream.requests[0].json()
    assert first["include"] == ["reasoning.encrypted_content"] and first["max_output_tokens"] == 50 and first["store"] is False
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": "rain"} for n in range(2)]
    upstream.play(sse_reply(stream(text("Rain.")), done=False))
    chunks = list(
        chat.create(model="gpt", messages=[*turns, choice.message.model_dump(exclude_none=True), *results], tools=tools, stream=True)
    )  # type: ignore[list-item]
    assert "".join(one.choices[0].delta.content or "" for one in chunks if one.choices) == "Rain."
    sent = upstream.requests[1].json()["input"]
    assert sent[1] == {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I look it up"}], "encrypted_content": "gAAA"}
    assert [item["type"] for item in sent[2:]] == [
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
    ]


def test_an_anthropic_client_carries_encrypted_reasoning_between_turns(gateway: Gateway, upstream: FakeUpstream) -> None:
    tool: Any = {"name": "weather", "input_schema": {"type": "object", "properties": {}}}
    turns: list[Any] = [{"role": "user", "content": HELLO}]
    upstream.play(replies("gpt", streamed=True))
    with anthropic.Anthropic(base_url=gateway.url, api_key=gateway.keys["alpha"], max_retries=0) as client:
        with client.messages.stream(model="gpt", max_tokens=50, messages=turns, tools=[tool]) as opened:
            answer = opened.get_final_message()
        assert [block.type for block in answer.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert (answer.stop_reason, answer.usage.input_tokens, answer.usage.cache_read_input_tokens) == ("tool_use", 20, 5)
        results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "rain"} for n in range(2)]
        turns += [{"role": "assistant", "content": answer.model_dump()["content"]}, {"role": "user", "content": results}]
        upstream.play(replies("gpt", streamed=False))
        client.messages.create(model="gpt", max_tokens=50, messages=turns, tools=[tool])
    sent = upstream.requests[1].json()["input"]
    assert sent[1] == {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I look it up"}], "encrypted_content": "gAAA"}


# ---- money --------------------------------------------------------------------------------------------------------------------------
def test_what_was_spent_is_in_the_ledger_with_its_surface(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(json_reply(response(text("Hello"))))
    raw = gateway.client().responses.with_raw_response.create(model="gpt", input=HELLO)
    told = row_of(gateway, raw.headers["x-tollway-request-id"])
    assert (told["outcome"], told["cost_nanousd"]) == ("completed", 50_500)
    newest = "SELECT surface, cost FROM usage ORDER BY started_at_us DESC LIMIT 1"
    assert gateway.rows(newest) == [{"surface": "openai_responses", "cost": 50_500}]
