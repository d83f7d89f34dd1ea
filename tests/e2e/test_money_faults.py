"""What others got wrong about money, by its number in the list of known faults, and what vendors do that a reservation did not foresee."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.e2e.harness import BASIC, FLAT, Gateway, backend, free_port, route, running
from tests.fakes.messages import text_stream
from tests.fakes.responses import stream as response_stream
from tests.fakes.responses import text as response_text
from tests.fakes.upstream import FakeUpstream, chat_answer, chat_chunks, hang, json_reply, sse_reply

TWELVE: list[dict[str, Any]] = [{"role": "user", "content": "one two three four five"}]  # tokens, as the vendor's own tokenizer counts
CLAUDE = 'price = { input = "3.00", output = "15.00", cache_read = "0.30", cache_write_5m = "3.75", cache_write_1h = "6.00" }'
MOST = "max_output_tokens = 30000"
CUT_AT = 50


pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture(scope="module")
def gateway(upstream: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    config = (
        backend("basic", upstream.url, price=BASIC)
        + backend("flat", upstream.url, model="m-flat", price=FLAT, more=MOST)
        + backend("gone", f"http://127.0.0.1:{free_port()}", model="m-flat", price=FLAT, more=MOST)
        + f'[[backends]]\nname = "claude"\nvendor = "anthropic"\nmodel = "m-claude"\nbase_url = "{upstream.url}/v1"\n'
        f'api_key = "env:UPSTREAM_KEY"\n{CLAUDE}\n'
        + backend("gpt", upstream.url, price=FLAT, more=MOST + '\ndialect = "openai_responses"')
        + "".join(route(name, name, more="max_attempts = 1") for name in ("basic", "flat", "gone", "claude", "gpt"))
    )
    with running(tmp_path_factory.mktemp("gateway"), config, UPSTREAM_KEY="upstream-secret-key") as made:
        for team, usd in (("alpha", "1000"), ("g26", "1.00"), ("cut", "1.00"), ("over", "1.00"), ("poor", "0.000001"), ("g02", "0.299")):
            made.key(team)
            made.budget(usd, team=team)
        counted(made, upstream)
        yield made


def counted(gateway: Gateway, upstream: FakeUpstream) -> None:
    """Return when every worker knows the budgets and has its tokenizer: until then it counts by bytes."""
    upstream.play(json_reply(chat_answer("well", usage=None)))
    time.sleep(2.2)
    for _ in range(100):
        ask(gateway, "basic", "alpha")
        if row(gateway, "alpha")["input_tokens"] == 12:
            return
    pytest.fail("the tokenizer does not come")


def body(model: str, **more: Any) -> bytes:
    return json.dumps({"model": model, "messages": TWELVE} | more).encode()


def ask(gateway: Gateway, model: str, team: str, **more: Any) -> tuple[int, bytes]:
    status, answer, _ = gateway.call("POST", "/v1/chat/completions", body(model, **more), gateway.keys[team])
    return status, answer


def until(true: Callable[[], Any], within_s: float = 15.0) -> Any:
    end = time.monotonic() + within_s
    while not (found := true()):
        assert time.monotonic() < end, "not in time"
        time.sleep(0.1)
    return found


def rows(gateway: Gateway, team: str) -> list[dict[str, Any]]:
    return gateway.rows("SELECT u.* FROM usage u JOIN teams t ON t.id = u.team_id WHERE t.name = :team ORDER BY started_at_us", team=team)


def row(gateway: Gateway, team: str, count: int = 0) -> dict[str, Any]:
    """The newest row of a team, once it has more than `count`."""
    return until(lambda: found[-1] if len(found := rows(gateway, team)) > count else None)  # type: ignore[no-any-return]


def leave_after(gateway: Gateway, team: str, ask: bytes, pieces: int) -> None:
    """Read so many pieces of content, then hang up."""
    with socket.create_connection(("127.0.0.1", gateway.port), 30) as link:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.keys[team]}\r\n"
        link.sendall(f"{head}content-length: {len(ask)}\r\n\r\n".encode() + ask)
        seen = b""
        while seen.count(b'"content": "x"') < pieces:
            data = link.recv(65536)
            assert data, seen
            seen += data


def window(gateway: Gateway, team: str) -> dict[str, Any]:
    return gateway.rows(
        "SELECT w.spent, w.leased FROM budget_windows w JOIN budgets b ON b.id = w.budget_id JOIN teams t ON t.id = b.scope_id"
        " WHERE b.scope_kind = 'team' AND t.name = :team",
        team=team,
    )[0]


def test_g02_without_max_tokens_the_models_own_maximum_is_reserved(gateway: Gateway, upstream: FakeUpstream) -> None:
    """0.30 of 0.299; what the client names is reserved instead."""
    status, told = ask(gateway, "flat", "g02")
    assert status == 402 and b"0.300000000" in told
    assert upstream.requests == []
    assert ask(gateway, "flat", "g02", max_tokens=29_000)[0] == 200


def test_g10_who_leaves_pays_for_what_was_generated(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play([*sse_reply(chat_chunks(["x"] * 20, finish=None), done=False, end=None), hang()])
    before = len(rows(gateway, "alpha"))
    leave_after(gateway, "alpha", body("basic", stream=True), 20)
    left = row(gateway, "alpha", before)
    assert (left["outcome"], left["input_tokens"], left["output_tokens"], left["cost"]) == ("cancelled", 12, 20, 52_000)
    assert left["estimated"]
    upstream.play([hang()])
    with socket.create_connection(("127.0.0.1", gateway.port), 30) as link:
        asked = body("basic", stream=True)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.keys['alpha']}\r\n"
        link.sendall(f"{head}content-length: {len(asked)}\r\n\r\n".encode() + asked)
        until(lambda: len(upstream.requests) == 2)
    early = row(gateway, "alpha", before + 1)
    assert (early["outcome"], early["input_tokens"], early["output_tokens"], early["cost"]) == ("cancelled", 12, 0, 12_000)


def test_g26_what_is_cut_gives_back_what_it_held(gateway: Gateway, upstream: FakeUpstream) -> None:
    """Three streams hold 0.30 of 1.00 each and are left after 100 tokens; a connection and a request are refused; then a fourth."""
    upstream.play([*sse_reply(chat_chunks(["x"] * 100, finish=None), done=False, end=None), hang()])
    for number in range(3):
        leave_after(gateway, "g26", body("flat", stream=True, max_tokens=30_000), 100)
        row(gateway, "g26", number)
    assert ask(gateway, "gone", "g26", max_tokens=30_000)[0] == 503
    assert ask(gateway, "flat", "g26", max_tokens=30_000, n=4)[0] == 402
    until(lambda: window(gateway, "g26") == {"spent": 3_000_000, "leased": 0})
    upstream.play(json_reply(chat_answer("fourth", usage=(12, 0))))
    assert ask(gateway, "flat", "g26", max_tokens=30_000)[0] == 200
    until(lambda: window(gateway, "g26") == {"spent": 3_000_000, "leased": 0})


def test_a_negative_count_refills_no_budget(gateway: Gateway, upstream: FakeUpstream) -> None:
    """lingyuins/octopus#243: what cannot be is not taken over; the row is an estimate and says so."""
    answer = chat_answer("x x x", usage=(12, 3))
    answer["usage"] |= {"completion_tokens": -1_000_000, "total_tokens": -999_988}
    upstream.play(json_reply(answer))
    before = len(rows(gateway, "over"))
    assert ask(gateway, "flat", "over", max_tokens=100)[0] == 200
    charged = row(gateway, "over", before)
    assert (charged["outcome"], charged["output_tokens"], charged["cost"]) == ("completed", 3, 30_000)
    assert charged["estimated"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_every_surface_has_the_same_gate(gateway: Gateway, upstream: FakeUpstream, path: str) -> None:
    """maximhq/bifrost#2873: no way round a budget."""
    status, told, headers = gateway.call("POST", path, body("flat", max_tokens=100), gateway.keys["poor"])
    assert (status, headers["x-should-retry"]) == (402, "false"), told
    assert upstream.requests == []


def test_a_vendor_that_bills_more_is_booked_in_full_flagged_and_counted(gateway: Gateway, upstream: FakeUpstream) -> None:
    """1.2 times what was reserved: the one way past a cap, so it must show."""
    upstream.play(json_reply(chat_answer("more", usage=(12, 1200))))
    before, billed = len(rows(gateway, "over")), sum(one["cost"] for one in rows(gateway, "over"))
    status, _, headers = gateway.call("POST", "/v1/chat/completions", body("flat", max_tokens=1000), gateway.keys["over"])
    assert (status, headers["x-tollway-cost-usd"]) == (200, "0.012000000")
    booked = row(gateway, "over", before)
    assert (booked["outcome"], booked["cost"]) == ("completed", 12_000_000)
    attempt = gateway.rows("SELECT cost, worst, error FROM attempts WHERE request_id = :id", id=booked["id"])
    assert attempt == [{"cost": 12_000_000, "worst": 10_000_000, "error": "over_reserved"}]
    metrics = gateway.get("/metrics")[1].decode().splitlines()
    assert 'tollway_over_reserved_total{backend="flat"} 1.0' in metrics
    assert 'tollway_over_reserved_nanousd_total{backend="flat"} 2e+06' in metrics
    until(lambda: window(gateway, "over")["spent"] == billed + 12_000_000)


@pytest.mark.parametrize("tokens_per_event", [1, 7])
def test_a_stream_without_end_is_cut_at_its_reservation(gateway: Gateway, upstream: FakeUpstream, tokens_per_event: int) -> None:
    upstream.play([*sse_reply(chat_chunks([" x" * tokens_per_event] * 2000), delay_s=0.005), hang()])
    before = len(rows(gateway, "cut"))
    options = {"max_tokens": CUT_AT, "stream": True, "stream_options": {"include_usage": True}, "temperature": 0, "seed": tokens_per_event}
    status, answer = ask(gateway, "flat", "cut", **options)
    assert status == 200
    events = [json.loads(line[6:]) for line in answer.decode().splitlines() if line.startswith("data: {")]
    came = "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"]).count("x")
    assert CUT_AT < came < 1000, "what one read brings is passed on whole; how much that is depends on the machine"
    assert [c["finish_reason"] for event in events for c in event["choices"] if c.get("finish_reason")] == ["length"]
    assert events[-1]["usage"]["completion_tokens"] == came
    assert answer.endswith(b"data: [DONE]\n\n")
    until(lambda: upstream.requests[0].closed_at is not None)
    booked = row(gateway, "cut", before)
    assert (booked["outcome"], booked["output_tokens"], booked["cost"]) == ("completed", came, came * 10_000)
    assert booked["estimated"]
    attempt = gateway.rows("SELECT error FROM attempts WHERE request_id = :id", id=booked["id"])
    assert attempt == [{"error": "cut_at_reservation"}]
    upstream.play(sse_reply(chat_chunks(["x"], usage=(12, 1))))
    assert b"cut" not in ask(gateway, "flat", "cut", **options)[1], "a cut answer is not kept for others"
    assert len(upstream.requests) == 2
    row(gateway, "cut", before + 1)


