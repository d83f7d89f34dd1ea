"""The official Anthropic client against a running gateway, on backends of both languages, and the OpenAI client the other way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.e2e.harness import Gateway, backend, route, running
from tests.fakes.messages import event, message, stream, text_stream
from tests.fakes.upstream import FakeUpstream, chat_answer, chat_chunks, close, json_reply, sse_reply

CLAUDE = 'price = { input = "3.00", output = "15.00", cache_read = "0.30", cache_write_5m = "3.75", cache_write_1h = "6.00" }'
DEAR = 'price = { input = "30.00", output = "60.00" }'
HELLO: list[Any] = [{"role": "user", "content": "Say hello."}]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOOL: dict[str, Any] = {
    "name": "weather",
    "description": "d",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
SIGNATURE = "EqQBCkgIARABGAIiQ=="


def claude(name: str, url: str, more: str = "") -> str:
    keys = 'api_key = "env:UPSTREAM_KEY"'
    return f'[[backends]]\nname = "{name}"\nvendor = "anthropic"\nmodel = "m-claude"\nbase_url = "{url}/v1"\n{keys}\n{CLAUDE}\n{more}\n'


@pytest.fixture(scope="module")
def second() -> Iterator[FakeUpstream]:
    with FakeUpstream().threaded() as made:
        yield made


@pytest.fixture(scope="module")
def gateway(upstream: FakeUpstream, second: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    config = (
        claude("claude", upstream.url)
        + claude("small-claude", upstream.url, "max_output_tokens = 777")
        + claude("limited", upstream.url)
        + claude("failing-0", upstream.url)
        + claude("failing-1", upstream.url)
        + backend("papers", second.url, price=DEAR, more='capabilities = ["tools", "documents", "json_schema"]')
        + backend("gpt", upstream.url)
        + backend("thinker", upstream.url, more='capabilities = ["tools", "reasoning_effort"]')
        + "".join(route(name, name) for name in ("claude", "small-claude", "limited", "gpt", "thinker"))
        + route("kept", "claude", more='cache = "always"')
        + route("either 0", "failing-0", "papers")
        + route("either 1", "failing-1", "papers")
        + route("once", "claude", more="max_attempts = 1")
        + route("gpt once", "gpt", more="max_attempts = 1")
    )
    with running(tmp_path_factory.mktemp("gateway"), config, UPSTREAM_KEY="upstream-secret-key") as made:
        made.key("alpha")
        yield made


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key=gateway.keys["alpha"], max_retries=0, timeout=30) as made:
        yield made


@pytest.fixture(autouse=True)
def fresh(upstream: FakeUpstream, second: FakeUpstream) -> None:
    for one in (upstream, second):
        one.requests.clear()
        one.play()


# ---- the same language on both sides ------------------------------------------------------------------------------------------------
def test_a_whole_answer_of_the_same_language(gateway: Gateway, client: anthropic.Anthropic, upstream: FakeUpstream) -> None:
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 12304, "cache_read_input_tokens": 0, "output_tokens": 550}
    upstream.play(json_reply(message([{"type": "text", "text": "Hello"}], **usage)))
    raw = client.messages.with_raw_response.create(
        model="claude", max_tokens=100, messages=HELLO, extra_headers={"anthropic-beta": "files-api-2025-04-14"}
    )
    answer = raw.parse()
    assert answer.content[0].text == "Hello"  # type: ignore[union-attr]
    assert answer.usage.cache_creation_input_tokens == 12304
    assert raw.headers["x-tollway-cost-usd"] == "0.054399000"  # G04
    seen = upstream.requests[0]
    assert seen.target == "/v1/messages"
    assert seen.json() == {"model": "m-claude", "max_tokens": 100, "messages": HELLO}
    assert seen.headers["x-api-key"] == "upstream-secret-key" and "authorization" not in seen.headers
    assert seen.headers["anthropic-version"] == "2023-06-01" and seen.headers["anthropic-beta"] == "files-api-2025-04-14"


def test_a_stream_of_the_same_language_byte_for_byte(gateway: Gateway, upstream: FakeUpstream) -> None:
    events = text_stream("Hel", "lo")
    upstream.play(sse_reply(events, done=False))
    body = json.dumps({"model": "claude", "max_tokens": 9, "messages": HELLO, "stream": True}).encode()
    status, raw, headers = gateway.call("POST", "/v1/messages", body, gateway.keys["alpha"])
    cost = b": tollway-cost-usd 0.000300000\n\n"  # G24: 25 in, 15 out
    assert (status, raw) == (200, b"".join(events[:-1]) + cost + b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
    assert headers["content-type"].startswith("text/event-stream")


def test_the_clients_stream_helper(client: anthropic.Anthropic, upstream: FakeUpstream) -> None:
    upstream.play(sse_reply(text_stream("Hel", "lo"), done=False))
    with client.messages.stream(model="claude", max_tokens=9, messages=HELLO) as opened:
        assert "".join(opened.text_stream) == "Hello"
        final = opened.get_final_message()
    assert (final.stop_reason, final.usage.input_tokens, final.usage.output_tokens) == ("end_turn", 25, 15)


async def test_the_asynchronous_client(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(sse_reply(text_stream("a", "b"), done=False))
    async with (
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key=gateway.keys["alpha"], max_retries=0) as made,
        made.messages.stream(model="claude", max_tokens=9, messages=HELLO) as opened,
    ):
        assert [text async for text in opened.text_stream] == ["a", "b"]


def test_g36_thinking_goes_back_unchanged(gateway: Gateway, upstream: FakeUpstream) -> None:
    for thinking in (
        {"type": "thinking", "thinking": "I look it up", "signature": SIGNATURE},
        {"type": "thinking", "thinking": "", "signature": SIGNATURE},
        {"type": "redacted_thinking", "data": "abc=="},
    ):
        call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Köln"}}
        turns = [*HELLO, {"role": "assistant", "content": [thinking, call]}]
        turns.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}]})
        sent = json.dumps({"model": "claude", "messages": turns, "max_tokens": 9000, "tools": [TOOL]}, ensure_ascii=False).encode()
        upstream.play(json_reply(message([{"type": "text", "text": "Rain."}])))
        status, raw, _ = gateway.call("POST", "/v1/messages", sent, gateway.keys["alpha"])
        assert status == 200, raw
        nested = json.dumps(turns, ensure_ascii=False).encode()
        assert nested in upstream.requests[-1].body


# ---- an Anthropic client on a backend that speaks OpenAI's language -----------------------------------------------------------------
def test_an_openai_backend_answers_whole(client: anthropic.Anthropic, upstream: FakeUpstream) -> None:
    upstream.play(json_reply(chat_answer("Hello there", usage=(1000, 5))))
    raw = client.messages.with_raw_response.create(
        model="gpt",
        max_tokens=100,
        system=[{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
        messages=HELLO,
        stop_sequences=["END"],
        extra_body={"temperature": 0.5, "top_k": 5},
        metadata={"user_id": "u1"},
    )
    answer = raw.parse()
    assert answer.content[0].text == "Hello there"  # type: ignore[union-attr]
    assert (answer.stop_reason, answer.usage.input_tokens, answer.usage.output_tokens) == ("end_turn", 1000, 5)
    assert upstream.requests[0].json() == {
        "model": "m-basic",
        "messages": [{"role": "system", "content": "Be kind."}, *HELLO],
        "max_tokens": 100,
        "temperature": 0.5,
        "stop": ["END"],
        "user": "u1",
    }
    assert raw.headers["x-tollway-dropped"] == "top_k, messages.cache_control"


def test_an_openai_backend_streams_with_its_real_input_tokens(client: anthropic.Anthropic, upstream: FakeUpstream) -> None:
    upstream.play(sse_reply(chat_chunks(["Hel", "lo"], usage=(1000, 2))))
    with client.messages.stream(model="gpt", max_tokens=9, messages=HELLO) as opened:
        kinds = [e.type for e in opened if e.type not in ("text", "input_json")]
        final = opened.get_final_message()
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert final.content[0].text == "Hello"  # type: ignore[union-attr]
    assert (final.stop_reason, final.usage.input_tokens, final.usage.output_tokens) == ("end_turn", 1000, 2)


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def piece(index: int, arguments: str, **head: Any) -> dict[str, Any]:
    name = head.pop("name", None)
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, **head, "function": function}]}


def test_parallel_calls_of_an_openai_backend(client: anthropic.Anthropic, upstream: FakeUpstream) -> None:
    chunks = [
        chunk({"role": "assistant", "content": "I look."}),
        chunk(piece(0, "", id="call_a", type="function", name="weather")),
        chunk(piece(0, '{"city":')),
        chunk(piece(0, '"Bonn"}')),
        chunk(piece(1, "", id="call_b", type="function", name="weather")),
        chunk({}, "tool_calls"),
    ]
    upstream.play(sse_reply(chunks))
    with client.messages.stream(model="gpt", max_tokens=99, messages=HELLO, tools=[TOOL], tool_choice={"type": "any"}) as opened:  # type: ignore[list-item]
        final = opened.get_final_message()
    assert [block.model_dump(include={"type", "id", "input"}) for block in final.content] == [
        {"type": "text"},
        {"type": "tool_use", "id": "call_a", "input": {"city": "Bonn"}},
        {"type": "tool_use", "id": "call_b", "input": {}},
    ]
    assert final.stop_reason == "tool_use"
    sent = upstream.requests[0].json()
    assert sent["tool_choice"] == "required"
    assert sent["tools"] == [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": TOOL["input_schema"]}}]


def test_results_with_images_and_errors_reach_an_openai_backend(client: anthropic.Anthropic, upstream: FakeUpstream) -> None:
    image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    turns: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "look"}, image]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bonn"}},
                {"type": "tool_use", "id": "toolu_2", "name": "weather", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a map"}, image]},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": "no city", "is_error": True},
                {"type": "text", "text": "go on"},
            ],
        },
    ]
    raw = client.messages.with_raw_response.create(model="gpt", max_tokens=9, messages=turns, tools=[TOOL])  # type: ignore[list-item]
    url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    assert upstream.requests[0].json()["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "look"}, url]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Bonn"}'}},
                {"id": "toolu_2", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "a map"},
        {"role": "tool", "tool_call_id": "toolu_2", "content": "Error: no city"},
        {"role": "user", "content": [{"type": "text", "text": "From the result of tool call toolu_1:"}, url]},
        {"role": "user", "content": "go on"},
    ]
    assert raw.headers["x-tollway-dropped"] == "messages.thinking"


def test_thinking_becomes_effort_where_the_model_has_it(client: anthropic.Anthropic, upstream: FakeUpstream) -> None:
    ask: dict[str, Any] = {"max_tokens": 5000, "messages": HELLO, "thinking": {"type": "enabled", "budget_tokens": 2048}}
    client.messages.create(model="thinker", **ask)
    assert upstream.requests[0].json()["reasoning_effort"] == "low"
    raw = client.messages.with_raw_response.create(model="gpt", **ask)
    assert "reasoning_effort" not in upstream.requests[1].json() and raw.headers["x-tollway-dropped"] == "thinking"


def test_what_only_anthropic_has_is_refused_by_name(client: anthropic.Anthropic, upstream: FakeUpstream) -> None:
    search: Any = {"type": "web_search_20250305", "name": "web_search"}
    with pytest.raises(anthropic.BadRequestError, match="web_search_20250305"):
        client.messages.create(model="gpt", max_tokens=9, messages=HELLO, tools=[search])
    with pytest.raises(anthropic.BadRequestError, match="container"):
        client.messages.create(model="gpt", max_tokens=9, messages=HELLO, extra_body={"container": "c1"})
    assert upstream.requests == []


# ---- an OpenAI client on a backend that speaks Anthropic's language -----------------------------------------------------------------
def test_an_anthropic_backend_answers_an_openai_client(gateway: Gateway, upstream: FakeUpstream) -> None:
    thinking = {"type": "thinking", "thinking": "I look it up", "signature": SIGNATURE}
    calls = [{"type": "tool_use", "id": f"toolu_{n}", "name": "weather", "input": {"n": n}} for n in (1, 2)]
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 12304, "cache_read_input_tokens": 0, "output_tokens": 550}
    upstream.play(json_reply(message([thinking, {"type": "text", "text": "Two."}, *calls], "tool_use", **usage)))
    openai_tool: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}}
    turns: list[Any] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}}, url]},
    ]
    raw = gateway.client().chat.completions.with_raw_response.create(
        model="small-claude", messages=turns, tools=[openai_tool], reasoning_effort="low", stop="END", seed=7, parallel_tool_calls=False
    )
    answer = raw.parse()
    assert upstream.requests[0].json() == {
        "model": "m-claude",
        "system": "Be kind.",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                ],
            }
        ],
        "tools": [{"name": "weather", "input_schema": {"type": "object", "properties": {}}}],
        "max_tokens": 777,  # the backend's own maximum
        "stop_sequences": ["END"],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    }
    assert raw.headers["x-tollway-dropped"] == "seed, reasoning_effort, messages.image_url.detail"
    choice = answer.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Two.")
    assert [(call.id, json.loads(call.function.arguments)) for call in choice.message.tool_calls or []] == [  # type: ignore[union-attr]
        ("toolu_1", {"n": 1}),
        ("toolu_2", {"n": 2}),
    ]
    assert answer.usage is not None and (answer.usage.prompt_tokens, answer.usage.total_tokens) == (12307, 12857)  # G04
    assert raw.headers["x-tollway-cost-usd"] == "0.054399000"
    # the next turn carries the signed thinking back, as the client got it
    said = choice.message.model_dump(exclude_none=True)
    results = [{"role": "tool", "tool_call_id": f"toolu_{n}", "content": "rain"} for n in (1, 2)]
    upstream.play(json_reply(message([{"type": "text", "text": "Rain."}])))
    gateway.client().chat.completions.create(
        model="claude", messages=[*turns, said, *results], tools=[openai_tool], reasoning_effort="low", max_tokens=4000
    )
    sent = upstream.requests[1].json()
    assert sent["messages"][1] == {"role": "assistant", "content": [thinking, {"type": "text", "text": "Two."}, *calls]}
    assert [block["tool_use_id"] for block in sent["messages"][2]["content"]] == ["toolu_1", "toolu_2"]
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 2048}


def test_g15_a_stream_with_two_calls_for_an_openai_client(gateway: Gateway, upstream: FakeUpstream) -> None:
    def call(n: int) -> dict[str, Any]:
        return {"type": "tool_use", "id": f"toolu_{n}", "name": "weather", "input": {}}

    def part(text: str) -> dict[str, Any]:
        return {"type": "input_json_delta", "partial_json": text}

    text = ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "I look."}])
    upstream.play(
        sse_reply(stream([text, (call(1), [part(""), part('{"a":'), part("1}")]), (call(2), [part("")])], "tool_use"), done=False)
    )
    chunks = list(
        gateway.client().chat.completions.create(model="claude", messages=HELLO, stream=True, stream_options={"include_usage": True})
    )
    got: dict[int, list[str]] = {}
    for c in chunks:
        for one in (c.choices[0].delta.tool_calls or []) if c.choices else []:
            assert one.function is not None
            known = got.setdefault(one.index, [one.id or "", ""])
            known[1] += one.function.arguments or ""
    assert {index: (name, json.loads(text)) for index, (name, text) in got.items()} == {0: ("toolu_1", {"a": 1}), 1: ("toolu_2", {})}
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["tool_calls"]
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens == 40  # G24


def test_g34_what_anthropic_lacks_is_refused_or_named(gateway: Gateway, upstream: FakeUpstream) -> None:
    def ask(**fields: Any) -> tuple[int, Any]:
        body = json.dumps({"model": "claude", "messages": HELLO, **fields}).encode()
        status, raw, _ = gateway.call("POST", "/v1/chat/completions", body, gateway.keys["alpha"])
        return status, json.loads(raw)

    for field, value in (("n", 2), ("logit_bias", {"5": 1}), ("presence_penalty", 1.0), ("logprobs", True), ("temperature", 1.5)):
        status, told = ask(**{field: value})
        assert status == 400 and told["error"]["param"] == field, (field, told)
    assert upstream.requests == []
    upstream.play(json_reply(message([{"type": "text", "text": "until"}], "stop_sequence")))
    status, told = ask(stop=["END"])
    assert (status, told["choices"][0]["finish_reason"]) == (200, "stop")


def test_names_that_a_client_made_up_break_no_header(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(json_reply(message([{"type": "text", "text": "x"}])))
    names = {"a\r\nset-cookie: b": 1, "é": 2, **{f"long-{n}": n for n in range(500)}}
    body = json.dumps({"model": "claude", "messages": [{"role": "user", "content": "hi", **names}]}).encode()
    status, _, headers = gateway.call("POST", "/v1/chat/completions", body, gateway.keys["alpha"])
    assert status == 200 and "set-cookie" not in headers
    assert headers["x-tollway-dropped"].startswith(r"messages.a\r\nset-cookie: b, messages.\xe9, messages.long-0")
    assert len(headers["x-tollway-dropped"]) <= 1024


def test_g35_empty_and_broken_arguments(gateway: Gateway, upstream: FakeUpstream) -> None:
    def turns(arguments: str) -> bytes:
        call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
        history = [
            *HELLO,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "x"},
        ]
        return json.dumps({"model": "claude", "messages": history}).encode()

    for arguments in ("", " \n"):
        upstream.play(json_reply(message([{"type": "text", "text": "x"}])))
        assert gateway.call("POST", "/v1/chat/completions", turns(arguments), gateway.keys["alpha"])[0] == 200
        assert upstream.requests[-1].json()["messages"][1]["content"][0]["input"] == {}
    status, raw, _ = gateway.call("POST", "/v1/chat/completions", turns('{"a": '), gateway.keys["alpha"])
    assert status == 400 and json.loads(raw)["error"]["param"] == "messages[1].tool_calls[0].function.arguments"


# ---- one request, two languages to choose from --------------------------------------------------------------------------------------
DOCUMENT = {"type": "document", "title": "a.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
FILE = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


def test_g30_an_error_before_the_first_event_fails_over_into_the_other_language(
    client: anthropic.Anthropic, upstream: FakeUpstream, second: FakeUpstream
) -> None:
    ask: dict[str, Any] = {
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "read"}, DOCUMENT]}],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    }
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    second.play(sse_reply(chat_chunks(['{"n":', "1}"], usage=(7, 2))))
    for n, broken in enumerate((json_reply(overloaded, 529), sse_reply([event(**overloaded)], done=False))):
        upstream.play(broken)
        with client.messages.stream(model=f"either {n}", **ask) as opened:
            assert opened.response.headers["x-tollway-backend"] == "papers"
            final = opened.get_final_message()
        assert json.loads(final.content[0].text) == {"n": 1}  # type: ignore[union-attr]
        sent = second.requests[-1].json()
        assert sent["messages"] == [{"role": "user", "content": [{"type": "text", "text": "read"}, FILE]}]
        assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
        assert upstream.requests[n].json()["messages"] == ask["messages"]


def test_a_file_and_a_schema_of_an_openai_client(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(json_reply(message([{"type": "text", "text": '{"n": 1}'}])))
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
    turns: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "read"}, FILE]}]
    answer = gateway.client().chat.completions.create(model="claude", messages=turns, response_format=form, max_tokens=9)
    assert json.loads(answer.choices[0].message.content or "") == {"n": 1}
    sent = upstream.requests[0].json()
    assert sent["messages"] == [{"role": "user", "content": [{"type": "text", "text": "read"}, DOCUMENT]}]
    assert sent["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}


# ---- errors, cuts, counting ---------------------------------------------------------------------------------------------------------
def test_errors_in_the_shape_of_the_language(gateway: Gateway, client: anthropic.Anthropic, upstream: FakeUpstream) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(model="nope", max_tokens=9, messages=HELLO)
    assert (caught.value.type, caught.value.error_code) == ("not_found_error", "model_not_found")
    with (
        anthropic.Anthropic(base_url=gateway.url, api_key="tw-no", max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError),
    ):
        stranger.messages.create(model="claude", max_tokens=9, messages=HELLO)
    upstream.play(json_reply({"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}, 429, {"retry-after": "7"}))
    with pytest.raises(anthropic.RateLimitError) as limited:
        client.messages.create(model="limited", max_tokens=9, messages=HELLO)
    assert 1 <= int(limited.value.response.headers["retry-after"]) <= 7
    status, raw, _ = gateway.call("POST", "/v1/messages", json.dumps({"model": "gpt", "messages": HELLO}).encode(), gateway.keys["alpha"])
    told = json.loads(raw)
    assert (status, told["type"], told["error"]["details"]["param"]) == (400, "error", "max_tokens")
    assert gateway.get("/v1/messages", gateway.keys["alpha"])[2]["allow"] == "POST"


def test_g08_a_cut_stream_ends_with_an_error_event(client: anthropic.Anthropic, gateway: Gateway, upstream: FakeUpstream) -> None:
    for model, reply in (
        ("gpt once", sse_reply(chat_chunks(["half"], finish=None), done=False, end=close())),
        ("once", sse_reply(text_stream("half", end=False), done=False, end=close())),
    ):
        upstream.play(reply)
        texts = []
        with pytest.raises(anthropic.APIStatusError, match="ended") as caught:
            for one in client.messages.create(model=model, max_tokens=9, messages=HELLO, stream=True):
                if one.type == "content_block_delta" and one.delta.type == "text_delta":
                    texts.append(one.delta.text)
        assert texts == ["half"] and caught.value.type == "api_error"


def test_a_stored_answer_serves_both_forms(client: anthropic.Anthropic, upstream: FakeUpstream) -> None:
    upstream.play(json_reply(message([{"type": "text", "text": "once"}], input_tokens=10, output_tokens=2)))
    ask: dict[str, Any] = {"model": "kept", "max_tokens": 5, "messages": [{"role": "user", "content": "both forms"}]}
    assert client.messages.create(**ask).content[0].text == "once"  # type: ignore[union-attr]
    with client.messages.stream(**ask) as opened:
        final = opened.get_final_message()
    assert final.content[0].text == "once" and final.usage.input_tokens == 10  # type: ignore[union-attr]
    assert len(upstream.requests) == 1


def test_counting_tokens(client: anthropic.Anthropic, upstream: FakeUpstream) -> None:
    few = client.messages.count_tokens(model="claude", messages=HELLO).input_tokens
    many = client.messages.count_tokens(
        model="claude", messages=[{"role": "user", "content": "word " * 1000}], system="Be kind."
    ).input_tokens
    assert 3 <= few <= 30 and 900 <= many <= 1200
    with pytest.raises(anthropic.NotFoundError):
        client.messages.count_tokens(model="nope", messages=HELLO)
    assert upstream.requests == []


def test_the_document_knows_the_routes(gateway: Gateway) -> None:
    document = json.loads(gateway.get("/schema/openapi.json")[1])
    assert {"/v1/messages", "/v1/messages/count_tokens"} <= set(document["paths"])
