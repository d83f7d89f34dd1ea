"""The scripted provider: what a script says is what happens, and its log tells what was really sent."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from providers import errors
from providers.dialects import DIALECTS
from providers.scripted import DEFAULT_TEXT, Entry, Script, ScriptedProvider, parse
from providers.types import (
    Deadline,
    Event,
    Failed,
    Finished,
    Frame,
    Metered,
    Request,
    Started,
    Target,
    TextDelta,
    ToolCallDelta,
    Usage,
    Vector,
)

TARGET = Target(backend="b", model="m-basic")
QUICK = Deadline(first_byte_s=1.0, idle_s=1.0, total_s=2.0)


def ask(stream: bool = True, text: str = "one two three", **fields: Any) -> Request:
    body = {"model": "r", "stream": stream, "messages": [{"role": "user", "content": text}], **fields}
    return DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body))


async def frames(provider: ScriptedProvider, request: Request, deadline: Deadline = QUICK) -> list[Frame]:
    return [frame async for frame in provider.call(request, TARGET, deadline)]


def events(received: list[Frame]) -> list[Event]:
    return [event for frame in received for event in frame.events]


def said(received: list[Frame]) -> str:
    return "".join(event.text for event in events(received) if isinstance(event, TextDelta))


async def test_empty_script_streams_its_default_and_counts() -> None:
    provider = ScriptedProvider(parse(""))
    received = await frames(provider, ask())
    assert said(received) == DEFAULT_TEXT
    assert isinstance(received[0].events[0], Started)
    assert received[0].events[0].model == "m-basic"
    assert received[-1].events == [Finished("stop"), Metered(Usage(input=3, output=4))]
    assert len(received) == 6 and all(not frame.wire and not frame.whole for frame in received)


async def test_whole_answer_is_one_frame() -> None:
    received = await frames(ScriptedProvider(parse("")), ask(stream=False))
    assert [frame.whole for frame in received] == [True]
    assert said(received) == DEFAULT_TEXT


@pytest.mark.parametrize("stream", [True, False])
async def test_limit_cuts_with_length(stream: bool) -> None:
    received = await frames(ScriptedProvider(parse("tokens = 10\ntext = 'a b '")), ask(stream, max_tokens=3))
    assert said(received) == "a b a "
    assert Finished("length") in events(received)
    free = await frames(ScriptedProvider(parse("tokens = 10\nobey_limit = false")), ask(stream, max_tokens=3))
    assert Finished("stop") in events(free)
    assert events(free)[-1] == Metered(Usage(input=3, output=10))


async def test_targets_limit_wins() -> None:
    request, target = ask(max_tokens=9), Target(backend="b", model="m", max_tokens=2)
    provider = ScriptedProvider(parse("tokens = 20"))
    received = [frame async for frame in provider.call(request, target, QUICK)]
    assert len(said(received).split()) == 2


async def test_echo_reasoning_usage_and_choices() -> None:
    provider = ScriptedProvider(parse('echo = true\nreasoning = "let me see"\nusage = {input = 7, output = 9, cache_read = 2}'))
    received = await frames(provider, ask(n=2))
    texts = [event for event in events(received) if isinstance(event, TextDelta)]
    assert "".join(event.text for event in texts if event.choice == 1) == "one two three"
    assert events(received)[-1] == Metered(Usage(input=7, output=9, cache_read=2))


@pytest.mark.parametrize("stream", [True, False])
async def test_tool_call(stream: bool) -> None:
    provider = ScriptedProvider(parse('{"tool_calls": [{"name": "f", "arguments": "{\\"a\\": 1}"}, {"name": "g"}]}'))
    received = events(await frames(provider, ask(stream)))
    pieces = [event for event in received if isinstance(event, ToolCallDelta)]
    assert "".join(piece.arguments for piece in pieces if piece.index == 0) == '{"a": 1}'
    assert [piece.name for piece in pieces if piece.name] == ["f", "g"]
    assert len({piece.id for piece in pieces if piece.id}) == 2
    assert Finished("tool_calls") in received
    assert not any(isinstance(event, TextDelta) for event in received)


@pytest.mark.parametrize(
    ("name", "kind", "status"),
    [("rate_limited", errors.RateLimited, 429), ("unavailable", errors.Unavailable, 503), ("context_too_long", errors.ContextTooLong, 400)],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_error_before_the_first_event(stream: bool, name: str, kind: type[errors.ProviderError], status: int) -> None:
    provider = ScriptedProvider(parse(f"error = '{name}'\nretry_after_s = 3"))
    with pytest.raises(kind) as caught:
        await frames(provider, ask(stream))
    assert (caught.value.status, caught.value.answered, caught.value.retry_after_s) == (status, True, 3.0)
    assert (provider.log[-1].outcome, provider.log[-1].output) == ("failed", 0)


async def test_unreachable_was_not_sent() -> None:
    with pytest.raises(errors.Unreachable) as caught:
        await frames(ScriptedProvider(parse("error = 'unreachable'")), ask())
    assert not caught.value.sent


async def test_malformed() -> None:
    with pytest.raises(errors.BadAnswer):
        await frames(ScriptedProvider(parse("malformed = true")), ask())


@pytest.mark.parametrize(
    ("script", "kind"),
    [("cut_after = 2", errors.Cut), ("error = 'server_failed'\nerror_after = 2", errors.ServerFailed)],
)
async def test_break_in_mid_stream_is_the_last_event(script: str, kind: type[errors.ProviderError]) -> None:
    provider = ScriptedProvider(parse(script))
    received = events(await frames(provider, ask()))
    last = received[-1]
    assert isinstance(last, Failed) and type(last.error) is kind and not last.error.answered
    assert not any(isinstance(event, Finished) for event in received)
    assert (provider.log[-1].outcome, provider.log[-1].output) == ("failed", 2)


async def test_times_then_recovers() -> None:
    provider = ScriptedProvider(parse('text = "ok"\n[[sequence]]\nerror = "unavailable"\ntimes = 2\n[[sequence]]\n'))
    for _ in range(2):
        with pytest.raises(errors.Unavailable):
            await frames(provider, ask())
    for _ in range(2):
        assert said(await frames(provider, ask())) == "ok"


async def test_latencies_are_kept() -> None:
    """Never early; and to the point, once the machine is not busy with something else."""
    end = time.monotonic() + 60.0
    late_s = 1.0
    while late_s > 0.04 and time.monotonic() < end:
        provider = ScriptedProvider(parse("ttft_s = 0.1\ntpot_s = 0.05\ntokens = 3"))
        began, times = time.monotonic(), []
        async for frame in provider.call(ask(), TARGET, QUICK):
            if isinstance(frame.events[0], TextDelta):
                times.append(time.monotonic() - began)
        over = [took - due for took, due in zip(times, (0.1, 0.15, 0.2), strict=True)]
        assert min(over) > -0.01
        late_s = max(over)
    assert late_s <= 0.04


@pytest.mark.parametrize(("script", "sent"), [("hang_after = 0", 0), ("hang_after = 2", 2), ("ttft_s = 9", 0)])
async def test_hang_ends_at_the_limit(script: str, sent: int) -> None:
    provider = ScriptedProvider(parse(script))
    brief = Deadline(first_byte_s=0.1, idle_s=0.1, total_s=1.0)
    began = time.monotonic()
    try:
        last = events(await frames(provider, ask(), brief))[-1]
        assert isinstance(last, Failed)
        error: errors.ProviderError = last.error
    except errors.TimedOut as raised:
        error = raised
    assert isinstance(error, errors.TimedOut)
    assert 0.05 < time.monotonic() - began < 10
    assert provider.log[-1].output == sent


async def test_closing_early_is_logged_with_what_was_sent() -> None:
    provider = ScriptedProvider(parse("tokens = 100\ntpot_s = 0.01"))
    call = provider.call(ask(), TARGET, QUICK)
    count = 0
    async for frame in call:
        count += isinstance(frame.events[0], TextDelta)
        if count == 5:
            break
    await call.aclose()  # type: ignore[attr-defined]
    assert [entry.event for entry in provider.log] == ["asked", "ended"]
    assert (provider.log[-1].outcome, provider.log[-1].output) == ("closed", 5)


async def test_cancelling_is_logged() -> None:
    provider = ScriptedProvider(parse("hang_after = 1"))
    task = asyncio.create_task(frames(provider, ask()))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (provider.log[-1].outcome, provider.log[-1].output) == ("closed", 1)


async def test_log_file_has_whole_lines_from_several_providers(tmp_path: Path) -> None:
    script = parse(f"log = '{tmp_path / 'x.jsonl'}'\ntokens = 2")
    providers = [ScriptedProvider(script), ScriptedProvider(script)]
    for provider in providers:
        await asyncio.gather(*(frames(provider, ask(text="héllo 你好", max_tokens=5)) for _ in range(5)))
        await provider.close()
        await provider.close()
    entries = [msgspec.json.decode(line, type=Entry) for line in (tmp_path / "x.jsonl").read_bytes().splitlines()]
    assert sum(entry.event == "asked" for entry in entries) == 10
    ended = [entry for entry in entries if entry.event == "ended"]
    assert [(entry.outcome, entry.input, entry.output) for entry in ended] == [("completed", 2, 2)] * 10
    assert {entry.last for entry in entries if entry.event == "asked"} == {"héllo 你好"}


def test_parse_reads_files_and_json(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text("text = 'x'")
    assert parse(f"file:{path}") == parse('{"text": "x"}') == parse("text = 'x'")
    assert parse("") == Script()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("texd = 'x'", "texd"),
        ("{", "not valid"),
        ("a = = 1", "not valid"),
        ("error = 'boom'", "boom"),
        ("file:/no/such", "/no/such"),
        ("sequence = 3", "not valid"),
    ],
)
def test_parse_says_what_is_wrong(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        parse(text)


async def test_embeddings_are_unit_vectors_and_always_the_same() -> None:
    request = DIALECTS["openai_embeddings"].decode_request(b'{"model":"m","input":["one two","three"],"dimensions":5}')
    provider = ScriptedProvider(parse(""))
    answers = [await frames(provider, request) for _ in range(2)]
    vectors = [[event for event in answer[0].events if isinstance(event, Vector)] for answer in answers]
    assert vectors[0] == vectors[1]
    assert [vector.index for vector in vectors[0]] == [0, 1]
    for vector in vectors[0]:
        numbers = msgspec.json.decode(vector.data, type=list[float])
        assert len(numbers) == 5 and sum(number * number for number in numbers) == pytest.approx(1.0)
    assert answers[0][0].events[-2:] == [Metered(Usage(input=3)), Finished("stop")]
    assert provider.log[-1].output == 0
