"""A request's whole way, with the official client: answers, streams, failover, cache, ledger, bad input."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from tests.e2e.harness import Gateway, backend, route, running
from tests.fakes.upstream import FakeUpstream, chat_answer, chat_chunks, close, hang, json_reply, sse_reply
from tests.fixtures.waiting import until_true

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(scope="module")
def primary() -> Iterator[FakeUpstream]:
    with FakeUpstream().threaded() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def second() -> Iterator[FakeUpstream]:
    with FakeUpstream().threaded() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(primary: FakeUpstream, second: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    config = (
        backend("one", primary.url, more="idle_s = 2.0\nfirst_byte_s = 2.0")
        + backend("two", second.url, price='price = { input = "3.00", output = "6.00" }')
        + "".join(backend(name, primary.url) for name in ("failing-429", "failing-500", "failing-503", "failing-event", "limited"))
        + route("both", "one", "two")
        + "".join(route(f"after {name}", f"failing-{name}", "two") for name in ("429", "500", "503", "event"))
        + route("limited", "limited")
        + route("single", "one", more="max_attempts = 1")
        + route("kept", "one", more='cache = "always"\nmax_attempts = 1')
    )
    with running(tmp_path_factory.mktemp("gateway"), config, server="body_s = 1.0") as made:
        made.key("alpha")
        yield made


@pytest.fixture(autouse=True)
def fresh(primary: FakeUpstream, second: FakeUpstream) -> None:
    for upstream in (primary, second):
        upstream.requests.clear()
        upstream.play()


def row_of(gateway: Gateway, request_id: str) -> dict[str, Any]:
    """The settled row, which GET /v1/requests shows at the latest a second later."""
    end = time.monotonic() + 5
    while True:
        status, body, headers = gateway.get(f"/v1/requests/{request_id}", gateway.keys["alpha"])
        if status == 200:
            return json.loads(body)  # type: ignore[no-any-return]
        assert status == 404 and headers["retry-after"] == "1", body
        assert time.monotonic() < end, f"no row of {request_id}"
        time.sleep(0.1)


def test_a_whole_answer_with_its_cost_and_row(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(json_reply(chat_answer("Hello there", usage=(1000, 500))))
    raw = gateway.client().chat.completions.with_raw_response.create(model="single", messages=HELLO)
    answer = raw.parse()
    assert answer.choices[0].message.content == "Hello there"
    assert answer.usage is not None and answer.usage.prompt_tokens == 1000
    assert raw.headers["x-tollway-backend"] == "one"
    assert raw.headers["x-tollway-attempts"] == "1"
    assert raw.headers["x-tollway-cost-usd"] == "0.002000000"
    row = row_of(gateway, raw.headers["x-tollway-request-id"])
    assert row["cost_nanousd"] == 2_000_000 and row["outcome"] == "completed" and row["route"] == "single"
    assert [a["outcome"] for a in row["attempts"]] == ["completed"]
    sent = primary.requests[0].json()
    assert sent["model"] == "m-basic" and sent["messages"] == HELLO
    assert "authorization" not in primary.requests[0].headers  # the client's key goes nowhere


def test_a_stream_with_its_cost_in_a_comment(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(sse_reply(chat_chunks(["Hel", "lo"], usage=(1000, 2))))
    stream = gateway.client().chat.completions.create(model="single", messages=HELLO, stream=True)
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello"
    assert all(c.choices for c in chunks), "the client did not ask for a usage chunk"
    assert primary.requests[0].json()["stream_options"] == {"include_usage": True}
    primary.play(sse_reply(chat_chunks(["Hel", "lo"], usage=(1000, 2))))
    body = json.dumps({"model": "single", "messages": HELLO, "stream": True}).encode()
    _, raw, _ = gateway.call("POST", "/v1/chat/completions", body, gateway.keys["alpha"])
    assert raw.endswith(b": tollway-cost-usd 0.001004000\n\ndata: [DONE]\n\n")


async def test_the_asynchronous_client(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(sse_reply(chat_chunks(["a", "b", "c"], usage=(5, 3))))
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.keys["alpha"], max_retries=0) as client:
        stream = await client.chat.completions.create(model="single", messages=HELLO, stream=True, stream_options={"include_usage": True})
        chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "abc"
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens == 8


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_error_before_the_first_event_fails_over(
    gateway: Gateway, primary: FakeUpstream, second: FakeUpstream, status: int, stream: bool
) -> None:
    primary.play(json_reply({"error": {"message": "no"}}, status))
    second.play(sse_reply(chat_chunks(["fine"], usage=(5, 1))) if stream else json_reply(chat_answer("fine")))
    raw = gateway.client().chat.completions.with_raw_response.create(model=f"after {status}", messages=HELLO, stream=stream)
    assert raw.headers["x-tollway-backend"] == "two"


def test_an_error_event_first_in_a_stream_fails_over(gateway: Gateway, primary: FakeUpstream, second: FakeUpstream) -> None:
    primary.play(sse_reply([{"error": {"message": "overloaded", "code": 503}}], done=False))
    second.play(sse_reply(chat_chunks(["fine"], usage=(5, 1))))
    stream = gateway.client().chat.completions.create(model="after event", messages=HELLO, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in stream if c.choices) == "fine"


def test_without_another_backend_the_status_is_the_real_one(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(json_reply({"error": {"message": "slow down"}}, 429, {"retry-after": "30"}))
    with pytest.raises(openai.RateLimitError) as caught:
        gateway.client().chat.completions.create(model="limited", messages=HELLO, stream=True)
    assert caught.value.response.headers["content-type"].startswith("application/json")
    assert 1 <= int(caught.value.response.headers["retry-after"]) <= 30


def test_g08_a_cut_stream_ends_with_one_error_and_no_finish(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(sse_reply(chat_chunks([f"t{n} " for n in range(40)], finish=None), done=False, end=close()))
    body = json.dumps({"model": "single", "messages": HELLO, "stream": True}).encode()
    _, raw, headers = gateway.call("POST", "/v1/chat/completions", body, gateway.keys["alpha"])
    events = [json.loads(line[6:]) for line in raw.decode().splitlines() if line.startswith("data: {")]
    assert sum(bool(e.get("choices") and e["choices"][0]["delta"].get("content")) for e in events) == 40
    assert [e for e in events if "error" in e] == [events[-1]]
    assert all(c.get("finish_reason") is None for e in events for c in e.get("choices", []))
    row = row_of(gateway, headers["x-tollway-request-id"])
    assert row["outcome"] == "failed" and row["estimated"] and row["usage"]["output_tokens"] >= 40


def test_g09_g10_leaving_closes_upstream_and_is_charged(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(sse_reply(chat_chunks(["x"] * 600), delay_s=0.05))
    stream = gateway.client().chat.completions.create(model="single", messages=HELLO, stream=True)
    request_id = stream.response.headers["x-tollway-request-id"]
    for n, _ in enumerate(stream):
        if n == 5:
            break
    stream.close()
    left = time.monotonic()
    while primary.requests[0].closed_at is None and time.monotonic() < left + 3:
        time.sleep(0.01)
    closed = primary.requests[0].closed_at
    assert closed is not None and closed - left <= 1.0
    row = row_of(gateway, request_id)
    assert row["outcome"] == "cancelled" and row["estimated"] and row["cost_nanousd"] > 0
    assert len(primary.requests) == 1


def test_g09_leaving_a_whole_answer(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play([hang()])
    with pytest.raises(openai.APITimeoutError):
        gateway.client().with_options(timeout=0.5).chat.completions.create(model="single", messages=HELLO)
    left = time.monotonic()
    while primary.requests[0].closed_at is None and time.monotonic() < left + 3:
        time.sleep(0.01)
    assert primary.requests[0].closed_at is not None
    assert len(primary.requests) == 1


def test_g06_the_key_of_the_cache_holds_every_parameter(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(json_reply(chat_answer("cached", usage=(10, 2))))
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    other = {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}}
    base: dict[str, Any] = {"model": "single", "messages": HELLO, "temperature": 0, "tools": [tool]}
    changes: list[dict[str, Any]] = [
        {},
        {"max_tokens": 9},
        {"stop": ["x"]},
        {"top_p": 0.5},
        {"n": 1},
        {"seed": 7},
        {"tool_choice": "none"},
        {"tools": [tool, other]},
        {"response_format": {"type": "json_object"}},
        {"reasoning_effort": "low"},
    ]
    client = gateway.client().chat.completions.with_raw_response
    for change in changes:
        assert client.create(**{**base, **change}).headers["x-tollway-cache"] == "miss"
    again = client.create(**base)
    assert again.headers["x-tollway-cache"] == "hit"
    assert again.headers["x-tollway-cost-usd"] == "0.000000000"
    assert again.parse().usage == client.create(**base).parse().usage
    assert len(primary.requests) == 10
    row = row_of(gateway, again.headers["x-tollway-request-id"])
    assert row["outcome"] == "cached" and row["cost_nanousd"] == 0


def test_a_stored_answer_streams_too(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(json_reply(chat_answer("once", usage=(10, 2))))
    ask: dict[str, Any] = {"model": "single", "messages": [{"role": "user", "content": "both forms"}], "temperature": 0}
    assert gateway.client().chat.completions.create(**ask).choices[0].message.content == "once"
    streamed = list(gateway.client().chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in streamed if c.choices) == "once"
    assert streamed[-1].usage is not None and streamed[-1].usage.total_tokens == 12
    assert len(primary.requests) == 1


@pytest.mark.parametrize(
    "reply",
    [
        sse_reply(chat_chunks(["half"], finish=None), done=False, end=close()),
        sse_reply(chat_chunks(["half"], finish=None), done=True),
        sse_reply([*chat_chunks(["half"], finish=None), {"error": {"message": "broke"}}], done=False),
    ],
    ids=["cut", "done without finish", "error event"],
)
def test_g17_an_incomplete_stream_is_not_stored(
    gateway: Gateway, primary: FakeUpstream, reply: Any, request: pytest.FixtureRequest
) -> None:
    primary.play(reply)
    ask = {"model": "single", "messages": [{"role": "user", "content": request.node.name}], "temperature": 0, "stream": True}
    for _ in range(2):
        gateway.call("POST", "/v1/chat/completions", json.dumps(ask).encode(), gateway.keys["alpha"])
    assert len(primary.requests) == 2


def test_g18_a_stored_answer_stays_with_its_team(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(json_reply(chat_answer("secret")))
    alpha = gateway.keys["alpha"]
    beta = gateway.key("beta")
    ask = {"model": "single", "messages": [{"role": "user", "content": "tenancy"}], "temperature": 0}
    for key, body in ((alpha, ask), (beta, ask), (beta, {**ask, "user": "alpha"}), (alpha, ask)):
        status, _, headers = gateway.call("POST", "/v1/chat/completions", json.dumps(body).encode(), key)
        assert status == 200
    assert len(primary.requests) == 2
    assert headers["x-tollway-cache"] == "hit"


def test_a_hundred_identical_requests_are_one_call(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(json_reply(chat_answer("shared", usage=(10, 2)), delay_s=1.0))
    ask = {"model": "single", "messages": [{"role": "user", "content": "all at once"}], "temperature": 0}

    def one(_: int) -> tuple[int, str]:
        status, _, headers = gateway.call("POST", "/v1/chat/completions", json.dumps(ask).encode(), gateway.keys["alpha"])
        return status, headers["x-tollway-cost-usd"]

    with ThreadPoolExecutor(100) as pool:
        results = list(pool.map(one, range(100)))
    assert {status for status, _ in results} == {200}
    assert len(primary.requests) == 1
    assert sorted(cost for _, cost in results) == ["0.000000000"] * 99 + ["0.000014000"]


def test_the_leader_of_a_shared_call_may_leave(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(json_reply(chat_answer("stays", usage=(10, 2)), delay_s=1.7))
    ask: dict[str, Any] = {"model": "single", "messages": [{"role": "user", "content": "leader leaves"}], "temperature": 0}

    def lead() -> None:
        with pytest.raises(openai.APITimeoutError):
            gateway.client().with_options(timeout=1.0).chat.completions.create(**ask)

    leader = threading.Thread(target=lead)
    leader.start()
    until_true(lambda: primary.requests, "the leader's call")
    assert gateway.client().chat.completions.create(**ask).choices[0].message.content == "stays"
    leader.join()
    assert len(primary.requests) == 1


def in_flight(gateway: Gateway) -> float:
    text = gateway.get("/metrics")[1].decode()
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith("tollway_in_flight "))


def together(gateway: Gateway, body: dict[str, Any], *headers: dict[str, str], apart_s: float = 0.2) -> list[tuple[int, bytes]]:
    """One request per headers, each sent while those before it run; their status and body."""

    def one(n: int) -> tuple[int, bytes]:
        time.sleep(n * apart_s)
        raw = json.dumps(body).encode()
        return gateway.call("POST", "/v1/chat/completions", raw, gateway.keys["alpha"], headers[n])[:2]

    with ThreadPoolExecutor(len(headers)) as pool:
        return list(pool.map(one, range(len(headers))))


def test_a_shared_call_that_fails_leaves_nobody_behind(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(json_reply({"error": {"message": "no"}}, 400, delay_s=0.6))
    ask = {"model": "single", "messages": [{"role": "user", "content": "fails for all"}], "temperature": 0}
    assert [status for status, _ in together(gateway, ask, {}, {}, {}, apart_s=0.1)] == [400] * 3
    assert len(primary.requests) == 1
    assert in_flight(gateway) == 0


def test_a_deadline_ends_no_call_of_others(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(json_reply(chat_answer("in time", usage=(10, 2)), delay_s=1.2))
    ask = {"model": "single", "messages": [{"role": "user", "content": "in a hurry"}], "temperature": 0}
    hurried, patient = together(gateway, ask, {"x-tollway-deadline-ms": "500"}, {})
    assert hurried[0] == 504
    assert patient[0] == 200 and b"in time" in patient[1]
    assert in_flight(gateway) == 0


BAD: list[tuple[str, bytes, int, str | None]] = [
    ("malformed", b'{"model": "single", ', 400, None),
    ("not utf-8", b'{"model": "single", "messages": [{"role": "user", "content": "\xff"}]}', 400, None),
    ("not an object", b"[1]", 400, None),
    ("repeated key", b'{"model": "single", "messages": [], "model": "both"}', 400, "model"),
    ("no model", b'{"messages": [{"role": "user", "content": "x"}]}', 400, "model"),
    ("unknown model", b'{"model": "nope", "messages": [{"role": "user", "content": "x"}]}', 404, "model"),
    ("no messages", b'{"model": "single"}', 400, "messages"),
    ("wrong type", b'{"model": "single", "messages": [{"role": "user", "content": "x"}], "max_tokens": "many"}', 400, "max_tokens"),
    ("stream no bool", b'{"model": "single", "messages": [{"role": "user", "content": "x"}], "stream": 1}', 400, "stream"),
    ("api_base", b'{"model": "single", "messages": [{"role": "user", "content": "x"}], "api_base": "http://127.0.0.1:1"}', 400, "api_base"),
    (
        "nested",
        b'{"model":"single","messages":[{"role":"user","content":"x"}],"metadata":{"base_url":"http://127.0.0.1:1"}}',
        400,
        "metadata.base_url",
    ),
    ("extra body", b'{"model":"single","messages":[{"role":"user","content":"x"}],"extra_body":{"api_key":"k"}}', 400, "extra_body"),
]


def test_g07_bad_input_is_refused_and_leaves_nothing(gateway: Gateway, primary: FakeUpstream) -> None:
    time.sleep(0.7)  # rows of earlier tests arrive
    before = gateway.rows("SELECT count(*) AS n FROM usage")[0]["n"]
    for name, body, status, param in BAD:
        got, raw, _ = gateway.call("POST", "/v1/chat/completions", body, gateway.keys["alpha"])
        error = json.loads(raw)["error"]
        assert got == status, (name, raw)
        assert error["message"] and error["type"], name
        assert param is None or error["param"].startswith(param), (name, raw)
    time.sleep(0.7)
    assert gateway.rows("SELECT count(*) AS n FROM usage")[0]["n"] == before
    assert primary.requests == []


def test_g07_redirects_are_not_followed(gateway: Gateway, primary: FakeUpstream, second: FakeUpstream) -> None:
    primary.play(json_reply({}, 302, {"location": f"{second.url}/v1/chat/completions"}))
    with pytest.raises(openai.APIStatusError):
        gateway.client().chat.completions.create(model="single", messages=HELLO)
    assert second.requests == []


def test_g01_a_token_is_data(gateway: Gateway) -> None:
    for token in ("' OR '1'='1", "x'; SELECT pg_sleep(10); --", "tw-abcdefghijkl-" + "x" * 65000):
        began = time.monotonic()
        status, raw, _ = gateway.get("/v1/models", token)
        assert status in (401, 431), raw
        assert time.monotonic() - began < 8
        if status == 401:
            assert json.loads(raw)["error"]["code"] == "invalid_api_key"


def test_limits_and_methods(gateway: Gateway) -> None:
    key = gateway.keys["alpha"]
    assert gateway.get("/v1/chat/completions", key)[0] == 405
    assert gateway.get("/v1/chat/completions", key)[2]["allow"] == "POST"
    assert gateway.get("/nothing", key)[0] == 404
    status, raw, _ = gateway.call("POST", "/v1/chat/completions", b"x", key, {"content-encoding": "gzip"})
    assert status == 415, raw
    assert gateway.call("POST", "/v1/chat/completions", b"{}", None)[0] == 401


def test_models_openapi_metrics(gateway: Gateway) -> None:
    client = gateway.client()
    assert {"both", "single", "kept"} <= {m.id for m in client.models.list()}
    assert client.models.retrieve("both").id == "both"
    document = json.loads(gateway.get("/schema/openapi.json")[1])
    assert {"/v1/chat/completions", "/v1/models", "/health/live"} <= set(document["paths"])
    assert b"tollway_requests_total" in gateway.get("/metrics")[1]


def test_report_equals_what_clients_were_told(gateway: Gateway, primary: FakeUpstream) -> None:
    gateway.key("gamma")
    told = 0
    for n in range(6):
        primary.play(json_reply(chat_answer("x", usage=(100 + n, n))))
        raw = gateway.client(gateway.keys["gamma"]).chat.completions.with_raw_response.create(model="single", messages=HELLO)
        told += round(float(raw.headers["x-tollway-cost-usd"]) * 1e9)
    end = time.monotonic() + 5
    while True:
        table = [line.split(",") for line in gateway.cli("report", "--by", "team,backend", "--format", "csv").strip().splitlines()]
        head = table[0]
        rows = [dict(zip(head, line, strict=True)) for line in table[1:]]
        mine = [row for row in rows if row["team"] == "gamma"]
        booked = sum(round(float(row["cost_usd"]) * 1e9) for row in mine)
        if booked == told or time.monotonic() > end:
            break
        time.sleep(0.2)
    assert booked == told and told > 0


def test_explain_prints_the_decision(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(json_reply(chat_answer("x")))
    raw = gateway.client().chat.completions.with_raw_response.create(model="both", messages=HELLO)
    request_id = raw.headers["x-tollway-request-id"]
    text = ""

    def stored() -> bool:
        nonlocal text
        text = gateway.cli("explain", request_id, check=False)
        return bool(text)

    until_true(stored, "the decision is stored")
    assert "one" in text and "two" in text


def test_a_deadline_that_passes_is_504_before_the_first_token_and_an_event_after_it(
    gateway: Gateway, primary: FakeUpstream, second: FakeUpstream
) -> None:
    key, limit = gateway.keys["alpha"], {"x-tollway-deadline-ms": "700"}
    body = json.dumps({"model": "single", "messages": HELLO, "stream": True}).encode()
    primary.play([hang()])
    status, raw, headers = gateway.call("POST", "/v1/chat/completions", body, key, limit)
    assert status == 504 and json.loads(raw)["error"]["code"] in ("deadline_passed", "upstream_timeout")
    assert row_of(gateway, headers["x-tollway-request-id"])["outcome"] == "failed"
    for upstream in (primary, second):
        upstream.requests.clear()
        upstream.play([hang()])
    status, _, headers = gateway.call("POST", "/v1/chat/completions", body.replace(b"single", b"both"), key, limit)
    assert (status, headers["x-tollway-attempts"]) == (504, "1")
    assert len(primary.requests) + len(second.requests) == 1, "nobody is asked after the deadline"
    primary.play(sse_reply(chat_chunks(["z"] * 300), delay_s=0.05))
    status, raw, _ = gateway.call("POST", "/v1/chat/completions", body, key, limit)
    assert status == 200 and raw.count(b'"error"') == 1 and b'"finish_reason": "stop"' not in raw
    for wrong in ("soon", "-1", "0", "nan"):
        status, raw, _ = gateway.call("POST", "/v1/chat/completions", body, key, {"x-tollway-deadline-ms": wrong})
        assert status == 400 and json.loads(raw)["error"]["param"] == "x-tollway-deadline-ms", wrong


async def test_a_body_that_does_not_arrive_is_refused(gateway: Gateway) -> None:
    for sent in (b"", b'{"model": '):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.keys['alpha']}\r\ncontent-length: 100\r\n\r\n"
        )
        writer.write(head.encode() + sent)
        answer = await asyncio.wait_for(reader.read(2000), 30)
        assert answer.startswith(b"HTTP/1.1 408") and b"body_timeout" in answer
        writer.close()


async def test_twenty_clients_leave_at_random_points(gateway: Gateway, primary: FakeUpstream) -> None:
    primary.play(sse_reply(chat_chunks(["y"] * 100), first_s=0.1, delay_s=0.03))
    key = await asyncio.to_thread(gateway.key, "leavers")
    body = json.dumps({"model": "single", "messages": HELLO, "stream": True}).encode()

    async def leave(n: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
        writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        await asyncio.sleep(0.03 + n * 0.05)
        writer.close()

    await asyncio.gather(*(leave(n) for n in range(20)))
    end = time.monotonic() + 3
    while time.monotonic() < end and any(r.closed_at is None for r in primary.requests):  # noqa: ASYNC110 - on another loop
        await asyncio.sleep(0.02)
    assert all(r.closed_at is not None for r in primary.requests)
    await asyncio.sleep(1.5)
    rows = await gateway._rows("SELECT outcome FROM usage JOIN teams ON teams.id = usage.team_id WHERE teams.name = 'leavers'", {})
    assert len(rows) == 20
    assert {row["outcome"] for row in rows} == {"cancelled"}
    metrics = gateway.get("/metrics")[1].decode()
    assert "tollway_in_flight 0.0" in metrics
