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
from local_engine.wire import Params
from providers.chat_template import Defaults
from providers.dialects import DIALECTS
from providers.errors import ContextTooLong, Cut, ProviderError, Rejected, TimedOut, Unavailable, Unreachable, Unsupported
from providers.local import LocalProvider, read_params
from providers.types import Deadline, Failed, Finished, Frame, Message, Metered, Request, Started, Target, TextDelta
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
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True}, "logprobs"),
        ({"n": 2}, "n"),
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
        if loading is not None:  # else this small model was loaded before we asked
            assert isinstance(loading, Unavailable)
            assert loading.retry_after_s == 2.0
        await until(ready, 60)
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
    with pytest.raises(Unsupported) as refused:
        read_params(message(tools=[{"name": "f", "input_schema": {}}]), TARGET, Defaults())
    assert refused.value.param == "tools"


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
