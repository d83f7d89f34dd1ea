"""The other OpenAI surfaces, and what is sent to models that do not take everything: one gateway, the official client, real sockets."""

from __future__ import annotations

import json
import re
import struct
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import openai
import pytest

from tests.e2e.harness import BASIC, Gateway, route, running
from tests.fakes.upstream import FakeUpstream, Received, Step, chat_answer, chat_chunks, json_reply, sse_reply
from tests.fixtures.waiting import until_true

DEAR = 'price = { input = "30.00", output = "60.00" }'
HELLO: list[Any] = [{"role": "user", "content": "Say hello."}]


def made(name: str, vendor: str, model: str, url: str, more: str = "") -> str:
    where = f'base_url = "{url}/v1"\napi_key = "env:UPSTREAM_KEY"\n' if url else ""
    head = f'[[backends]]\nname = "{name.replace(" ", "-")}"\nvendor = "{vendor}"\nmodel = "{model}"\n'
    return head + f"{where}{BASIC}\n{more}\n" + route(name, name.replace(" ", "-"), more="max_attempts = 1")


pytestmark = pytest.mark.usefixtures("fresh")


@pytest.fixture(scope="module")
def spare() -> Iterator[FakeUpstream]:
    with FakeUpstream().threaded() as one:
        yield one


