"""The other OpenAI surfaces, and what is sent to models that do not take everything: one gateway, the official client, real sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import openai
import pytest

from tests.e2e.harness import BASIC, Gateway, route, running
from tests.fakes.upstream import FakeUpstream, chat_answer, json_reply

HELLO: list[Any] = [{"role": "user", "content": "Say hello."}]


def made(name: str, vendor: str, model: str, url: str, more: str = "") -> str:
    head = f'[[backends]]\nname = "{name}"\nvendor = "{vendor}"\nmodel = "{model}"\nbase_url = "{url}/v1"\n'
    return head + f'api_key = "env:UPSTREAM_KEY"\n{BASIC}\n{more}\n' + route(name, name, more="max_attempts = 1")


@pytest.fixture(scope="module")
def upstream() -> Iterator[FakeUpstream]:
    with FakeUpstream().threaded() as one:
        yield one


@pytest.fixture(scope="module")
def gateway(upstream: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    url = upstream.url
    config = (
        made("strict", "openai", "o4-mini", url)
        + made("lenient", "openai", "o4-mini", url, 'unsupported = "drop"')
        + made("old", "openai-compatible", "m-old", url)
        + made("template", "vllm", "m-house", url)
        + made("free", "openai-compatible", "m-free", url)
        + route("either", "strict", "free")
    )
    with running(tmp_path_factory.mktemp("gateway"), config, UPSTREAM_KEY="upstream-secret-key") as one:
        one.key("alpha")
        yield one


@pytest.fixture(autouse=True)
def fresh(upstream: FakeUpstream) -> None:
    upstream.requests.clear()
    upstream.play()


def ask(gateway: Gateway, model: str, path: str = "/v1/chat/completions", **fields: Any) -> tuple[int, Any, Mapping[str, str]]:
    body = {"model": model, **({"messages": HELLO} if path == "/v1/chat/completions" else {}), **fields}
    status, raw, headers = gateway.call("POST", path, json.dumps(body).encode(), gateway.keys["alpha"])
    return status, json.loads(raw), headers


# ---- what a model takes -------------------------------------------------------------------------------------------------------------
def test_g33_max_tokens_and_temperature_on_a_reasoning_model(gateway: Gateway, upstream: FakeUpstream) -> None:
    status, told, _ = ask(gateway, "strict", max_tokens=200, temperature=0.3)
    assert status == 400
    assert (told["error"]["param"], told["error"]["code"]) == ("temperature", "unsupported_value")
    assert upstream.requests == []

    upstream.play(json_reply(chat_answer()))
    for temperature in (1, 1.0, None):
        status, _, headers = ask(gateway, "strict", max_tokens=200, temperature=temperature)
        assert status == 200 and "x-tollway-dropped" not in headers
        body = upstream.requests[-1].json()
        assert body["max_completion_tokens"] == 200 and "max_tokens" not in body
        assert body.get("temperature") in (None, 1)

    status, _, headers = ask(gateway, "lenient", max_tokens=200, temperature=0.3)
    assert (status, headers["x-tollway-dropped"]) == (200, "temperature")
    assert "temperature" not in upstream.requests[-1].json()
    assert upstream.requests[-1].json()["max_completion_tokens"] == 200


def test_g33_a_backend_that_knows_only_max_tokens_is_mapped_back(gateway: Gateway, upstream: FakeUpstream) -> None:
    status, _, _ = ask(gateway, "old", max_completion_tokens=200, temperature=0.3)
    body = upstream.requests[-1].json()
    assert status == 200 and body["max_tokens"] == 200 and "max_completion_tokens" not in body
    assert body["temperature"] == 0.3


def test_g33_another_backend_of_the_route_takes_what_one_refuses(gateway: Gateway, upstream: FakeUpstream) -> None:
    status, _, headers = ask(gateway, "either", temperature=0.3)
    assert (status, headers["x-tollway-backend"], headers["x-tollway-attempts"]) == (200, "free", "1")
    assert upstream.requests[-1].json()["temperature"] == 0.3


@pytest.mark.parametrize(
    ("field", "value"), [("top_p", 0.5), ("presence_penalty", 1), ("frequency_penalty", 1), ("logit_bias", {"5": 1}), ("stop", ["END"])]
)
def test_g34_each_parameter_that_the_model_lacks_is_refused_or_named(
    gateway: Gateway, upstream: FakeUpstream, field: str, value: Any
) -> None:
    status, told, _ = ask(gateway, "strict", **{field: value})
    assert (status, told["error"]["param"]) == (400, field) and upstream.requests == []
    status, _, headers = ask(gateway, "lenient", **{field: value})
    assert (status, headers["x-tollway-dropped"]) == (200, field)
    assert field not in upstream.requests[-1].json()


def test_g33_with_the_official_client(gateway: Gateway, upstream: FakeUpstream) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        gateway.client().chat.completions.create(model="strict", messages=HELLO, temperature=0.3, max_tokens=200)
    assert (refused.value.param, refused.value.code) == ("temperature", "unsupported_value")


def test_late_and_developer_messages_become_one_leading_system_message(gateway: Gateway, upstream: FakeUpstream) -> None:
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "developer", "content": "be brief"},
        {"role": "assistant", "content": "yes?"},
        {"role": "system", "content": "in English"},
        {"role": "user", "content": "go on"},
    ]
    assert ask(gateway, "template", messages=turns)[0] == 200
    sent = upstream.requests[-1].json()["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert sent[0]["content"] == "be brief\n\nin English"


def test_null_content_and_null_calls_are_taken_and_kept(gateway: Gateway, upstream: FakeUpstream) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "assistant", "content": "one", "tool_calls": None},
        {"role": "user", "content": "go on"},
    ]
    assert ask(gateway, "old", messages=turns)[0] == 200
    assert upstream.requests[-1].json()["messages"] == turns