def test_a_message_without_end_is_cut_too(gateway: Gateway, upstream: FakeUpstream) -> None:
    """In the language of the backend itself, whose own events are passed on as they are."""
    before = len(rows(gateway, "cut"))
    upstream.play([*sse_reply(text_stream(*[" x"] * 2000, end=False), delay_s=0.005, done=False), hang()])
    with (
        anthropic.Anthropic(base_url=gateway.url, api_key=gateway.keys["cut"], max_retries=0, timeout=60) as client,
        client.messages.stream(model="claude", max_tokens=CUT_AT, messages=[{"role": "user", "content": "go on"}]) as stream,
    ):
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert CUT_AT < text.count("x") < 1000
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", text.count("x"))
    assert row(gateway, "cut", before)["surface"] == "anthropic_messages"
    until(lambda: upstream.requests[0].closed_at is not None)


def test_a_response_without_end_is_cut_too(gateway: Gateway, upstream: FakeUpstream) -> None:
    before = len(rows(gateway, "cut"))
    *events, _ = response_stream(response_text(" x" * 2000), pieces=2000, end=None)
    upstream.play([*sse_reply(events, delay_s=0.005, done=False), hang()])
    with openai.OpenAI(base_url=gateway.url + "/v1", api_key=gateway.keys["cut"], max_retries=0, timeout=60) as client:
        found = list(client.responses.create(model="gpt", input="go on", max_output_tokens=CUT_AT, stream=True))
    came = "".join(one.delta for one in found if one.type == "response.output_text.delta").count("x")
    assert CUT_AT < came < 1000
    assert [one.sequence_number for one in found] == list(range(len(found)))
    last = found[-1]
    assert last.type == "response.incomplete" and last.response.incomplete_details is not None and last.response.usage is not None
    assert (last.response.incomplete_details.reason, last.response.usage.output_tokens) == ("max_output_tokens", came)
    assert (last.response.id, last.response.output_text.count("x")) == (found[0].response.id, came)  # type: ignore[union-attr]
    assert row(gateway, "cut", before)["surface"] == "openai_responses"
    until(lambda: upstream.requests[0].closed_at is not None)


def test_a_stream_within_its_limit_is_never_cut(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(sse_reply(chat_chunks(["x"] * CUT_AT, finish="length", usage=(12, CUT_AT))))
    before = len(rows(gateway, "cut"))
    assert ask(gateway, "flat", "cut", max_tokens=CUT_AT, stream=True)[0] == 200
    booked = row(gateway, "cut", before)
    assert (booked["output_tokens"], bool(booked["estimated"])) == (CUT_AT, False)
    assert gateway.rows("SELECT error FROM attempts WHERE request_id = :id", id=booked["id"]) == [{"error": ""}]
