"""Limits shared through a real Valkey: counted once, batched, given back, and what holds while it is frozen or away."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import redis

from gateway.money.limits import NONE, Ask, LimitRow, Limits, Refused, Rule, Ticket, rules_of
from gateway.money.limits_redis import PREFIX, RedisLimits
from tests.fixtures.services import Valkey
from tests.fixtures.waiting import until

ROW = LimitRow(id=1, scope_kind="team", scope_id=2, rpm=5, tpm=100, parallel=4)
numbers = iter(range(1 << 30))


def ask(tokens: int = 10, row: LimitRow = ROW) -> Ask:
    return Ask(id=f"r{next(numbers)}", tokens=tokens, least=tokens, slot_s=120, rules=rules_of([row]))


@asynccontextmanager
async def sharing(url: str, timeout_s: float = 10.0, processes: int = 1) -> AsyncIterator[tuple[Limits, RedisLimits]]:
    shared = RedisLimits(url, timeout_s, ping_s=0.05)
    made = Limits(shared, lambda: processes)
    made.set_limits([ROW])
    await made.start()
    yield made, shared
    await made.close()


@pytest.fixture
def own_valkey() -> Iterator[Valkey]:
    """One that may be frozen."""
    server = Valkey()
    yield server
    os.kill(server.process.pid, signal.SIGCONT)
    server.stop()


def slots(url: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.zcard(f"{PREFIX}1:p"))


async def test_g25_two_of_ten_over_two_processes(valkey_url: str) -> None:
    async with sharing(valkey_url) as (one, _), sharing(valkey_url) as (two, _):
        got = await asyncio.gather(*((one, two)[i % 2].admit(ask(50)) for i in range(10)))
        tickets = [x for x in got if isinstance(x, Ticket)]
        refused = [x for x in got if isinstance(x, Refused)]
        assert (len(tickets), len(refused)) == (2, 8)
        assert all(x.verdict.kind == "tokens" and 0 < x.verdict.retry_after_ms <= 60_000 for x in refused)
        for ticket in tickets:
            one.settle(ticket, 15)  # whichever process tells it
        third = await one.admit(ask(70))
        assert isinstance(third, Ticket) and third.verdict.tokens_left == 0, "30 used and 70 reserved"


async def test_the_script_is_sent_once_and_then_named(valkey_url: str) -> None:
    with redis.Redis.from_url(valkey_url) as client:
        client.script_flush()
        async with sharing(valkey_url) as (made, shared):
            assert isinstance(await made.admit(ask()), Ticket)
            assert isinstance(await made.admit(ask()), Ticket)
            assert shared.guard.errors == 0
        stats = client.info("commandstats")
    assert stats["cmdstat_eval"]["calls"] >= 1 and stats["cmdstat_evalsha"]["calls"] >= 2


async def test_what_arrives_during_a_batch_is_the_next_one(valkey_url: str) -> None:
    wide = LimitRow(id=1, scope_kind="team", scope_id=2, rpm=10_000)
    with redis.Redis.from_url(valkey_url) as client:
        async with sharing(valkey_url) as (made, _):
            await made.admit(ask(0, wide))
            before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
            got = await asyncio.gather(*(made.admit(ask(0, wide)) for _ in range(500)))
            calls = client.info("commandstats")["cmdstat_evalsha"]["calls"] - before
    assert all(isinstance(x, Ticket) for x in got)
    assert calls <= 4, "500 requests, 256 in a batch"


async def test_a_client_that_leaves_keeps_no_slot(valkey_url: str) -> None:
    async with sharing(valkey_url) as (made, shared):
        await made.admit(ask())
        for turns in range(6):  # at every point of its way
            task = asyncio.create_task(made.admit(ask()))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await until(lambda: not shared._asks and not shared._tells and not shared._calling)
        assert slots(valkey_url) == 1


async def test_a_short_request_does_not_end_the_slot_of_a_long_one(valkey_url: str) -> None:
    async with sharing(valkey_url) as (made, _):
        long = Ask(id="long", tokens=0, least=0, slot_s=700, rules=rules_of([ROW]))
        assert isinstance(await made.admit(long), Ticket)
        await made.admit(ask())
    with redis.Redis.from_url(valkey_url) as client:
        assert 690 < client.ttl(f"{PREFIX}1:p") <= 701


async def test_the_last_ends_are_told_before_the_process_ends(valkey_url: str) -> None:
    async with sharing(valkey_url) as (made, _):
        for ticket in [await made.admit(ask()) for _ in range(3)]:
            assert isinstance(ticket, Ticket)
            made.settle(ticket, 1)
    assert slots(valkey_url) == 0


async def test_g12_a_frozen_redis_costs_one_timeout_and_comes_back(own_valkey: Valkey) -> None:
    async with sharing(own_valkey.url, 0.5, processes=2) as (made, shared):
        before = await made.admit(ask())
        assert isinstance(before, Ticket) and before.shared
        os.kill(own_valkey.process.pid, signal.SIGSTOP)
        began = time.monotonic()
        got = await asyncio.gather(*(made.admit(ask(1)) for _ in range(20)))
        assert time.monotonic() - began < 5, "all that were under way wait together, once"
        assert sum(isinstance(x, Ticket) for x in got) == 2, "half of five requests, half of four slots"
        assert made.degraded and shared.guard.opened == 1
        began = time.monotonic()
        for _ in range(20):
            assert isinstance(await made.admit(ask(1)), Refused)
        assert time.monotonic() - began < 5, "the breaker is open: nothing is asked"
        made.settle(before, 10)  # waits until Redis is back
        for ticket in got:
            if isinstance(ticket, Ticket):
                made.settle(ticket, 1)
        os.kill(own_valkey.process.pid, signal.SIGCONT)
        await until(lambda: not made.degraded)
        await until(lambda: slots(own_valkey.url) == 0)
        after = await made.admit(ask())
        assert isinstance(after, Ticket) and after.shared


async def test_redis_absent_at_the_start_and_there_later(own_valkey: Valkey) -> None:
    os.kill(own_valkey.process.pid, signal.SIGSTOP)
    async with sharing(own_valkey.url, 0.2) as (made, _):
        got = await made.admit(ask())
        assert isinstance(got, Ticket) and not got.shared
        os.kill(own_valkey.process.pid, signal.SIGCONT)
        await until(lambda: not made.degraded)
        refused = await made.admit(ask(101))
        assert isinstance(refused, Refused) and refused.verdict.retry_after_ms == NONE and refused.rule == Rule(1, 5, 100, 4)


async def test_seen_a_script_that_fails_is_visible_and_each_process_holds_its_part(own_valkey: Valkey) -> None:
    """litellm#32232: scripts were forbidden, so that limits held per process and nobody was told."""
    with redis.Redis.from_url(own_valkey.url) as operator:
        operator.execute_command("ACL", "SETUSER", "default", "-@scripting")
        async with sharing(own_valkey.url, processes=2) as (made, shared):
            got = [await made.admit(ask(1)) for _ in range(10)]
            tickets = [one for one in got if isinstance(one, Ticket)]
            assert len(tickets) == 2 and not any(one.shared for one in tickets), "half of five requests"
            await until(lambda: made.degraded)
            assert shared.guard.errors >= 3
            operator.execute_command("ACL", "SETUSER", "default", "+@scripting")
            await until(lambda: not made.degraded)
            again = await made.admit(ask(1))
            assert isinstance(again, Ticket) and again.shared


async def test_nobody_listens_on_the_port() -> None:
    async with sharing("redis://127.0.0.1:1/0") as (made, shared):
        assert isinstance(await made.admit(ask()), Ticket)
        await until(lambda: made.degraded)
        assert shared.guard.errors == 3, "three errors in a row"
        assert isinstance(await made.admit(ask()), Ticket)
