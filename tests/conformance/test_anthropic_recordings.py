"""Recorded exchanges of Anthropic Messages through codec and gateway, where the folder TOLLWAY_RECORDINGS names is at hand.

What is expected is read off each recording here, with plain json and without the code under test. The gateway is a real one; its
upstream is the folder's own replay server, which writes the recorded bytes whole, by event and one, two or three at a time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from providers.dialects import DIALECTS, PLAIN, DecodeError
from providers.dialects.anthropic_messages.content import encode_messages, encode_tools
from providers.errors import ContextTooLong, Rejected, Unauthorized, Unsupported
from providers.types import Finished, Metered, ReasoningDelta, Request, Target, TextDelta, ToolCallDelta
from tests.e2e.harness import Gateway, free_port, route, running

FOLDER = os.environ.get("TOLLWAY_RECORDINGS", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="TOLLWAY_RECORDINGS names no folder of recordings")

MESSAGES = DIALECTS["anthropic_messages"]
CHUNKINGS = ("whole", "event", "1", "2", "3")
FINISH = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls", "refusal": "content_filter"}


def records() -> list[dict[str, Any]]:
    if not FOLDER:
        return []
    lines = [line for path in sorted(Path(FOLDER).glob("*.jsonl")) for line in path.read_text(encoding="utf-8").split("\n") if line]
    return [record for record in map(json.loads, lines) if record["api"] == "messages"]


def answers() -> list[dict[str, Any]]:
    return [record for record in records() if record["response"]["status"] == 200]


# ---- what a recording says ----------------------------------------------------------------------------------------------------------
def blocks_of(record: dict[str, Any]) -> tuple[list[dict[str, Any]], str | None, dict[str, Any]]:
    """(content, stop reason, usage), a stream put together as its vendor documents it."""
    response = record["response"]
    if response["kind"] == "json":
        return response["json"]["content"], response["json"]["stop_reason"], response["json"]["usage"]
    content: dict[int, dict[str, Any]] = {}
    stop, usage = None, {}
    for event in [json.loads(line[5:]) for line in response["sse"].replace("\r\n", "\n").split("\n") if line.startswith("data:")]:
        told = event.get("usage") or (event.get("message") or {}).get("usage") or {}
        usage |= {name: value for name, value in told.items() if value is not None}
        if event["type"] == "content_block_start":
            content[event["index"]] = {**event["content_block"], "pieces": ""}
        elif event["type"] == "content_block_delta":
            block, delta = content[event["index"]], event["delta"]
            for name in {"text", "thinking", "signature"} & set(delta):
                block[name] = block.get(name, "") + delta[name]
            block["pieces"] += delta.get("partial_json", "")
        elif event["type"] == "message_delta":
            stop = event["delta"]["stop_reason"]
    for block in content.values():
        pieces = block.pop("pieces")
        if pieces.strip():
            block["input"] = json.loads(pieces)
    return [content[index] for index in sorted(content)], stop, usage


def stated(record: dict[str, Any]) -> dict[str, Any]:
    content, stop, usage = blocks_of(record)
    kinds: dict[str, list[Any]] = {
        kind: [b for b in content if b["type"] == kind] for kind in ("text", "thinking", "tool_use", "redacted_thinking")
    }
    read, written = usage.get("cache_read_input_tokens") or 0, usage.get("cache_creation_input_tokens") or 0
    hour = (usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens") or 0
    return {
        "text": "".join(block["text"] for block in kinds["text"]),
        "thinking": "".join(block["thinking"] for block in kinds["thinking"]),
        "signatures": [block["signature"] for block in kinds["thinking"] if block.get("signature")],
        "redacted": [block["data"] for block in kinds["redacted_thinking"]],
        "calls": [(block["id"], block["name"], block["input"]) for block in kinds["tool_use"]],
        "finish": FINISH.get(stop or "", stop),
        "prompt": (usage["input_tokens"] + read + written, read, written - hour, hour),
        "completion": (usage["output_tokens"], (usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0),
    }


# ---- what the codec says ------------------------------------------------------------------------------------------------------------
def reads(data: bytes, chunking: str) -> list[bytes]:
    if chunking == "whole":
        return [data]
    if chunking == "event":
        return [piece + b"\n" for piece in data.split(b"\n")]
    size = int(chunking)
    return [data[at : at + size] for at in range(0, len(data), size)]


def decoded(record: dict[str, Any], chunking: str) -> tuple[list[Any], bytes]:
    response = record["response"]
    if response["kind"] == "json":
        frame = MESSAGES.decode_answer(json.dumps(response["json"]).encode())
        return frame.events, frame.wire
    decoder, events, wire = MESSAGES.stream_decoder(), [], b""
    for data in reads(response["sse"].encode(), chunking):
        frame = decoder.feed(data)
        events += frame.events
        wire += frame.wire
    frame = decoder.close()
    return events + frame.events, wire + frame.wire


def collected(events: list[Any]) -> dict[str, Any]:
    calls: list[list[str]] = []
    found: dict[str, Any] = {"text": "", "thinking": "", "signatures": [], "redacted": [], "finish": None}
    for event in events:
        if isinstance(event, TextDelta):
            found["text"] += event.text
        elif isinstance(event, ReasoningDelta):
            found["thinking"] += event.text
            found["signatures"] += [event.signature] if event.signature else []
            found["redacted"] += [event.redacted] if event.redacted else []
        elif isinstance(event, ToolCallDelta):
            if event.index == len(calls):
                calls.append([event.id or "", event.name or "", ""])
            calls[event.index][2] += event.arguments
        elif isinstance(event, Finished):
            found["finish"] = event.reason
        elif isinstance(event, Metered):
            u = event.usage
            found["prompt"] = (u.prompt_tokens, u.cache_read, u.cache_write_5m, u.cache_write_1h)
            found["completion"] = (u.completion_tokens, u.reasoning)
    return {**found, "calls": [(name, tool, json.loads(text)) for name, tool, text in calls]}


def test_recorded_answers_say_what_the_recording_says() -> None:
    seen: Counter[str] = Counter()
    for record in answers():
        for chunking in CHUNKINGS if record["response"]["kind"] == "sse" else ("whole",):
            events, wire = decoded(record, chunking)
            assert collected(events) == stated(record), (record["id"], chunking)
            if record["response"]["kind"] == "sse":
                end = record["response"]["sse"].index("event: message_stop")
                assert wire.decode() == record["response"]["sse"][:end], record["id"]
        seen[record["response"]["kind"]] += 1
    assert seen["sse"] and seen["json"]


def test_recorded_errors_come_out_by_kind() -> None:
    found = Counter()
    for record in records():
        response = record["response"]
        if response["status"] == 200:
            continue
        error = MESSAGES.http_error(response["status"], response["headers"], json.dumps(response["json"]).encode())
        found[type(error).__name__] += 1
        assert error.answered and not error.retryable, record["id"]
        assert isinstance(error, ContextTooLong) == ("too long" in response["json"]["error"]["message"]), record["id"]
        if response["status"] == 404:
            assert isinstance(error, Unsupported) and error.status == 404
        elif response["status"] == 401:
            assert isinstance(error, Unauthorized)
        else:
            assert isinstance(error, Rejected) and response["json"]["error"]["message"][:80] in error.message
    assert found


def taken(record: dict[str, Any]) -> Request | None:
    """The request, None where we refuse what the recorded server refused too."""
    try:
        return MESSAGES.decode_request(json.dumps(record["request"]["json"], ensure_ascii=False).encode())
    except DecodeError as error:
        assert record["response"]["status"] == 400, (record["id"], error.message)
        return None


def test_recorded_requests_go_out_as_they_came_in() -> None:
    for record in records():
        request = taken(record)
        if request is not None:
            assert (
                json.loads(MESSAGES.encode_request(request, Target(backend="b", model=request.model), PLAIN)) == record["request"]["json"]
            )
            assert not [name for name in request.unknown if "[" not in name], record["id"]  # no recorded field is news to the table


def test_recorded_messages_survive_the_neutral_model() -> None:
    for record in records():
        request = taken(record)
        if request is None:
            continue
        raw = record["request"]["json"]
        written = encode_messages(MESSAGES.messages(request))
        assert json.loads(bytes(written["messages"])) == [normal(message) for message in raw["messages"]], record["id"]
        assert json.loads(bytes(written.get("system", b"null"))) == raw.get("system")
        own = [{**tool} for tool in raw.get("tools", []) if tool.get("type", "custom") == "custom"]
        assert json.loads(bytes(encode_tools(MESSAGES.tools(request)))) == own
        MESSAGES.parameters(request)


def normal(message: dict[str, Any]) -> dict[str, Any]:
    """The documented normalisation: nothing in a recorded history needs more than null left out."""
    if isinstance(message["content"], str):
        return message
    return {**message, "content": [{name: value for name, value in block.items() if value is not None} for block in message["content"]]}


# ---- what the gateway says ----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def replay() -> Iterator[str]:
    port = free_port()
    files = [str(path) for path in sorted(Path(FOLDER).glob("*.jsonl"))]
    process = subprocess.Popen([sys.executable, str(Path(FOLDER) / "replay.py"), *files, "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/_replay/log", timeout=1):
                    break
            except OSError:
                assert time.monotonic() < end, "the replay server does not start"
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def gateway(replay: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One route per recording and chunking, on a backend whose address picks the recording."""
    config = ""
    for record in answers():
        for chunking in CHUNKINGS if record["response"]["kind"] == "sse" else ("whole",):
            name = f"{record['id']}.{chunking}"
            address = f"{replay}/x/{record['id']};chunk={chunking}/v1"
            config += (
                f'[[backends]]\nname = "{name}"\nvendor = "anthropic"\nmodel = "m"\nbase_url = "{address}"\napi_key = "env:UPSTREAM_KEY"\n'
            )
            config += 'price = { input = "3", output = "15" }\n' + route(name, name, more="max_attempts = 1")
    with running(tmp_path_factory.mktemp("gateway"), config, UPSTREAM_KEY="recorded-key") as made:
        made.key("alpha")
        yield made


