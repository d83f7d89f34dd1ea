"""A backend over HTTP end to end on a real socket: what goes out, what comes back, and what each odd answer becomes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from providers import errors, limit_headers
from providers.dialects import DIALECTS
from providers.http import Upstream
from providers.remote import RemoteProvider
from providers.types import Deadline, Event, Failed, Finished, Frame, Metered, Request, Started, Target, TextDelta, Usage
from providers.vendors import VENDORS
from tests.fakes.upstream import (
    FakeUpstream,
    Step,
    body_reply,
    chat_answer,
    chat_chunks,
    close,
    hang,
    head,
    json_reply,
    refused_url,
    reset,
    sse_reply,
)

TARGET = Target(backend="b", model="m-basic")
QUICK = Deadline(connect_s=1.0, first_byte_s=1.0, idle_s=1.0, total_s=4.0)
WORDS = ["Hel", "lo ", "wörld"]


@dataclass
class Limits:
    max_connections: int = 10
    max_answer_bytes: int = 1_000_000
    keepalive_s: float = 30.0


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    client = Upstream(Limits())
    yield client
    await client.close()


def remote(fake: FakeUpstream, upstream: Upstream, vendor: str = "openai") -> RemoteProvider:
    return RemoteProvider(VENDORS[vendor], fake.url + "/v1/", "sk-secret-1", upstream)


def ask(stream: bool = True, **fields: Any) -> Request:
    body = {"model": "route", "stream": stream, "messages": [{"role": "user", "content": "hi"}], **fields}
    return DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body))


async def frames(provider: RemoteProvider, request: Request, deadline: Deadline = QUICK) -> list[Frame]:
    return [frame async for frame in provider.call(request, TARGET, deadline)]


def events(received: list[Frame]) -> list[Event]:
    return [event for frame in received for event in frame.events]


def said(received: list[Frame]) -> str:
    return "".join(event.text for event in events(received) if isinstance(event, TextDelta))


async def test_whole_answer(upstream: Upstream) -> None:
    async with FakeUpstream(json_reply(chat_answer("Hello", usage=(12, 3)))) as fake:
        received = await frames(remote(fake, upstream), ask(stream=False))
        assert [frame.whole for frame in received] == [True]
        assert said(received) == "Hello"
        assert Metered(Usage(input=12, output=3)) in events(received)
        assert received[0].dialect == "openai_chat" and b'"Hello"' in received[0].wire
        seen = fake.requests[0]
        assert (seen.method, seen.target) == ("POST", "/v1/chat/completions")
        assert seen.headers["authorization"] == "Bearer sk-secret-1"
        assert seen.headers["content-type"] == "application/json"
        assert seen.json()["model"] == "m-basic"


async def test_stream(upstream: Upstream) -> None:
    async with FakeUpstream(sse_reply(chat_chunks(WORDS, usage=(12, 3)))) as fake:
        received = await frames(remote(fake, upstream), ask())
        assert said(received) == "".join(WORDS)
        assert Finished("stop") in events(received)
        assert Metered(Usage(input=12, output=3)) in events(received)
        body = fake.requests[0].json()
        assert body["stream"] is True and body["stream_options"] == {"include_usage": True} and body["store"] is False
        await asyncio.sleep(0.05)
        await frames(remote(fake, upstream), ask())
        assert fake.connections == 1  # a stream that ended gives its connection back


async def test_frames_come_as_they_are_sent(upstream: Upstream) -> None:
    async with FakeUpstream(sse_reply(chat_chunks(WORDS), delay_s=0.15)) as fake:
        loop = asyncio.get_running_loop()
        began, times = loop.time(), []
        async for frame in remote(fake, upstream).call(ask(), TARGET, QUICK):
            if any(isinstance(event, TextDelta) for event in frame.events):
                times.append(loop.time() - began)
        assert times == pytest.approx([0.15, 0.3, 0.45], abs=0.1)


async def test_vendor_without_usage_option_is_not_asked_for_it(upstream: Upstream) -> None:
    async with FakeUpstream(sse_reply(chat_chunks(WORDS))) as fake:
        await frames(remote(fake, upstream, "mistral"), ask(max_completion_tokens=7))
        body = fake.requests[0].json()
        assert "stream_options" not in body and "store" not in body
        assert body["max_tokens"] == 7 and "max_completion_tokens" not in body


# ---- errors that come as answers
@pytest.mark.parametrize(
    ("status", "body", "kind", "told"),
    [
        (429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, errors.RateLimited, 429),
        (401, {"error": {"message": "bad key", "code": "invalid_api_key"}}, errors.Unauthorized, 502),
        (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}, errors.ContextTooLong, 400),
        (500, {"error": {"message": "oops"}}, errors.ServerFailed, 500),
        (503, {"error": {"message": "loading"}}, errors.Unavailable, 503),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_http_errors_keep_their_kind(
    upstream: Upstream, stream: bool, status: int, body: dict[str, Any], kind: type[errors.ProviderError], told: int
) -> None:
    async with FakeUpstream(json_reply(body, status, {"retry-after": "7"})) as fake:
        with pytest.raises(kind) as caught:
            await frames(remote(fake, upstream), ask(stream))
        assert caught.value.answered and caught.value.status == told
        if kind is errors.RateLimited:
            assert caught.value.retry_after_s == 7.0


async def test_http_error_with_a_broken_body_keeps_its_status(upstream: Upstream) -> None:
    async with FakeUpstream([head(503, length=2), close()]) as fake:
        with pytest.raises(errors.Unavailable):
            await frames(remote(fake, upstream), ask())


async def test_redirect_is_an_error_and_the_key_stays(upstream: Upstream) -> None:
    async with FakeUpstream() as elsewhere, FakeUpstream(body_reply(b"", 307, {"location": elsewhere.url + "/v1/x"})) as fake:
        with pytest.raises(errors.BadAnswer, match="redirect") as caught:
            await frames(remote(fake, upstream), ask(stream=False))
        assert caught.value.answered
        assert elsewhere.connections == 0


# ---- answers that are none
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "reply",
    [
        body_reply(b"<html>login</html>", headers={"content-type": "text/html; charset=utf-8"}),
        body_reply(b"", headers={"content-type": "application/json"}),
        body_reply(b'{"choices": [', headers={"content-type": "application/json"}),
        body_reply(b"[1, 2]", headers={"content-type": "application/json"}),
        body_reply(b"", 204),
    ],
    ids=["page", "empty", "half", "list", "204"],
)
async def test_a_200_that_is_no_answer(upstream: Upstream, reply: list[Step], stream: bool) -> None:
    async with FakeUpstream(reply) as fake:
        with pytest.raises(errors.BadAnswer) as caught:
            await frames(remote(fake, upstream), ask(stream))
        assert caught.value.sent and not caught.value.answered


async def test_a_whole_answer_to_a_stream_request_is_taken(upstream: Upstream) -> None:
    async with FakeUpstream(json_reply(chat_answer("Hello"))) as fake:
        received = await frames(remote(fake, upstream), ask())
        assert said(received) == "Hello" and received[0].whole


async def test_a_stream_to_a_whole_request_is_taken(upstream: Upstream) -> None:
    async with FakeUpstream(sse_reply(chat_chunks(WORDS))) as fake:
        received = await frames(remote(fake, upstream), ask(stream=False))
        assert said(received) == "".join(WORDS) and Finished("stop") in events(received)


# ---- streams that break
@pytest.mark.parametrize("end", [None, close(), reset()], ids=["end", "fin", "rst"])
async def test_cut_after_tokens_is_the_last_event(upstream: Upstream, end: Step | None) -> None:
    reply = sse_reply(chat_chunks(WORDS, finish=None), done=False, delay_s=0.02, **({} if end is None else {"end": end}))  # type: ignore[arg-type]
    async with FakeUpstream(reply) as fake:
        received = events(await frames(remote(fake, upstream), ask()))
        last = received[-1]
        assert isinstance(last, Failed) and isinstance(last.error, errors.Cut) and last.error.sent
        assert "".join(event.text for event in received if isinstance(event, TextDelta)) == "".join(WORDS)
        assert not any(isinstance(event, Finished) for event in received)


async def test_cut_before_anything_is_raised(upstream: Upstream) -> None:
    async with FakeUpstream(sse_reply([], done=False)) as fake:
        with pytest.raises(errors.Cut) as caught:
            await frames(remote(fake, upstream), ask())
        assert caught.value.sent


async def test_error_as_the_first_event_is_raised(upstream: Upstream) -> None:
    async with FakeUpstream(sse_reply([{"error": {"message": "slow down", "code": 429}}], done=False)) as fake:
        with pytest.raises(errors.ProviderError):
            await frames(remote(fake, upstream), ask())


async def test_silence_in_mid_stream(upstream: Upstream) -> None:
    async with FakeUpstream(sse_reply(chat_chunks(WORDS, finish=None), done=False, end=hang())) as fake:
        brief = Deadline(connect_s=1.0, first_byte_s=1.0, idle_s=0.2, total_s=4.0)
        last = events(await frames(remote(fake, upstream), ask(), brief))[-1]
        assert isinstance(last, Failed) and isinstance(last.error, errors.TimedOut)
        assert await fake.closed(0) < 1.0


@pytest.mark.parametrize("stream", [True, False])
async def test_silence_before_the_answer(upstream: Upstream, stream: bool) -> None:
    async with FakeUpstream([hang()]) as fake:
        with pytest.raises(errors.TimedOut) as caught:
            await frames(remote(fake, upstream), ask(stream), Deadline(first_byte_s=0.2))
        assert caught.value.sent
        assert await fake.closed(0) < 1.0


@pytest.mark.parametrize("stream", [True, False])
async def test_refused(upstream: Upstream, stream: bool) -> None:
    provider = RemoteProvider(VENDORS["vllm"], refused_url(), "", upstream)
    with pytest.raises(errors.Unreachable) as caught:
        await frames(provider, ask(stream))
    assert not caught.value.sent


async def test_closing_the_iterator_closes_the_socket_within_a_second(upstream: Upstream) -> None:
    """G09: a stream, and a whole answer that is still awaited."""
    async with FakeUpstream(sse_reply(chat_chunks(["x"] * 600), delay_s=0.05), [hang()]) as fake:
        call = remote(fake, upstream).call(ask(), TARGET, QUICK)
        async for frame in call:
            if any(isinstance(event, TextDelta) for event in frame.events):
                break
        await call.aclose()  # type: ignore[attr-defined]
        assert await fake.closed(0) < 1.0
        task = asyncio.create_task(frames(remote(fake, upstream), ask(stream=False)))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await fake.closed(1) < 1.0


async def test_the_vendors_request_id_stands_in_for_a_missing_id(upstream: Upstream) -> None:
    async with FakeUpstream(json_reply({**chat_answer(), "id": ""}, headers={"x-request-id": "req_7"})) as fake:
        first = (await frames(remote(fake, upstream), ask(stream=False)))[0].events[0]
        assert isinstance(first, Started) and first.id == "req_7"


# ---- check
async def test_check(upstream: Upstream) -> None:
    async with FakeUpstream(json_reply({"data": []}), json_reply({}, 401), json_reply({}, 404), json_reply({}, 500)) as fake:
        provider = remote(fake, upstream)
        assert await provider.check() is None
        assert "api_key" in (await provider.check() or "")
        assert await provider.check() is None
        assert "HTTP 500" in (await provider.check() or "")
        assert (fake.requests[0].method, fake.requests[0].target) == ("GET", "/v1/models")
        await provider.close()
    assert "refused" in (await RemoteProvider(VENDORS["vllm"], refused_url(), "", upstream).check() or "")


LIMITS = {"x-ratelimit-remaining-requests": "7", "X-RateLimit-Reset-Requests": "30s"}


@pytest.mark.parametrize("stream", [True, False])
async def test_what_is_left_of_a_rate_limit_comes_with_the_first_frame(upstream: Upstream, stream: bool) -> None:
    reply = sse_reply(chat_chunks(WORDS), headers=LIMITS) if stream else json_reply(chat_answer(), headers=LIMITS)
    async with FakeUpstream(reply) as fake:
        frames = [frame async for frame in remote(fake, upstream).call(ask(stream), TARGET, QUICK)]
    told = [frame.limits for frame in frames if frame.limits is not None]
    assert told == [limit_headers.Limits(requests=(7.0, 30.0))]


async def test_what_is_left_of_a_rate_limit_comes_with_a_refusal(upstream: Upstream) -> None:
    async with FakeUpstream(json_reply({"error": {"message": "slow down"}}, 429, LIMITS)) as fake:
        with pytest.raises(errors.RateLimited) as refused:
            _ = [frame async for frame in remote(fake, upstream).call(ask(), TARGET, QUICK)]
    assert refused.value.limits == limit_headers.Limits(requests=(7.0, 30.0))
