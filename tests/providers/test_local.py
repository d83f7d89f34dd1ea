"""The provider over a real engine process with a tiny model."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from local_engine.client import EngineClient
from local_engine.wire import Batch, FrameReader, Params, Piece, Submit, Welcome, decode_to_engine
from local_engine.wire import frame as wire_frame
from providers.chat_template import Defaults
from providers.dialects import DIALECTS
from providers.errors import ContextTooLong, Cut, ProviderError, Rejected, TimedOut, Unavailable, Unreachable, Unsupported
from providers.local import LocalProvider, read_params
from providers.types import Deadline, Failed, Finished, Frame, Message, Metered, Request, Started, Target, TextDelta, ToolCallDelta
from providers.vendors import VENDORS
from tests.local_engine.tiny import engine_process, make_model, until, wait_ready

CONTEXT = 16384
TARGET = Target(backend="smol", model="tiny", salt="team")


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny", max_position_embeddings=CONTEXT)


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory, model_dir: Path) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("engine") / "e.sock"
    with engine_process(path, model_dir, "--threads", "1"):
        wait_ready(path)
        yield path


@pytest.fixture
async def provider(socket: Path, model_dir: Path) -> AsyncIterator[LocalProvider]:
    made = LocalProvider(socket, model_dir, "tiny")
    yield made
    await made.close()


def message(**fields: Any) -> Request:
    """A request of an Anthropic client."""
    body = {"model": "assistant", "max_tokens": 9, "messages": [{"role": "user", "content": "the quick"}], **fields}
    return DIALECTS["anthropic_messages"].decode_request(json.dumps(body).encode())


def request(content: str = "the quick", **fields: Any) -> Request:
    body = {"model": "assistant", "messages": [{"role": "user", "content": content}], **fields}
    return DIALECTS["openai_chat"].decode_request(json.dumps(body).encode())


async def frames(provider: LocalProvider, request: Request, target: Target = TARGET, deadline: Deadline | None = None) -> list[Frame]:
    async with aclosing(provider.call(request, target, deadline or Deadline())) as source:
        return [frame async for frame in source]


def text(found: list[Frame]) -> str:
    return "".join(event.text for frame in found for event in frame.events if isinstance(event, TextDelta))


async def test_an_answer_is_started_text_finished_and_exact_usage(provider: LocalProvider, socket: Path) -> None:
    found = await frames(provider, request(temperature=0, max_tokens=30, logit_bias={"0": -100}))
    events = [event for frame in found for event in frame.events]
    started, ended, metered = events[0], events[-2], events[-1]
    assert isinstance(started, Started)
    assert started.model == "tiny"
    assert started.created > 1_700_000_000
    assert ended == Finished("length")
    assert isinstance(metered, Metered)
    assert (metered.usage.output, metered.usage.estimated) == (30, False)
    assert all(type(event) in (TextDelta, Metered) for event in events[1:-2])
    assert {frame.dialect for frame in found} == {""}
    prompt = "<|start|>user\nthe quick<|end|>\n<|start|>assistant\n"
    client = EngineClient(str(socket))
    pieces = [p async for p in client.submit(prompt, Params(temperature=0, max_tokens=30, logit_bias={0: -100.0}))]
    await client.close()
    assert text(found) == "".join(piece.text for piece in pieces)
    assert metered.usage.input == pieces[-1].prompt_tokens


async def test_fields_reach_the_engine(provider: LocalProvider) -> None:
    whole = text(await frames(provider, request(temperature=0, max_completion_tokens=40, logit_bias={"0": -100})))
    stop = whole[10:14]
    stopped = await frames(provider, request(temperature=0, max_completion_tokens=40, logit_bias={"0": -100}, stop=stop))
    assert text(stopped) == whole[: whole.index(stop)]
    assert Finished("stop") in stopped[-1].events
    sampled = [text(await frames(provider, request(temperature=1.5, seed=3, max_tokens=20))) for _ in range(2)]
    assert sampled[0] == sampled[1] != whole[: len(sampled[0])]
    clamped = await frames(provider, request(temperature=0, logit_bias={"0": -100}), msgspec.structs.replace(TARGET, max_tokens=3))
    assert clamped[-1].events[-1].usage.output == 3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"prediction": {"type": "content", "content": "x"}}, "prediction"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]}]}, "messages"),
    ],
)
async def test_what_it_cannot_honour_is_refused_by_name_before_anything_is_sent(
    fields: dict[str, Any], param: str, model_dir: Path
) -> None:
    provider = LocalProvider(Path("/nowhere/e.sock"), model_dir, "tiny")
    with pytest.raises(Unsupported) as refused:
        await frames(provider, request(**fields))
    assert (refused.value.param, refused.value.sent) == (param, False)


def test_values_that_ask_for_nothing_pass_and_what_is_dropped_is_named() -> None:
    asked = request(
        n=1, logprobs=False, tools=[], response_format={"type": "text"}, user="u", store=True, service_tier="auto", top_p=None, stream=True
    )
    assert read_params(asked, TARGET, Defaults()) == Params()
    assert asked.dropped == ("store",)


def test_the_model_s_recommended_sampling_fills_what_the_client_left_open() -> None:
    defaults = Defaults(temperature=0.2, top_p=0.9)
    assert read_params(request(temperature=1), TARGET, defaults) == Params(temperature=1.0, top_p=0.9)


def test_every_honoured_field_is_mapped() -> None:
    asked = request(temperature=0.5, top_p=0.8, seed=4, stop=["a", "b"], presence_penalty=1, frequency_penalty=-1, logit_bias={"5": 2})
    wanted = Params(
        temperature=0.5, top_p=0.8, seed=4, stop=("a", "b"), presence_penalty=1.0, frequency_penalty=-1.0, logit_bias={5: 2.0}
    )  # fmt: skip
    assert read_params(asked, TARGET, Defaults()) == wanted
    further = {"top_k": 5, "min_p": 0.1, "min_tokens": 2, "ignore_eos": True, "repetition_penalty": 1.2, "n": 3}
    assert read_params(request(**further), TARGET, Defaults()) == Params(**further)
    assert VENDORS["local"].honours == set(request(**further, structured_outputs={}).unknown)  # what no language's table knows
    assert read_params(request(logprobs=True), TARGET, Defaults()).logprobs == 0
    assert read_params(request(logprobs=True, top_logprobs=4), TARGET, Defaults()).logprobs == 4
    with pytest.raises(Rejected) as wrong:
        read_params(request(logprobs=False, top_logprobs=4), TARGET, Defaults())
    assert wrong.value.param == "top_logprobs"


def test_a_limit_that_does_not_fit_is_lowered_only_where_the_client_allows_it_or_set_none() -> None:
    def clamps(asked: Request, **target: Any) -> tuple[int | None, bool]:
        params = read_params(asked, msgspec.structs.replace(TARGET, **target), Defaults())
        return params.max_tokens, params.clamp

    assert clamps(request(max_tokens=9)) == (9, False)
    assert clamps(request(max_tokens=9), clamp=True) == (9, True)
    assert clamps(request(), max_tokens=4096) == (4096, True)  # the gateway's own limit, for a budget
    assert clamps(request()) == (None, False)


async def test_what_is_lowered_is_told_with_its_number(provider: LocalProvider) -> None:
    asked = request("the quick " * 5, temperature=0, max_tokens=CONTEXT, stop="e", logit_bias={"0": -100})
    found = await frames(provider, asked, msgspec.structs.replace(TARGET, clamp=True))
    usage = found[-1].events[-1].usage  # type: ignore[union-attr]
    assert asked.clamped == CONTEXT - usage.input
    fits = request(max_tokens=2)
    await frames(provider, fits, msgspec.structs.replace(TARGET, clamp=True))
    assert fits.clamped is None


def function(name: str, strict: bool | None = None, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": schema, **({} if strict is None else {"strict": strict})}}


SUM = function("sum", a={"type": "integer"}, b={"type": "boolean"})
LIGHT = function("light", on={"type": "boolean"})


def calls(found: list[Frame]) -> list[tuple[str, Any]]:
    named: dict[int, list[str]] = {}
    for frame in found:
        for event in frame.events:
            if isinstance(event, ToolCallDelta):
                named.setdefault(event.index, [event.name or ""]).append(event.arguments)
    return [(name, json.loads("".join(said))) for name, *said in named.values()]


async def test_forced_tool_calls_are_valid_whatever_the_model_is(provider: LocalProvider) -> None:
    for seed in range(4):
        asked = request(tools=[SUM, LIGHT], tool_choice="required", parallel_tool_calls=False, seed=seed, temperature=2.0, max_tokens=200)
        found = await frames(provider, asked)
        ((name, arguments),) = calls(found)
        assert arguments.keys() == ({"a", "b"} if name == "sum" else {"on"})
        assert Finished("tool_calls") in found[-1].events and text(found) == ""
    named = {"type": "function", "function": {"name": "light"}}
    ((name, arguments),) = calls(await frames(provider, request(tools=[SUM, LIGHT], tool_choice=named, seed=1, max_tokens=200)))
    assert name == "light" and arguments in ({"on": True}, {"on": False})


async def test_a_call_that_a_stop_string_cuts_is_not_told_as_a_call_to_make(provider: LocalProvider) -> None:
    found = await frames(provider, request(tools=[LIGHT], tool_choice="required", stop=['"on'], seed=1, max_tokens=200))
    assert any(isinstance(event, ToolCallDelta) for frame in found for event in frame.events)
    assert Finished("stop") in found[-1].events and text(found) == ""


async def test_with_tools_that_may_be_used_the_answer_is_text_or_a_valid_call(provider: LocalProvider) -> None:
    answered = await frames(provider, request(tools=[LIGHT], seed=1, max_tokens=20, logit_bias={"0": -100}))
    assert text(answered) and calls(answered) == [] and Finished("length") in answered[-1].events
    untold = request(tools=[LIGHT], tool_choice="none", temperature=0, max_tokens=5)
    plainly = request(temperature=0, max_tokens=5)
    assert text(await frames(provider, untold)) == text(await frames(provider, plainly))


async def test_structured_output_is_kept_and_streams(provider: LocalProvider) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    found = await frames(provider, request(response_format=form, seed=5, n=2, max_tokens=60))
    for choice in (0, 1):
        said = "".join(e.text for f in found for e in f.events if isinstance(e, TextDelta) and e.choice == choice)
        assert json.loads(said) in ({"ok": True}, {"ok": False})
    whole = json.loads(DIALECTS["openai_chat"].encode_answer(found, request(n=2)))
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    assert {choice["finish_reason"] for choice in whole["choices"]} == {"stop"}
    counts = [len(DIALECTS["openai_chat"].encode_answer([f], request())) for f in found if any(isinstance(e, TextDelta) for e in f.events)]
    assert len(counts) >= 1
    picked = text(await frames(provider, request(structured_outputs={"choice": ["red", "blue"]}, seed=2, max_tokens=9)))
    assert picked in ("red", "blue")
    matched = text(await frames(provider, request(structured_outputs={"regex": "[0-9]{4}"}, seed=2, max_tokens=9)))
    assert len(matched) == 4 and matched.isdigit()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "objekt"}}}}, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"not": {}}}}},
            "response_format",
        ),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "objekt"}}}]}, "tools"),
        ({"tools": [LIGHT], "tool_choice": {"type": "function", "function": {"name": "sum"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs"),
    ],
)
async def test_what_no_answer_can_be_held_to_is_the_client_s_fault_by_name(
    provider: LocalProvider, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(Rejected) as wrong:
        await frames(provider, request(**fields))
    assert (wrong.value.status, wrong.value.param) == (400, param)
    assert await provider.check() is None


async def test_log_probabilities_in_both_of_openai_s_languages(provider: LocalProvider) -> None:
    asked = request(temperature=0, max_tokens=6, logit_bias={"0": -100}, logprobs=True, top_logprobs=2)
    found = await frames(provider, asked)
    (choice,) = json.loads(DIALECTS["openai_chat"].encode_answer(found, asked))["choices"]
    told = choice["logprobs"]["content"]
    assert len(told) == 6 and all(len(one["top_logprobs"]) == 2 and one["logprob"] <= 0 for one in told)
    assert b"".join(bytes(one["bytes"]) for one in told).decode(errors="replace") == choice["message"]["content"]

    body = {"model": "m", "prompt": "the quick", "max_tokens": 6, "temperature": 0, "logprobs": 2}
    given = DIALECTS["openai_completions"].decode_request(json.dumps(body).encode())
    (legacy,) = json.loads(DIALECTS["openai_completions"].encode_answer(await frames(provider, given), given))["choices"]
    assert "".join(legacy["logprobs"]["tokens"]) == legacy["text"] and len(legacy["logprobs"]["top_logprobs"][0]) == 2


async def test_a_bare_prompt_is_continued_as_it_stands(provider: LocalProvider, socket: Path) -> None:
    body = {"model": "m", "prompt": "the quick brown", "max_tokens": 12, "temperature": 0}
    found = await frames(provider, DIALECTS["openai_completions"].decode_request(json.dumps(body).encode()))
    client = EngineClient(str(socket))
    pieces = [p async for p in client.submit("the quick brown", Params(temperature=0, max_tokens=12))]
    await client.close()
    assert text(found) == "".join(piece.text for piece in pieces)
    usage = found[-1].events[-1].usage  # type: ignore[union-attr]
    assert (usage.input, usage.output) == (pieces[-1].prompt_tokens, pieces[-1].output_tokens)


async def test_choices_count_the_prompt_once(provider: LocalProvider) -> None:
    single = (await frames(provider, request(max_tokens=7, seed=1, ignore_eos=True)))[-1].events[-1].usage  # type: ignore[union-attr]
    found = await frames(provider, request(max_tokens=7, seed=1, ignore_eos=True, n=3))
    usage = found[-1].events[-1].usage  # type: ignore[union-attr]
    assert (usage.input, usage.output) == (single.input, 21)
    assert sum(isinstance(event, Finished) for frame in found for event in frame.events) == 3


async def test_a_request_s_tenant_and_priority_reach_the_engine(tmp_path: Path, model_dir: Path) -> None:
    sent, ended = list[Submit](), asyncio.Event()

    async def engine(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        messages = FrameReader()
        while data := await reader.read(65536):
            for body in messages.feed(data):
                message = decode_to_engine(body)
                if isinstance(message, Submit):
                    sent.append(message)
                    writer.write(wire_frame(Batch([Piece(message.id, "x", [5], 3, 1, "stop")])))
                else:
                    writer.write(wire_frame(Welcome(state="ready", context_tokens=99)))
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with await asyncio.start_unix_server(engine, tmp_path / "e.sock"):
        provider = LocalProvider(tmp_path / "e.sock", model_dir, "tiny")
        for priority in (-1, 0, 1):
            await frames(provider, request(), Target(backend="smol", model="tiny", salt=f"salt {priority}", priority=priority))
        await provider.close()
        await ended.wait()
    assert [(one.salt, one.priority) for one in sent] == [("salt -1", 1), ("salt 0", 0), ("salt 1", -1)]  # its lower number goes first


async def test_a_tenant_s_salt_goes_with_every_request_so_that_prefixes_are_never_shared(provider: LocalProvider, socket: Path) -> None:
    client = EngineClient(str(socket))

    async def hits(team: str) -> int:
        before = (await client.stats()).prefix_hit_tokens
        asked = request("a secret that is long enough for some blocks " * 4, max_tokens=1)
        await frames(provider, asked, Target(backend="smol", model="tiny", salt=team))
        return (await client.stats()).prefix_hit_tokens - before

    assert await hits("salt-a") == 0
    assert await hits("salt-b") == 0
    assert await hits("salt-a") > 0
    await client.close()


async def test_refusals_of_the_engine_are_the_client_s_fault_and_cost_nothing(provider: LocalProvider) -> None:
    with pytest.raises(ContextTooLong, match=rf"\d+ tokens.*max_tokens {CONTEXT}.*{CONTEXT}") as long:
        await frames(provider, request(max_tokens=CONTEXT))
    assert (long.value.answered, long.value.status, long.value.code) == (True, 400, "context_length_exceeded")
    with pytest.raises(Rejected) as wrong:
        await frames(provider, request(logit_bias={"99999999": 1}))
    assert (wrong.value.answered, wrong.value.param) == (True, "logit_bias")


async def test_messages_that_cannot_be_read_are_the_client_s_fault_and_nothing_is_sent(provider: LocalProvider) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"a","name":5}]}'
    with pytest.raises(Rejected) as wrong:
        await frames(provider, DIALECTS["openai_chat"].decode_request(body))
    assert (wrong.value.sent, wrong.value.status, wrong.value.param) == (False, 400, "messages[0].name")


async def test_limits_of_time(provider: LocalProvider, socket: Path) -> None:
    endless = request(logit_bias={"0": -100})
    with pytest.raises(TimedOut):
        await frames(provider, endless, deadline=Deadline(first_byte_s=0.0))
    found = await frames(provider, endless, deadline=Deadline(total_s=0.5))
    failed = found[-1].events[-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, TimedOut)
    assert not any(isinstance(event, Finished) for frame in found for event in frame.events)
    await idle(socket)


async def test_closing_the_iterator_frees_the_sequence(provider: LocalProvider, socket: Path) -> None:
    source = provider.call(request(logit_bias={"0": -100}), TARGET, Deadline())
    await anext(source)
    await source.aclose()
    await idle(socket)


async def test_its_figures_are_those_of_the_socket(provider: LocalProvider, socket: Path) -> None:
    source = provider.call(request(logit_bias={"0": -100}), TARGET, Deadline())
    await anext(source)
    busy = await provider.figures(20.0, 0)
    assert (busy.waiting, busy.running) == (0, 1) and busy.kv_bytes_used
    await source.aclose()
    await idle(socket)
    client = EngineClient(str(socket))
    stats, still = await client.stats(), await provider.figures(20.0, 0)
    await client.close()
    assert (still.waiting, still.running, still.prefill_tokens) == (0, 0, 0)
    assert (still.kv_bytes_used, still.kv_bytes_cap) == (stats.kv_bytes_used, stats.kv_bytes_cap)
    assert (still.kv_blocks_used, still.kv_blocks_free, still.kv_blocks_shared) == (stats.kv_blocks_used, stats.kv_blocks_free, 0)
    assert still.kv_share == stats.kv_bytes_used / stats.kv_bytes_cap
    assert (still.prompt_tokens, still.prefix_hit_tokens) == (stats.prompt_tokens, stats.prefix_hit_tokens)
    assert (still.output_tokens, still.preemptions, still.steps) == (stats.output_tokens, stats.preemptions, stats.steps)
    times = still.time_to_first_token
    assert times is not None and sum(times.counts) == sum(stats.first_token.counts) > 0
    assert len(times.counts) == len(times.bounds) + 1
    assert (still.device_memory_bytes, still.device_busy_share) == (None, None), "a CPU"


async def idle(socket: Path) -> None:
    client = EngineClient(str(socket))

    async def nothing_runs() -> bool:
        stats = await client.stats()
        return stats.running + stats.waiting == 0

    await until(nothing_runs, 30)
    await client.close()


async def test_before_there_is_a_model_or_an_engine(tmp_path: Path, model_dir: Path) -> None:
    provider = LocalProvider(tmp_path / "e.sock", tmp_path / "tiny", "tiny")
    with pytest.raises(Unavailable, match="tollway models get tiny") as refused:
        await frames(provider, request())
    assert (refused.value.retry_after_s, refused.value.sent) == (2.0, False)
    provider = LocalProvider(tmp_path / "e.sock", model_dir, "tiny")
    assert "no engine behind" in (await provider.check() or "")
    await asyncio.sleep(0.06)
    with pytest.raises(Unreachable):
        await frames(provider, request())


async def test_killed_after_the_first_token_is_a_failed_event_and_before_it_an_error(tmp_path: Path, model_dir: Path) -> None:
    path = tmp_path / "e.sock"
    with engine_process(path, model_dir) as process:
        provider = LocalProvider(path, model_dir, "tiny")

        async def ready() -> bool:
            return await provider.check() is None

        loading: ProviderError | None = None
        try:
            await frames(provider, request(max_tokens=1))
        except ProviderError as error:
            loading = error
        if isinstance(loading, Unavailable):  # else this small model was loaded before we asked, or nobody listened at its socket yet
            assert loading.retry_after_s == 2.0
        else:
            assert loading is None or isinstance(loading, Unreachable)
        await until(ready, 180)
        source = provider.call(request(logit_bias={"0": -100}), TARGET, Deadline())
        first = await anext(source)
        assert isinstance(first.events[0], Started)
        process.send_signal(signal.SIGSTOP)
        second = asyncio.ensure_future(anext(provider.call(request(), TARGET, Deadline())))
        await asyncio.sleep(0.05)
        process.kill()
        rest = [frame async for frame in source]
        failed = rest[-1].events[-1]
        assert isinstance(failed, Failed)
        assert isinstance(failed.error, Cut)
        with pytest.raises(Cut) as cut:
            await second
        assert cut.value.retryable
        await provider.close()


async def test_messages_already_decoded_are_taken_as_they_are(provider: LocalProvider) -> None:
    asked = request(max_tokens=2)
    asked.dialect = "another"
    asked.decoded = (Message(role="user", content="hi"),)
    assert (await frames(provider, asked))[-1].events


def test_requests_of_another_language_mean_the_same() -> None:
    asked = message(temperature=0.5, top_k=5, stop_sequences=["a", "b"], metadata={"user_id": "u"}, service_tier="standard_only")
    assert read_params(asked, TARGET, Defaults()) == Params(max_tokens=9, temperature=0.5, top_k=5, stop=("a", "b"))
    assert asked.dropped == ("service_tier",)
    grammar = read_params(message(tools=[{"name": "f", "input_schema": {"type": "object"}}]), TARGET, Defaults()).grammar
    assert grammar is not None and (grammar.kind, grammar.param) == ("lark", "tools")
    honoured = read_params(message(min_p=0.1, repetition_penalty=1.1), TARGET, Defaults())
    assert (honoured.min_p, honoured.repetition_penalty) == (0.1, 1.1)


async def test_an_anthropic_client_is_answered_by_the_engine(provider: LocalProvider) -> None:
    asked = message(temperature=0, system="Be kind.", max_tokens=5)
    found = [event for frame in await frames(provider, asked) for event in frame.events]
    assert Finished("length") in found and isinstance(found[-1], Metered)


async def test_a_responses_client_is_answered_too(provider: LocalProvider) -> None:
    asked = {"instructions": "over", "input": "the quick", "temperature": 0, "max_output_tokens": 3, "text": {"verbosity": "low"}}
    body = json.dumps({"model": "assistant", **asked, "reasoning": {"effort": "low"}, "store": True}).encode()
    given = DIALECTS["openai_responses"].decode_request(body)
    found = await frames(provider, given)
    assert found[-1].events[-1].usage.output == 3  # type: ignore[union-attr]
    assert set(given.dropped) == {"verbosity", "reasoning.effort", "store"}
    answer = json.loads(DIALECTS["openai_responses"].encode_answer(found, given))
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert answer["output"][0]["content"][0]["text"] == text(found)
