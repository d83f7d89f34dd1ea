"""The client against a real engine process."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from local_engine.client import MAX_BUFFER_BYTES, EngineClient, _Open
from local_engine.errors import BadRequest, ContextExceeded, EngineError, Unavailable, Unreachable
from local_engine.tokenizer import Tokenizer
from local_engine.wire import Params, Piece
from tests.local_engine.tiny import until

HEAVY = ("torch", "transformers", "tokenizers", "numpy", "safetensors", "gguf")


@pytest.fixture
async def client(engine_socket: Path) -> AsyncIterator[EngineClient]:
    made = EngineClient(str(engine_socket))
    yield made
    await made.close()


async def collect(client: EngineClient, prompt: str | list[int], params: Params) -> list[Piece]:
    return [piece async for piece in client.submit(prompt, params)]


async def running(client: EngineClient) -> int:
    stats = await client.stats()
    return stats.running + stats.waiting


async def runs(client: EngineClient, count: int) -> bool:
    return await running(client) == count


async def until_idle(client: EngineClient) -> None:
    await until(lambda: runs(client, 0), 1.0)


def test_a_process_with_the_client_imports_nothing_heavy() -> None:
    code = f"import sys, local_engine.client, providers.local; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


async def test_text_in_text_and_ids_out(client: EngineClient, long_tiny: Path) -> None:
    tokenizer = Tokenizer(long_tiny)
    prompt = "<|start|>the quick"
    pieces = await collect(client, prompt, Params(temperature=0, max_tokens=40, ignore_eos=True))
    ids = [token for piece in pieces for token in piece.ids]
    assert len(ids) == 40 == pieces[-1].output_tokens
    assert "".join(piece.text for piece in pieces) == tokenizer.decode(ids)
    assert {piece.prompt_tokens for piece in pieces} == {len(tokenizer.encode(prompt))}
    assert [piece.reason for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert len(pieces) > 5
    assert all(piece.text for piece in pieces[:-1])
    again = await collect(client, tokenizer.encode(prompt), Params(temperature=0, max_tokens=40, ignore_eos=True))
    assert [token for piece in again for token in piece.ids] == ids


async def test_a_stop_string_ends_and_never_shows(client: EngineClient) -> None:
    params = Params(temperature=0, max_tokens=60, ignore_eos=True)
    whole = "".join(piece.text for piece in await collect(client, "the quick", params))
    at = len(whole) // 2
    stop = whole[at : at + 6]
    pieces = await collect(client, "the quick", Params(temperature=0, max_tokens=60, ignore_eos=True, stop=("nowhere at all", stop)))
    assert "".join(piece.text for piece in pieces) == whole[: whole.index(stop)]
    assert pieces[-1].reason == "stop"
    assert pieces[-1].output_tokens < 60
    await until_idle(client)


async def test_several_users_interleave(client: EngineClient, engine_socket: Path) -> None:
    other = EngineClient(str(engine_socket))
    order: list[int] = []

    async def use(who: int, client: EngineClient) -> str:
        text = ""
        async for piece in client.submit("one two three", Params(temperature=0, max_tokens=100, ignore_eos=True)):
            order.append(who)
            text += piece.text
        return text

    texts = await asyncio.gather(use(0, client), use(1, client), use(2, other))
    await other.close()
    assert len(set(texts)) == 1
    assert order.index(1) < len(order) - 1 - order[::-1].index(0)  # neither waited for the other's end
    assert sum(a != b for a, b in itertools.pairwise(order)) > 20


async def test_closing_the_iterator_frees_the_sequence(client: EngineClient) -> None:
    async with aclosing(client.submit("the", Params(ignore_eos=True))) as pieces:
        await anext(pieces)
        assert await running(client) == 1
    await until_idle(client)
    assert (await client.stats()).kv_bytes_used == 0


async def test_closing_the_connection_frees_all_its_sequences(client: EngineClient, engine_socket: Path) -> None:
    other = EngineClient(str(engine_socket))
    streams = [other.submit("the", Params(ignore_eos=True)) for _ in range(3)]
    for stream in streams:
        await anext(stream)
    assert await running(client) == 3
    await other.close()
    await until_idle(client)
    for stream in streams:
        with pytest.raises(EngineError):
            async for _ in stream:
                pass


async def test_refusals_arrive_as_their_kinds(client: EngineClient) -> None:
    with pytest.raises(BadRequest) as bad:
        await collect(client, "x", Params(temperature=-1))
    assert bad.value.param == "temperature"
    with pytest.raises(ContextExceeded, match=r"\d+ tokens.*max_tokens 16384.*16384"):
        await collect(client, "x", Params(max_tokens=16384))
    assert await running(client) == 0


async def test_beyond_the_queue_requests_are_refused_with_a_time(client: EngineClient) -> None:
    streams = [client.submit("the", Params(ignore_eos=True)) for _ in range(8)]  # 4 run, 4 wait
    first = [asyncio.ensure_future(anext(stream)) for stream in streams]
    try:
        await until(lambda: runs(client, 8), 5)
        with pytest.raises(Unavailable) as refused:
            await collect(client, "the", Params())
        assert refused.value.retry_after_s == 1.0
    finally:
        for task in first:
            task.cancel()
        await asyncio.gather(*first, return_exceptions=True)
        for stream in streams:
            await stream.aclose()
    await until_idle(client)


async def test_stats_and_ping(client: EngineClient) -> None:
    await client.ping()
    stats = await client.stats()
    assert stats.state == "ready"
    assert 0 <= stats.heartbeat_age_s < 2
    assert stats.connections >= 1
    welcome = await client.state()
    assert (welcome.model, welcome.context_tokens) == ("tiny", 16384)


async def test_without_an_engine_it_is_unreachable_and_backs_off(tmp_path: Path) -> None:
    client = EngineClient(str(tmp_path / "none.sock"))
    waits = []
    for _ in range(3):
        with pytest.raises(Unreachable) as refused:
            await client.state()
        waits.append(refused.value.retry_after_s or 0)
        await asyncio.sleep(waits[-1] + 0.01)
    assert waits == [0.05, 0.1, 0.2]


async def test_a_reader_far_behind_is_cut_and_others_are_not() -> None:
    entry = _Open()
    assert entry.push(Piece(1, "x" * 1000, [1], 1, 1))
    assert not entry.push(Piece(1, "x" * MAX_BUFFER_BYTES, [2], 1, 2))
    piece = await entry.next()
    assert (len(piece.text), piece.ids) == (1000 + MAX_BUFFER_BYTES, [1, 2])  # what came is one piece
