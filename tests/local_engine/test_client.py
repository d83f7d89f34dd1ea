"""The client against a real engine process."""

from __future__ import annotations

import asyncio
import itertools
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from local_engine.client import MAX_BUFFER_BYTES, EngineClient, _Open
from local_engine.errors import BadRequest, ContextExceeded, EngineError, Unavailable, Unreachable
from local_engine.tokenizer import Tokenizer
from local_engine.wire import MAX_MESSAGE_BYTES, Grammar, Params, Piece
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
    await until(lambda: runs(client, 0), 30)


def test_a_process_with_the_client_imports_nothing_heavy() -> None:
    code = f"import sys, local_engine.client, providers.local; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


async def test_text_in_text_and_ids_out(client: EngineClient, long_tiny: Path) -> None:
    tokenizer = Tokenizer(long_tiny)
    prompt = "<|start|>the quick"
    pieces = await collect(client, prompt, Params(temperature=0, max_tokens=400, ignore_eos=True))
    ids = [token for piece in pieces for token in piece.ids]
    assert len(ids) == 400 == pieces[-1].output_tokens
    assert "".join(piece.text for piece in pieces) == tokenizer.decode(ids)
    assert {piece.prompt_tokens for piece in pieces} == {len(tokenizer.encode(prompt))}
    assert [piece.reason for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert len(pieces) > 2  # what came while the reader was busy is one piece
    assert all(piece.text for piece in pieces[:-1])
    again = await collect(client, tokenizer.encode(prompt), Params(temperature=0, max_tokens=40, ignore_eos=True))
    assert [token for piece in again for token in piece.ids] == ids[:40]


def by_choice(pieces: list[Piece]) -> dict[int, tuple[str, list[int], str | None]]:
    found: dict[int, tuple[str, list[int], str | None]] = {}
    for piece in pieces:
        text, ids, reason = found.get(piece.choice, ("", [], None))
        assert reason is None  # nothing comes behind a choice's end
        found[piece.choice] = (text + piece.text, ids + piece.ids, piece.reason)
    return found


async def test_choices_are_drawn_apart_and_each_again_by_its_seed(client: EngineClient, long_tiny: Path) -> None:
    params = Params(temperature=1.5, seed=5, max_tokens=20, ignore_eos=True, n=3)
    choices = by_choice(await collect(client, "the quick", params))
    assert sorted(choices) == [0, 1, 2]
    assert {reason for _, _, reason in choices.values()} == {"length"}
    assert len({tuple(ids) for _, ids, _ in choices.values()}) == 3
    tokenizer = Tokenizer(long_tiny)
    assert all(text == tokenizer.decode(ids) and len(ids) == 20 for text, ids, _ in choices.values())
    assert by_choice(await collect(client, "the quick", params)) == choices
    alone = by_choice(await collect(client, "the quick", Params(temperature=1.5, seed=5, max_tokens=20, ignore_eos=True)))
    assert alone[0] == choices[0]
    await until_idle(client)


async def test_choices_are_refused_and_cancelled_together(client: EngineClient) -> None:
    with pytest.raises(BadRequest, match="n may be up to 8 here"):
        await collect(client, "x", Params(n=9))
    with pytest.raises(ContextExceeded):
        await collect(client, "x", Params(n=3, max_tokens=16384))
    with pytest.raises(BadRequest, match="n must be from 1"):
        await collect(client, "x", Params(n=0))
    async with aclosing(client.submit("the", Params(ignore_eos=True, n=4))) as pieces:
        async for piece in pieces:
            if piece.choice == 3:
                break
        with pytest.raises(Unavailable):  # four of eight places are taken
            await collect(client, "the", Params(n=5))
    await until_idle(client)


async def test_log_probabilities_come_with_the_text_of_their_tokens(client: EngineClient) -> None:
    params = Params(temperature=0, max_tokens=30, ignore_eos=True, logprobs=2)
    pieces = await collect(client, "the quick", params)
    logged = [one for piece in pieces for one in piece.logged]
    assert b"".join(one.token for one in logged).decode(errors="replace") == "".join(piece.text for piece in pieces)
    assert len(logged) == 30
    assert all(len(one.top) == 2 and one.top[0] == (one.token, one.logprob) and one.top[1][1] <= one.logprob <= 0 for one in logged)
    assert all(not piece.logged for piece in await collect(client, "the quick", Params(max_tokens=3)))

    whole = "".join(piece.text for piece in pieces)
    stop = whole[12:15]
    stopped = await collect(client, "the quick", Params(temperature=0, max_tokens=30, ignore_eos=True, logprobs=0, stop=(stop,)))
    told = b"".join(one.token for piece in stopped for one in piece.logged).decode(errors="replace")
    shown = "".join(piece.text for piece in stopped)
    assert told.startswith(shown) and stop not in told[: len(shown)] and whole.startswith(shown)


async def test_a_grammar_binds_the_answer_and_a_bad_one_is_refused(client: EngineClient) -> None:
    grammar = Grammar("regex", "[a-f]{3}-[0-9]{2}")
    choices = by_choice(await collect(client, "the", Params(grammar=grammar, n=2, temperature=2.0, seed=3)))
    for text, _, reason in choices.values():
        assert re.fullmatch("[a-f]{3}-[0-9]{2}", text) and reason == "stop"
    with pytest.raises(BadRequest, match="response_format cannot be used") as refused:
        await collect(client, "the", Params(grammar=Grammar("json_schema", '{"type":"objekt"}'), n=2))
    assert refused.value.param == "response_format"
    await until_idle(client)


async def test_what_is_too_long_for_a_message_is_the_caller_s_fault(client: EngineClient) -> None:
    with pytest.raises(BadRequest, match="over the limit"):
        await collect(client, "x" * (MAX_MESSAGE_BYTES + 1), Params())
    with pytest.raises(BadRequest, match="the prompt is over"):
        await collect(client, "x" * (5 * 1024 * 1024), Params())
    await client.ping()


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
    assert sum(a != b for a, b in itertools.pairwise(order)) > 2


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
    (piece,) = await entry.next()
    assert (len(piece.text), piece.ids) == (1000 + MAX_BUFFER_BYTES, [1, 2])  # what came is one piece