@pytest.fixture(scope="module")
def gateway(upstream: FakeUpstream, spare: FakeUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    url = upstream.url
    config = (
        made("strict", "openai", "o4-mini", url)
        + made("lenient", "openai", "o4-mini", url, 'unsupported = "drop"')
        + made("old", "openai-compatible", "m-old", url)
        + made("template", "vllm", "m-house", url)
        + made("free", "openai-compatible", "m-free", url)
        + route("either", "strict", "free")
        + made("vectors", "openai", "text-embedding-3-small", url)
        + made("ada", "openai", "text-embedding-ada-002", url)
        + made("small batches", "nvidia", "nv-embed-x", url)
        + made("of mistral", "mistral", "codestral-embed", url)
        + made("scripted-vectors", "scripted", "m-vectors", "")
        + made("failing-vectors", "scripted", "m-vectors", "", "script = 'error = \"unavailable\"'")
        + route("safe vectors", "failing-vectors", "scripted-vectors")
        + route("two models", "vectors", "ada")
        + made("instruct", "openai", "gpt-3.5-turbo-instruct", url)
        + made("learning", "openai-compatible", "zebra-7b", url)
        + made("spare", "openai-compatible", "m-spare", spare.url).replace(BASIC, DEAR)
        + "".join(made(f"broken-{n}", "openai-compatible", "m-old", url) + route(f"guarded {n}", f"broken-{n}", "spare") for n in range(4))
        + "".join(made(f"alone-{n}", "openai-compatible", "m-old", url) for n in range(4))
        + route("uncached vectors", "vectors", more='cache = "never"')
    )
    with running(tmp_path_factory.mktemp("gateway"), config, UPSTREAM_KEY="upstream-secret-key") as one:
        one.key("alpha")
        yield one


def ask(gateway: Gateway, model: str, path: str = "/v1/chat/completions", **fields: Any) -> tuple[int, Any, Mapping[str, str]]:
    body = {"model": model, **({"messages": HELLO} if path == "/v1/chat/completions" else {}), **fields}
    status, raw, headers = gateway.call("POST", path, json.dumps(body).encode(), gateway.keys["alpha"])
    return status, json.loads(raw), headers


def row(gateway: Gateway, headers: Mapping[str, str]) -> dict[str, Any]:
    """The settled row of an answer, once it is there."""
    found: list[bytes] = []

    def settled() -> bool:
        status, raw, _ = gateway.get(f"/v1/requests/{headers['x-tollway-request-id']}", gateway.keys["alpha"])
        found.append(raw)
        return status == 200

    until_true(settled, "the request's row")
    read: dict[str, Any] = json.loads(found[-1])
    return read


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


# ---- errors before the first byte ---------------------------------------------------------------------------------------------------
BROKEN = [
    (json_reply({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, 429), 429),
    (json_reply({"error": {"message": "Incorrect API key provided"}}, 401), 502),  # the operator's credential is not the client's fault
    (json_reply({"error": {"message": "it broke"}}, 500), 503),
    (sse_reply([{"error": {"message": "slow down", "type": "rate_limit_error"}}]), 429),
]


@pytest.mark.parametrize("n", range(4))
def test_g30_an_error_before_the_first_byte_is_hidden_by_a_fallback_alone(
    gateway: Gateway, upstream: FakeUpstream, spare: FakeUpstream, n: int
) -> None:
    broken, status = BROKEN[n]
    upstream.play(broken)
    spare.play(sse_reply(chat_chunks(["Hel", "lo"], usage=(12, 2))))
    body = json.dumps({"model": f"guarded {n}", "messages": HELLO, "stream": True}).encode()
    got, raw, headers = gateway.call("POST", "/v1/chat/completions", body, gateway.keys["alpha"])
    assert (got, headers["x-tollway-backend"], len(upstream.requests)) == (200, "spare", 1)
    assert b"slow down" not in raw and b"it broke" not in raw and raw.endswith(b"data: [DONE]\n\n")

    body = json.dumps({"model": f"alone-{n}", "messages": HELLO, "stream": True}).encode()
    got, raw, headers = gateway.call("POST", "/v1/chat/completions", body, gateway.keys["alpha"])
    assert (got, headers["content-type"]) == (status, "application/json")
    assert json.loads(raw)["error"]["message"]


def test_retry_after_with_a_good_answer_holds_nobody_back(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(json_reply(chat_answer(), headers={"retry-after": "30"}))
    for _ in range(2):
        status, _, headers = ask(gateway, "old")
        assert status == 200 and "retry-after" not in headers
    assert len(upstream.requests) == 2


# ---- usage that nobody states -------------------------------------------------------------------------------------------------------
def test_a_long_exchange_without_usage_is_counted_whole_and_flagged(gateway: Gateway, upstream: FakeUpstream) -> None:
    words = "one two three four five six seven eight nine ten "  # ten tokens
    upstream.play(json_reply(chat_answer(words * 2000, usage=None)))
    status, _, headers = ask(gateway, "old", messages=[{"role": "user", "content": words * 3000}])
    settled = row(gateway, headers)
    assert status == 200 and settled["estimated"]
    assert settled["usage"]["input_tokens"] == pytest.approx(30_000, rel=0.01)
    assert settled["usage"]["output_tokens"] == pytest.approx(20_000, rel=0.01)


def test_what_vendors_count_is_learnt_and_shown(gateway: Gateway, upstream: FakeUpstream) -> None:
    """A family that counts twice as much as we do, and says so."""
    words = "one two three four five six seven eight nine ten "
    upstream.play(json_reply(chat_answer(usage=(2 * 1007, 3))))

    def shown() -> bool:
        ask(gateway, "learning", messages=[{"role": "user", "content": words * 100}])
        found = re.search(rb'tollway_token_factor\{family="zebra"\} ([0-9.]+)', gateway.get("/metrics")[1])
        return found is not None and float(found[1]) == pytest.approx(2.0, rel=0.01)

    until_true(shown, "the factor in the metrics")
    upstream.play(json_reply(chat_answer(usage=None)))
    _, _, headers = ask(gateway, "learning", messages=[{"role": "user", "content": words * 200}])
    settled = row(gateway, headers)
    assert settled["estimated"] and settled["usage"]["input_tokens"] == pytest.approx(2 * 2007, rel=0.02)


# ---- embeddings ---------------------------------------------------------------------------------------------------------------------
VECTORS = {"a": [1.0, 0.5], "b": [2.0, 0.25], "c": [3.0, 0.125]}
TOKENS = {"a": 1, "b": 2, "c": 4}


def embedded(received: Received, *, order: int = 1, usage: bool = True) -> Sequence[Step]:
    """An upstream that knows the vectors and tokens of a few texts; order -1: it answers the last input first."""
    asked = received.json()["input"]
    data = [{"object": "embedding", "index": n, "embedding": VECTORS.get(str(text), [0.5, 0.5])} for n, text in enumerate(asked)]
    used = sum(TOKENS.get(str(text), 3) for text in asked)
    answer = {"object": "list", "data": data[::order], "model": "text-embedding-3-small"}
    return json_reply({**answer, "usage": {"prompt_tokens": used, "total_tokens": used}} if usage else answer)


def embed(gateway: Gateway, model: str, given: Any, **fields: Any) -> tuple[int, Any, Mapping[str, str]]:
    return ask(gateway, model, "/v1/embeddings", input=given, **fields)


@pytest.mark.parametrize("order", [1, -1])
def test_g16_a_partial_hit_asks_for_the_rest_alone_and_keeps_the_order(gateway: Gateway, upstream: FakeUpstream, order: int) -> None:
    upstream.play(lambda received: embedded(received, order=order))
    space = f"space {order}"  # each variant has a cache of its own: unknown fields are in the key
    assert embed(gateway, "vectors", ["a"], space=space)[1]["usage"]["prompt_tokens"] == 1
    status, told, headers = embed(gateway, "vectors", ["b", "a", "c"], space=space)
    assert status == 200
    assert [(one["index"], one["embedding"]) for one in told["data"]] == [(0, VECTORS["b"]), (1, VECTORS["a"]), (2, VECTORS["c"])]
    assert [received.json()["input"] for received in upstream.requests] == [["a"], ["b", "c"]]
    assert headers["x-tollway-cache"] == "partial"
    settled = row(gateway, headers)
    assert settled["usage"]["input_tokens"] == TOKENS["b"] + TOKENS["c"]
    assert headers["x-tollway-cost-usd"] == settled["cost_usd"] == "0.000006000"  # 6 tokens at 1 USD per million

    status, told, headers = embed(gateway, "vectors", ["c", "b"], space=space, encoding_format="base64")
    assert (status, headers["x-tollway-cache"], headers["x-tollway-cost-usd"]) == (200, "hit", "0.000000000")
    assert [struct.unpack("<2f", b64decode(one["embedding"])) for one in told["data"]] == [tuple(VECTORS["c"]), tuple(VECTORS["b"])]
    assert told["usage"] == {"prompt_tokens": 6, "total_tokens": 6}, "as they were"
    assert len(upstream.requests) == 2
    assert row(gateway, headers)["outcome"] == "cached"


def test_g16_a_text_that_stands_twice_is_asked_for_once(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(embedded)
    status, told, _ = embed(gateway, "vectors", ["b", "a", "b"], space="twice")
    assert status == 200 and [one["embedding"] for one in told["data"]] == [VECTORS["b"], VECTORS["a"], VECTORS["b"]]
    assert upstream.requests[0].json()["input"] == ["b", "a"]
    assert told["usage"]["prompt_tokens"] == 3


def test_the_official_client_embeds(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(embedded)
    answer = gateway.client().embeddings.create(model="uncached vectors", input=["b", "c"], dimensions=2)
    assert [one.embedding for one in answer.data] == [VECTORS["b"], VECTORS["c"]]
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (6, 6)
    sent = upstream.requests[0]
    assert sent.target == "/v1/embeddings"
    assert sent.json() == {"model": "text-embedding-3-small", "input": ["b", "c"], "dimensions": 2, "encoding_format": "base64"}


async def test_the_asynchronous_client_embeds_one_text(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(embedded)
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.keys["alpha"], max_retries=0) as client:
        answer = await client.embeddings.create(model="uncached vectors", input="b", encoding_format="float")
    assert [one.embedding for one in answer.data] == [VECTORS["b"]]


@pytest.mark.parametrize("given", [[5, 6, 7], [[5, 6], [7]]])
def test_token_ids_pass_as_they_are(gateway: Gateway, upstream: FakeUpstream, given: Any) -> None:
    upstream.play(embedded)
    status, told, _ = embed(gateway, "uncached vectors", given)
    assert status == 200 and len(told["data"]) == (1 if given == [5, 6, 7] else 2)
    assert upstream.requests[0].json()["input"] == ([given] if given == [5, 6, 7] else given)


def test_more_inputs_than_the_vendor_takes_go_in_several_calls(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(lambda received: embedded(received, order=-1))
    texts = [f"text {n}" for n in range(300)]
    status, told, headers = embed(gateway, "small batches", texts)
    assert status == 200 and [one["index"] for one in told["data"]] == list(range(300))
    assert [len(received.json()["input"]) for received in upstream.requests] == [128, 128, 44]
    assert [text for received in upstream.requests for text in received.json()["input"]] == texts
    assert row(gateway, headers)["usage"]["input_tokens"] == 900
    assert headers["x-tollway-attempts"] == "1"


def test_what_was_billed_before_a_later_call_failed_is_booked(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(embedded, json_reply({"error": {"message": "slow down"}}, 429))
    status, _, headers = embed(gateway, "small batches", [f"other {n}" for n in range(200)])
    assert status == 429
    assert row(gateway, headers)["usage"]["input_tokens"] == 3 * 128


def test_dimensions_by_the_vendors_name_and_refused_where_the_model_has_one_size(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(embedded)
    assert embed(gateway, "of mistral", ["a"], dimensions=2, encoding_format="base64")[0] == 200
    assert upstream.requests[0].json() == {"model": "codestral-embed", "input": ["a"], "output_dimension": 2}
    status, told, _ = embed(gateway, "ada", ["a"], dimensions=2)
    assert (status, told["error"]["param"], told["error"]["code"]) == (400, "dimensions", "unsupported_value")
    assert len(upstream.requests) == 1


def test_g16_vectors_of_two_models_are_never_mixed(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(embedded)
    assert embed(gateway, "two models", ["a"])[0] == 200
    status, _, headers = embed(gateway, "two models", ["a", "b"])
    assert (status, headers["x-tollway-cache"]) == (200, "miss")
    assert upstream.requests[1].json()["input"] == ["a", "b"]


def test_an_answer_that_misses_an_input_is_no_answer(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(json_reply({"data": [{"index": 0, "embedding": [1.0]}], "usage": {"prompt_tokens": 1}}))
    status, told, _ = embed(gateway, "uncached vectors", ["a", "b"])
    assert (status, told["error"]["code"]) == (502, "upstream_bad_answer")


def test_usage_that_a_vendor_does_not_state_is_estimated(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(lambda received: embedded(received, usage=False))
    status, told, headers = embed(gateway, "vectors", ["one two three"], space="unstated")
    settled = row(gateway, headers)
    assert status == 200 and settled["estimated"]
    assert settled["usage"]["input_tokens"] == told["usage"]["prompt_tokens"] > 0


def test_scripted_vectors_and_failover(gateway: Gateway) -> None:
    status, told, headers = embed(gateway, "safe vectors", ["red apple", "green"], dimensions=3)
    assert (status, headers["x-tollway-backend"]) == (200, "scripted-vectors")
    first, second = (one["embedding"] for one in told["data"])
    assert len(first) == len(second) == 3 and first != second
    assert sum(number * number for number in first) == pytest.approx(1.0)
    assert embed(gateway, "scripted-vectors", ["red apple"], dimensions=3)[1]["data"][0]["embedding"] == first
    assert row(gateway, headers)["usage"]["input_tokens"] == 3


def test_a_model_for_text_makes_no_vectors_and_the_other_way(gateway: Gateway, upstream: FakeUpstream) -> None:
    status, told, _ = embed(gateway, "old", ["a"])
    assert (status, told["error"]["code"], told["error"]["param"]) == (400, "unsupported_value", "embeddings")
    status, told, _ = ask(gateway, "vectors")
    assert (status, told["error"]["code"]) == (400, "unsupported_value")
    assert upstream.requests == []


def test_bad_inputs_are_named(gateway: Gateway, upstream: FakeUpstream) -> None:
    for fields, param in (({"input": ["a", ""]}, "input[1]"), ({"input": []}, "input"), ({"input": "a", "stream": True}, "stream")):
        status, told, _ = ask(gateway, "vectors", "/v1/embeddings", **fields)
        assert (status, told["error"]["param"]) == (400, param)
    assert upstream.requests == []


# ---- the old completions ------------------------------------------------------------------------------------------------------------
def continued(*texts: str, finish: str = "stop") -> dict[str, Any]:
    choices = [{"text": text, "index": n, "logprobs": None, "finish_reason": finish} for n, text in enumerate(texts)]
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return {"id": "cmpl-1", "object": "text_completion", "created": 5, "model": "instruct", "choices": choices, "usage": usage}


def test_completions_of_a_chat_model_with_the_official_client(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(json_reply(chat_answer("a time.")))
    answer = gateway.client().completions.create(model="old", prompt="Once upon ", stop=["END"], echo=True)
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("Once upon a time.", "stop")
    assert answer.usage is not None and (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (12, 3)
    sent = upstream.requests[0]
    assert sent.target == "/v1/chat/completions"
    turns = [{"role": "user", "content": "Once upon "}]
    assert sent.json() == {"model": "m-old", "messages": turns, "max_tokens": 16, "stop": ["END"]}


def test_a_streamed_completion_of_a_chat_model(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(sse_reply(chat_chunks(["a ", "time."], usage=(12, 3))))
    chunks = list(
        gateway.client().completions.create(
            model="old", prompt=["Once upon "], stream=True, echo=True, stream_options={"include_usage": True}
        )
    )
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "Once upon a time."
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens == 15


def test_a_model_that_continues_prompts_gets_them_as_they_are(gateway: Gateway, upstream: FakeUpstream) -> None:
    upstream.play(json_reply(continued(" one", " two")))
    answer = gateway.client().completions.create(model="instruct", prompt=["Once", "Twice"], suffix=".", best_of=2, logprobs=1)
    assert [choice.text for choice in answer.choices] == [" one", " two"]
    sent = upstream.requests[0]
    assert sent.target == "/v1/completions"
    assert sent.json() == {
        "model": "gpt-3.5-turbo-instruct",
        "prompt": ["Once", "Twice"],
        "suffix": ".",
        "best_of": 2,
        "logprobs": 1,
        "max_tokens": 16,
    }


def test_a_native_stream_goes_through_byte_for_byte(gateway: Gateway, upstream: FakeUpstream) -> None:
    first, last = {**continued("Once"), "usage": None}, {**continued(""), "choices": []}
    first["choices"][0]["finish_reason"] = "length"
    upstream.play(sse_reply([first, last]))
    body = json.dumps({"model": "instruct", "prompt": [5, 6, 7], "stream": True}).encode()
    status, raw, _ = gateway.call("POST", "/v1/completions", body, gateway.keys["alpha"])
    event = b"data: " + json.dumps(first).encode() + b"\n\n"
    assert (status, raw) == (200, event + b": tollway-cost-usd 0.000007000\n\ndata: [DONE]\n\n")
    assert upstream.requests[0].json()["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"suffix": "x"}, "suffix"), ({"best_of": 3}, "best_of"), ({"prompt": ["a", "b"]}, "prompt"), ({"prompt": [1, 2]}, "prompt")],
)
def test_g34_what_a_chat_model_cannot_continue_is_refused(
    gateway: Gateway, upstream: FakeUpstream, fields: dict[str, Any], param: str
) -> None:
    status, told, _ = ask(gateway, "old", "/v1/completions", **{"prompt": "Once", **fields})
    assert (status, told["error"]["param"]) == (400, param)
    assert upstream.requests == []


def test_completions_of_a_script_and_chats_to_a_model_without(gateway: Gateway, upstream: FakeUpstream) -> None:
    status, told, _ = ask(gateway, "scripted-vectors", "/v1/completions", prompt="Once", n=2, max_tokens=2)
    assert (status, [choice["text"] for choice in told["choices"]]) == (200, ["This answer "] * 2)
    assert [choice["finish_reason"] for choice in told["choices"]] == ["length"] * 2
    status, told, _ = ask(gateway, "instruct")
    assert (status, told["error"]["code"]) == (400, "unsupported_value") and upstream.requests == []