def ask(gateway: Gateway, path: str, body: dict[str, Any]) -> bytes:
    status, raw, _ = gateway.call("POST", path, json.dumps(body).encode(), gateway.keys["alpha"])
    assert status == 200, raw
    return raw


def test_the_messages_surface_passes_recorded_answers_on(gateway: Gateway) -> None:
    for record in answers():
        streamed = record["response"]["kind"] == "sse"
        for chunking in CHUNKINGS if streamed else ("whole",):
            raw = ask(gateway, "/v1/messages", {**record["request"]["json"], "model": f"{record['id']}.{chunking}", "stream": streamed})
            if not streamed:
                assert json.loads(raw) == record["response"]["json"], record["id"]
                continue
            sse = record["response"]["sse"]
            begun, cost, end = raw.decode().rpartition(": tollway-cost-usd ")
            assert begun == sse[: sse.index("event: message_stop")], (record["id"], chunking)
            assert cost and end.endswith('\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n')


def test_the_chat_surface_translates_recorded_answers(gateway: Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    table: Counter[str] = Counter()
    for record in answers():
        streamed = record["response"]["kind"] == "sse"
        for chunking in CHUNKINGS if streamed else ("whole",):
            body = {"model": f"{record['id']}.{chunking}", "messages": [{"role": "user", "content": "hi"}], "stream": streamed}
            raw = ask(gateway, "/v1/chat/completions", {**body, "stream_options": {"include_usage": True}} if streamed else body)
            lines = [line[6:] for line in raw.decode().split("\n") if line.startswith("data: {")] if streamed else [raw.decode()]
            expected = stated(record)
            del expected["redacted"], expected["signatures"]
            assert chat_says([json.loads(line) for line in lines]) == expected, (record["id"], chunking)
            table[chunking] += 1
    with capsys.disabled():
        sys.stdout.write(f"\nanthropic: {dict(table)} answers, 0 wrong\n")


def chat_says(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"text": "", "thinking": "", "finish": None}
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            body = choice.get("delta") or choice.get("message") or {}
            found["text"] += body.get("content") or ""
            found["thinking"] += body.get("reasoning_content") or ""
            for position, call in enumerate(body.get("tool_calls") or ()):
                known = calls.setdefault(call.get("index", position), ["", "", ""])
                known[0] += call.get("id", "")
                known[1] += call["function"].get("name", "")
                known[2] += call["function"]["arguments"]
            found["finish"] = choice["finish_reason"] or found["finish"]
        if chunk.get("usage"):
            usage = chunk["usage"]
            inner, hour = usage["prompt_tokens_details"], (usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens", 0)
            found["prompt"] = (usage["prompt_tokens"], inner["cached_tokens"], inner.get("cache_write_tokens", 0) - hour, hour)
            found["completion"] = (usage["completion_tokens"], usage["completion_tokens_details"]["reasoning_tokens"])
    return {**found, "calls": [(name, tool, json.loads(text)) for name, tool, text in (calls[index] for index in sorted(calls))]}


def test_recorded_errors_keep_their_type() -> None:
    for record in records():
        if record["response"]["status"] != 200:
            error = MESSAGES.http_error(record["response"]["status"], {}, json.dumps(record["response"]["json"]).encode())
            told = json.loads(MESSAGES.error_body(error.status, error.message, "invalid_request_error", error.code, error.param))
            assert told["type"] == "error" and told["error"]["type"] == record["response"]["json"]["error"]["type"], record["id"]
