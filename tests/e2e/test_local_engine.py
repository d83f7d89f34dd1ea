"""A model of random weights behind two gateway workers, as a client sees it: what it is held to, a full queue, and the engine's death."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import openai
import pytest

from local_engine.client import EngineClient
from local_engine.errors import EngineError
from local_engine.wire import Stats
from tests.e2e.harness import Gateway, route, running
from tests.local_engine.tiny import make_model

CONTEXT = 16384
WITHIN_S = 120.0  # for a busy machine; it is a condition that is waited for
CONFIG = (
    """
[local_engine]
threads = 1
max_sequences = 1
max_waiting = 1

[[backends]]
name = "tiny"
vendor = "local"
model = "tiny"
price = { input = "0.01", output = "0.01" }

[[backends]]
name = "spare"
vendor = "scripted"
model = "scripted"
price = { input = "9", output = "9" }
"""
    + route("only", "tiny", more='cache = "never"')
    + route("both", "tiny", "spare", more='cache = "never"')
)
ENDLESS = {"logit_bias": {"0": -100}, "max_tokens": 12000}
ASK: list[Any] = [{"role": "user", "content": "the quick brown fox"}]
T = TypeVar("T")


def until(condition: Callable[[], T], what: str) -> T:
    """Its first true value."""
    ends = time.monotonic() + WITHIN_S
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < ends, what
        time.sleep(0.05)


def socket(gateway: Gateway) -> Path:
    return gateway.folder / "state" / "engine-tiny.sock"


def engine(gateway: Gateway, ask: Callable[[EngineClient], Awaitable[T]]) -> T | None:
    """What the engine answers; None while there is none."""

    async def asked() -> T | None:
        client = EngineClient(str(socket(gateway)))
        try:
            return await ask(client)
        except EngineError:
            return None
        finally:
            await client.close()

    return asyncio.run(asked())


def stats(gateway: Gateway) -> Stats:
    return until(lambda: engine(gateway, lambda client: client.stats()), "the engine does not answer")


def serves(gateway: Gateway) -> bool:
    state = engine(gateway, lambda client: client.state())
    return state is not None and state.state == "ready"


def idle(gateway: Gateway) -> None:
    until(lambda: stats(gateway).running + stats(gateway).waiting == 0, "something still runs")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    models = tmp_path_factory.mktemp("models")
    make_model(models / "tiny", max_position_embeddings=CONTEXT)
    folder = tmp_path_factory.mktemp("g")
    with running(folder, CONFIG, server="workers = 2", TOLLWAY_MODELS=str(models), OMP_NUM_THREADS="1") as gateway:
        gateway.key("alpha")
        gateway.key("beta")
        until(lambda: serves(gateway), "the model was not loaded")
        yield gateway


def refusal(call: Callable[[], Any]) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as caught:
        call()
    return caught.value


def test_an_answer_is_held_to_what_was_asked(gateway: Gateway) -> None:
    client = gateway.client()
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    answer = client.chat.completions.create(model="only", messages=ASK, response_format=form, max_tokens=50)
    assert json.loads(answer.choices[0].message.content or "") in ({"ok": True}, {"ok": False})
    assert answer.choices[0].finish_reason == "stop"

    tools: Any = [{"type": "function", "function": {"name": "light", "parameters": schema}}]
    stream = client.chat.completions.create(
        model="only", messages=ASK, tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=90, stream=True
    )
    choices = [chunk.choices[0] for chunk in stream if chunk.choices]
    called = [call for choice in choices for call in choice.delta.tool_calls or []]
    assert called[0].function is not None and called[0].function.name == "light" and called[0].id
    said = "".join(call.function.arguments or "" for call in called if call.function is not None)
    assert json.loads(said) in ({"ok": True}, {"ok": False})
    assert choices[-1].finish_reason == "tool_calls"

    wrong: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "objekt"}}}
    error = refusal(lambda: client.chat.completions.create(model="only", messages=ASK, response_format=wrong))
    assert (error.status_code, error.param) == (400, "response_format")
    picked = client.chat.completions.create(
        model="only", messages=ASK, max_tokens=9, logprobs=True, top_logprobs=1, extra_body={"structured_outputs": {"regex": "[0-9]{3}"}}
    )
    told = picked.choices[0]
    assert (told.message.content or "").isdigit() and told.logprobs is not None and told.logprobs.content
    assert "".join(one.token for one in told.logprobs.content) == told.message.content


def test_what_does_not_fit_the_context_is_refused_with_both_numbers_or_lowered_as_allowed(gateway: Gateway) -> None:
    client = gateway.client()
    error = refusal(lambda: client.chat.completions.create(model="only", messages=ASK, max_tokens=CONTEXT))
    assert error.status_code == 400 and error.code == "context_length_exceeded"
    assert f"max_tokens {CONTEXT}" in error.message and f"context of {CONTEXT} tokens" in error.message
    raw = client.chat.completions.with_raw_response.create(
        model="only", messages=ASK, max_tokens=CONTEXT, logit_bias={"0": 100}, extra_headers={"x-tollway-clamp": "allow"}
    )
    usage = raw.parse().usage
    assert usage is not None
    assert int(raw.headers["x-tollway-clamped"]) == CONTEXT - usage.prompt_tokens


def test_prefixes_are_shared_within_a_team_and_never_across(gateway: Gateway) -> None:
    secret: list[Any] = [{"role": "user", "content": "our secret is long enough to fill some blocks " * 4}]

    def hits(team: str) -> int:
        before = stats(gateway).prefix_hit_tokens
        gateway.client(gateway.keys[team]).chat.completions.create(model="only", messages=secret, max_tokens=1)
        return stats(gateway).prefix_hit_tokens - before

    assert hits("alpha") == 0
    assert hits("beta") == 0
    assert hits("alpha") > 0


def test_two_workers_share_one_engine_on_a_socket_of_the_owner_s_alone(gateway: Gateway) -> None:
    body = json.dumps({"model": "only", "messages": ASK, "max_tokens": 1}).encode()

    def connected() -> bool:
        status, answer, _ = gateway.call("POST", "/v1/chat/completions", body, gateway.keys["alpha"])
        assert status == 200, answer
        return stats(gateway).connections >= 3  # two workers and whoever asks

    until(connected, "one worker alone got all requests")
    assert stat.S_IMODE(socket(gateway).stat().st_mode) == 0o600


def begun(gateway: Gateway, model: str) -> Any:
    """An endless stream whose first text has come."""
    stream = gateway.client().chat.completions.create(model=model, messages=ASK, stream=True, **ENDLESS)  # type: ignore[call-overload]
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            return stream
    raise AssertionError("the stream ended before its first text")


def waiting(gateway: Gateway, pool: ThreadPoolExecutor, model: str) -> Future[tuple[int, bytes, Mapping[str, str]]]:
    """A short request that has to wait, since another runs. A worker that was refused lately asks other backends first: then again."""
    body = json.dumps({"model": model, "messages": ASK, "max_tokens": 1}).encode()

    def waits() -> Future[tuple[int, bytes, Mapping[str, str]]] | None:
        asked = pool.submit(gateway.call, "POST", "/v1/chat/completions", body, gateway.keys["alpha"])
        until(lambda: asked.done() or stats(gateway).waiting == 1, "it is lost")
        return None if asked.done() else asked

    return until(waits, "it does not wait")


def test_beyond_the_queue_503_says_when_to_come_again(gateway: Gateway) -> None:
    with ThreadPoolExecutor(1) as pool:
        with begun(gateway, "only"):
            asked = waiting(gateway, pool, "only")
            error = refusal(lambda: gateway.client().chat.completions.create(model="only", messages=ASK))
            assert error.status_code == 503 and float(error.response.headers["retry-after"]) >= 1
        assert asked.result(WITHIN_S)[0] == 200  # its turn came when the first client left
    idle(gateway)


def test_killed_it_fails_over_before_the_first_token_and_tells_behind_it_and_comes_back(gateway: Gateway) -> None:
    pid = int(re.findall(r'"child started", "child": "engine tiny", "pid": (\d+)', gateway.log)[-1])
    with ThreadPoolExecutor(1) as pool, begun(gateway, "only") as stream:
        asked = waiting(gateway, pool, "both")
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(openai.APIError, match="engine"):
            for _ in stream:
                pass
        status, _, headers = asked.result(WITHIN_S)
        assert (status, headers["x-tollway-backend"], headers["x-tollway-attempts"]) == (200, "spare", "2")
    until(lambda: serves(gateway), "it was not started again")
    body = json.dumps({"model": "only", "messages": ASK, "max_tokens": 1}).encode()
    until(lambda: gateway.call("POST", "/v1/chat/completions", body, gateway.keys["alpha"])[0] == 200, "it is not asked again")
