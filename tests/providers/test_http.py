"""The upstream client against a real socket: one test per way a backend can fail, with `sent` right in each."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
import time
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from providers.errors import BadAnswer, Cut, ProviderError, TimedOut, Unreachable
from providers.http import Answer, Endpoint, Upstream
from providers.types import Deadline
from tests.fakes.upstream import (
    FakeUpstream,
    Step,
    body_reply,
    chunk,
    close,
    hang,
    head,
    json_reply,
    refused_url,
    reset,
    send,
    sse_reply,
    wait,
)

QUICK = Deadline(connect_s=2.0, first_byte_s=2.0, idle_s=2.0, total_s=5.0)


@dataclass
class Limits:
    max_connections: int = 10
    max_answer_bytes: int = 1_000_000
    keepalive_s: float = 30.0


@pytest.fixture
async def client() -> AsyncIterator[Upstream]:
    upstream = Upstream(Limits())
    yield upstream
    await upstream.close()


def post(fake: FakeUpstream, **headers: str) -> Endpoint:
    return Endpoint("POST", fake.url + "/v1/x", headers)


async def failure(client: Upstream, endpoint: Endpoint, deadline: Deadline = QUICK) -> ProviderError:
    """The error of one call, wherever it comes."""
    with pytest.raises(ProviderError) as caught:
        answer = await client.open(endpoint, b"{}", deadline)
        await answer.read()
    return caught.value


async def test_body_status_and_headers_arrive(client: Upstream) -> None:
    async with FakeUpstream(json_reply({"a": 1}, 201, {"X-Request-Id": "r1"})) as fake:
        answer = await client.open(post(fake, authorization="Bearer k"), b'{"q":1}', QUICK)
        assert (answer.status, answer.headers["x-request-id"]) == (201, "r1")
        assert await answer.read() == b'{"a": 1}'
        seen = fake.requests[0]
        assert (seen.method, seen.target, seen.body) == ("POST", "/v1/x", b'{"q":1}')
        assert seen.headers["authorization"] == "Bearer k"
        assert seen.headers["accept-encoding"] == "identity"
        assert seen.headers["host"] == fake.url.removeprefix("http://")
        assert set(seen.headers) == {"authorization", "accept-encoding", "host", "user-agent", "content-length", "content-type", "accept"}


async def test_connections_are_kept_after_whole_answers_and_streams(client: Upstream) -> None:
    async with FakeUpstream(json_reply({}), sse_reply(["data: 1\n\n"]), json_reply({})) as fake:
        for _ in range(3):
            await (await client.open(post(fake), b"{}", QUICK)).read()
        assert fake.connections == 1


async def test_finish_keeps_a_connection_whose_framing_ends_late(client: Upstream) -> None:
    async with FakeUpstream([head(), chunk(b"all"), wait(0.1), send(b"0\r\n\r\n")], json_reply({})) as fake:
        answer = await client.open(post(fake), b"{}", QUICK)
        assert await answer.receive() == b"all"
        answer.finish()
        await answer.close()
        await asyncio.sleep(0.3)
        await (await client.open(post(fake), b"{}", QUICK)).read()
        assert fake.connections == 1
        await asyncio.sleep(1.0)  # the timer that would have cut it finds it given back, and another call's
        await (await client.open(post(fake), b"{}", QUICK)).read()
        assert fake.connections == 1


async def test_finish_cuts_a_connection_that_goes_on(client: Upstream) -> None:
    async with FakeUpstream([head(), chunk(b"all"), hang()]) as fake:
        answer = await client.open(post(fake), b"{}", QUICK)
        await answer.receive()
        answer.finish()
        await answer.close()
        assert 0.5 < await fake.closed(0) < 2.0


async def test_redirect_is_an_answer_and_not_followed(client: Upstream) -> None:
    async with FakeUpstream() as other, FakeUpstream(body_reply(b"", 302, {"location": other.url})) as fake:
        answer = await client.open(post(fake), b"{}", QUICK)
        assert answer.status == 302
        await answer.close()
        assert other.connections == 0


# ---- what can fail, in the order of a request's life
async def test_refused(client: Upstream) -> None:
    error = await failure(client, Endpoint("POST", refused_url(), {}))
    assert isinstance(error, Unreachable) and not error.sent and not error.answered
    assert "127.0.0.1" not in error.message and "refused" in error.message


async def test_unknown_host(client: Upstream) -> None:
    error = await failure(client, Endpoint("POST", "http://no-such-host.invalid/", {}))
    assert isinstance(error, Unreachable) and not error.sent


async def test_tls_to_a_plain_port(client: Upstream) -> None:
    async with FakeUpstream(on_connect=[*body_reply(b"this is http", 400), close()]) as fake:
        error = await failure(client, Endpoint("POST", fake.url.replace("http:", "https:"), {}))
        assert isinstance(error, Unreachable) and not error.sent
        assert "TLS" in error.message
        assert not fake.requests


async def test_tls_with_an_unknown_certificate(client: Upstream, tmp_path: Path) -> None:
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", "k.pem", "-out", "c.pem", "-days", "2"]
    await asyncio.to_thread(subprocess.run, made, cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "c.pem", tmp_path / "k.pem")
    async with FakeUpstream(tls=context) as fake:
        error = await failure(client, post(fake))
        assert isinstance(error, Unreachable) and "TLS" in error.message
        assert not fake.requests


async def test_tls_handshake_that_never_ends_is_a_connect_timeout(client: Upstream) -> None:
    async with FakeUpstream() as fake:
        fake.on_connect = [hang()]
        began = time.monotonic()
        error = await failure(client, Endpoint("POST", fake.url.replace("http:", "https:"), {}), Deadline(connect_s=0.3))
        assert isinstance(error, Unreachable) and not error.sent
        assert 0.25 < time.monotonic() - began < 10


async def test_total_limit_while_connecting_says_nothing_was_sent(client: Upstream) -> None:
    async with FakeUpstream(on_connect=[hang()]) as fake:
        error = await failure(client, Endpoint("POST", fake.url.replace("http:", "https:"), {}), Deadline(connect_s=9.0, total_s=0.3))
        assert isinstance(error, Unreachable) and not error.sent


async def test_pool_exhausted_waits_its_connect_limit(client: Upstream) -> None:
    small = Upstream(Limits(max_connections=1))
    async with FakeUpstream([head(), chunk(b"x"), hang()]) as fake:
        holder = await small.open(post(fake), b"{}", QUICK)
        error = await failure(small, post(fake), Deadline(connect_s=0.2))
        assert isinstance(error, Unreachable) and not error.sent
        assert len(fake.requests) == 1
        await holder.close()
    await small.close()


@pytest.mark.parametrize("end", [close(), reset()], ids=["fin", "rst"])
async def test_hang_up_after_the_request_is_sent_and_not_repeated(client: Upstream, end: Step) -> None:
    async with FakeUpstream([end]) as fake:
        error = await failure(client, post(fake))
        assert isinstance(error, Cut) and error.sent and not error.answered
        assert len(fake.requests) == 1


@pytest.mark.parametrize("end", [close(), reset()], ids=["fin", "rst"])
async def test_hang_up_on_a_kept_connection_is_not_repeated(client: Upstream, end: Step) -> None:
    """The request was written on a connection that had worked: whether the backend took it up is not known, so it is `sent`."""
    async with FakeUpstream(json_reply({}), [end]) as fake:
        await (await client.open(post(fake), b"{}", QUICK)).read()
        error = await failure(client, post(fake))
        assert isinstance(error, Cut) and error.sent
        assert (len(fake.requests), fake.connections) == (2, 1)


async def test_a_kept_connection_that_the_backend_closed_is_replaced(client: Upstream) -> None:
    async with FakeUpstream([*json_reply({}), close()]) as fake:
        for n in range(3):
            await (await client.open(post(fake), b"{}", QUICK)).read()
            await asyncio.sleep(0.05)
            assert len(fake.requests) == n + 1
        assert fake.connections == 3


async def test_an_idle_connection_expires(client: Upstream) -> None:
    brief = Upstream(Limits(keepalive_s=0.1))
    async with FakeUpstream(json_reply({})) as fake:
        await (await brief.open(post(fake), b"{}", QUICK)).read()
        await asyncio.sleep(0.4)
        await (await brief.open(post(fake), b"{}", QUICK)).read()
        assert fake.connections == 2
    await brief.close()


async def test_cut_inside_the_headers(client: Upstream) -> None:
    async with FakeUpstream([send(b"HTTP/1.1 200 OK\r\ncontent-ty"), close()]) as fake:
        error = await failure(client, post(fake))
        assert isinstance(error, Cut) and error.sent


@pytest.mark.parametrize("noise", [b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nbroken\r\n\r\n"])
async def test_not_http(client: Upstream, noise: bytes) -> None:
    async with FakeUpstream([send(noise), close()]) as fake:
        error = await failure(client, post(fake))
        assert isinstance(error, BadAnswer) and error.sent


async def test_first_byte_limit_before_the_headers(client: Upstream) -> None:
    async with FakeUpstream([hang()]) as fake:
        began = time.monotonic()
        error = await failure(client, post(fake), Deadline(first_byte_s=0.3))
        assert isinstance(error, TimedOut) and error.sent and error.status == 504
        assert 0.25 < time.monotonic() - began < 10
        assert await fake.closed(0) < 5.0


async def test_first_byte_limit_counts_from_the_start_not_from_the_headers(client: Upstream) -> None:
    async with FakeUpstream([wait(0.2), head(), hang()]) as fake:
        began = time.monotonic()
        error = await failure(client, post(fake), Deadline(first_byte_s=0.4, idle_s=9.0))
        assert isinstance(error, TimedOut)
        assert 0.35 < time.monotonic() - began < 10


@pytest.mark.parametrize("first_byte_s", [5.0, 0.2], ids=["shorter", "longer"])
async def test_idle_limit_in_mid_stream(client: Upstream, first_byte_s: float) -> None:
    async with FakeUpstream([head(), chunk(b"a"), wait(0.2), chunk(b"b"), hang()]) as fake:
        answer = await client.open(post(fake), b"{}", Deadline(first_byte_s=first_byte_s, idle_s=0.4))
        assert [await answer.receive(), await answer.receive()] == [b"a", b"b"]
        began = time.monotonic()
        with pytest.raises(TimedOut) as caught:
            await answer.receive()
        assert caught.value.sent and "silent" in caught.value.message
        assert 0.35 < time.monotonic() - began < 10
        await answer.close()
        assert await fake.closed(0) < 5.0


async def test_idle_limit_lets_a_slow_stream_live(client: Upstream) -> None:
    async with FakeUpstream(sse_reply([f"data: {n}\n\n" for n in range(12)], delay_s=0.1, done=False)) as fake:
        answer = await client.open(post(fake), b"{}", Deadline(first_byte_s=1.0, idle_s=1.0))
        assert (await answer.read()).count(b"data:") == 12


async def test_time_in_which_nobody_reads_is_not_the_backends(client: Upstream) -> None:
    async with FakeUpstream([head(), chunk(b"a"), wait(0.5), chunk(b"b"), send(b"0\r\n\r\n")]) as fake:
        answer = await client.open(post(fake), b"{}", Deadline(idle_s=0.2))
        assert await answer.receive() == b"a"
        await asyncio.sleep(0.6)  # a client that does not read
        assert await answer.receive() == b"b"
        await answer.close()


async def test_total_limit_ends_a_stream_that_never_pauses(client: Upstream) -> None:
    async with FakeUpstream(sse_reply(["data: x\n\n"] * 100, delay_s=0.05)) as fake:
        began = time.monotonic()
        error = await failure(client, post(fake), Deadline(total_s=0.4))
        assert isinstance(error, TimedOut) and error.sent and "0.4 s" in error.message
        assert 0.35 < time.monotonic() - began < 10
        assert await fake.closed(0) < 5.0


async def test_total_limit_that_passed_while_nobody_read(client: Upstream) -> None:
    async with FakeUpstream([head(), chunk(b"a"), hang()]) as fake:
        answer = await client.open(post(fake), b"{}", Deadline(total_s=0.2))
        await answer.receive()
        await asyncio.sleep(0.4)
        with pytest.raises(TimedOut):
            await answer.receive()
        await answer.close()


async def test_content_length_cut_short(client: Upstream) -> None:
    async with FakeUpstream([head(length=100), send(b"only this"), close()]) as fake:
        error = await failure(client, post(fake))
        assert isinstance(error, Cut) and error.sent


@pytest.mark.parametrize("end", [close(), reset()], ids=["fin", "rst"])
async def test_chunked_cut_short(client: Upstream, end: Step) -> None:
    async with FakeUpstream([head(), chunk(b"part"), wait(0.05), end]) as fake:
        answer = await client.open(post(fake), b"{}", QUICK)
        assert await answer.receive() == b"part"
        with pytest.raises(Cut) as caught:
            await answer.receive()
        assert caught.value.sent
        await answer.close()


async def test_chunked_framing_broken(client: Upstream) -> None:
    async with FakeUpstream([head(), send(b"zz\r\nnot a size"), close()]) as fake:
        assert isinstance(await failure(client, post(fake)), Cut | BadAnswer)


async def test_answer_larger_than_the_limit(client: Upstream) -> None:
    async with FakeUpstream(body_reply(b"x" * 1_000_001), body_reply(b"x" * 1_000_000)) as fake:
        error = await failure(client, post(fake))
        assert isinstance(error, BadAnswer) and "1000000" in error.message
        assert len(await (await client.open(post(fake), b"{}", QUICK)).read()) == 1_000_000


# ---- encodings
@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_compression_that_nobody_asked_for_is_undone(client: Upstream, name: str, pack: object) -> None:
    text = b"hello " * 50_000
    async with FakeUpstream(body_reply(pack(text), headers={"content-encoding": name})) as fake:  # type: ignore[operator]
        assert await (await client.open(post(fake), b"{}", QUICK)).read() == text


async def test_a_bomb_is_not_unpacked(client: Upstream) -> None:
    async with FakeUpstream(body_reply(gzip.compress(bytes(50_000_000)), headers={"content-encoding": "gzip"})) as fake:
        assert isinstance(await failure(client, post(fake)), BadAnswer)


@pytest.mark.parametrize(("name", "body"), [("br", b"x"), ("gzip", b"not gzip")])
async def test_encoding_that_cannot_be_undone(client: Upstream, name: str, body: bytes) -> None:
    async with FakeUpstream(body_reply(body, headers={"content-encoding": name})) as fake:
        assert isinstance(await failure(client, post(fake)), BadAnswer)


# ---- large bodies, closing, cancelling
async def test_large_body_arrives_whole_with_its_length(client: Upstream) -> None:
    body = bytes(range(256)) * 12_000  # 3 MB
    async with FakeUpstream(json_reply({})) as fake:
        await (await client.open(post(fake), body, QUICK)).read()
        assert fake.requests[0].body == body
        assert fake.requests[0].headers["content-length"] == str(len(body))


async def test_closing_closes_the_socket_at_once(client: Upstream) -> None:
    async with FakeUpstream(sse_reply(["data: x\n\n"] * 600, delay_s=0.05)) as fake:
        answer = await client.open(post(fake), b"{}", QUICK)
        await answer.receive()
        await answer.close()
        await answer.close()
        assert await fake.closed(0) < 0.5


@pytest.mark.parametrize("reply", [[hang()], [head(), chunk(b"x"), hang()]], ids=["before-headers", "mid-stream"])
async def test_cancelling_closes_the_socket_at_once_and_is_not_a_timeout(client: Upstream, reply: list[Step]) -> None:
    async with FakeUpstream(reply) as fake:

        async def call() -> None:
            answer: Answer = await client.open(post(fake), b"{}", QUICK)
            await answer.read()

        task = asyncio.create_task(call())
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await fake.closed(0) < 0.5


async def test_a_timeout_leaves_the_task_uncancelled(client: Upstream) -> None:
    async with FakeUpstream([hang()]) as fake:
        await failure(client, post(fake), Deadline(first_byte_s=0.1))
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0
        await asyncio.sleep(0.01)


async def test_cookies_of_one_answer_do_not_reach_the_next(client: Upstream) -> None:
    async with FakeUpstream(json_reply({}, headers={"set-cookie": "s=1"})) as fake:
        for _ in range(2):
            await (await client.open(post(fake), b"{}", QUICK)).read()
        assert "cookie" not in fake.requests[1].headers
