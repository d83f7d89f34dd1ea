"""From a budget's spend to a receiver of its own: failing first, slow, dead, with several workers and restarts."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import structs
from sqlalchemy import text

from gateway.alerting import Alerting
from gateway.db.engine import make_engine
from gateway.settings import AlertSettings, Storage
from gateway.webhook import Webhook
from tests.conftest import Database
from tests.fakes.upstream import FakeUpstream, Received, body_reply, hang
from tests.fixtures.waiting import until
from tests.money.test_alerts import USD, spend, window

SECRET = b"shared secret"
QUICK = AlertSettings(backoff_s=0.01, backoff_cap_s=0.04, attempts=4, timeout_s=20.0)


class Counts(Counter[tuple[str, ...]]):
    def add(self, name: str, labels: tuple[str, ...]) -> None:
        self[(name, *labels)] += 1


@asynccontextmanager
async def worker(
    database: Database, url: str, counts: Counts, settings: AlertSettings = QUICK, refused: Callable[[], set[int]] = set
) -> AsyncIterator[Alerting]:
    """As a worker has it: an engine and connections of its own."""
    engine = make_engine(database.storage)
    made = Alerting(engine, settings, Webhook(url, SECRET, settings.timeout_s) if url else None, refused, counts.add)
    try:
        yield made
    finally:
        await made.close()
        await engine.dispose()


async def deliver_until(condition: Callable[[], bool], *workers: Alerting) -> None:
    async with asyncio.timeout(60):
        while not condition():
            for one in workers:
                await one.deliver()
            await asyncio.sleep(0.01)


def genuine(got: Received) -> bool:
    """What a receiver does to believe it."""
    signed = got.headers["x-tollway-timestamp"].encode() + b"." + got.body
    return got.headers["x-tollway-signature"] == "v1=" + hmac.new(SECRET, signed, hashlib.sha256).hexdigest()


async def test_it_arrives_though_the_receiver_fails_first(database: Database) -> None:
    counts = Counts()
    fails_first = FakeUpstream(body_reply(b"", 500), body_reply(b"", 302), body_reply(b"", delay_s=0.2))
    async with fails_first as receiver, worker(database, receiver.url, counts) as one:
        budget, _ = await window(database.engine, 81 * USD, model="assistant")
        await one.look()
        await deliver_until(lambda: counts["tollway_alert_deliveries_total", "delivered"] == 1, one)
        await one.deliver()
    assert len(receiver.requests) == 3 and all(genuine(got) for got in receiver.requests)
    bodies = [json.loads(got.body) for got in receiver.requests]
    assert bodies[0] == bodies[1] == bodies[2]
    told = bodies[0]
    assert {got.headers["x-tollway-delivery"] for got in receiver.requests} == {told["id"]}
    assert (told["type"], told["percent"], told["reason"]) == ("budget.threshold", 80, "spent")
    assert (told["spent_usd"], told["limit_usd"]) == ("81.000000000", "100.000000000")
    scope = {"scope_kind": "team", "scope": "alpha", "model": "assistant", "per": "month", "timezone": "UTC"}
    assert told["budget"] == {"id": budget, **scope}
    assert told["window"]["starts_at"].endswith("-01T00:00:00Z") and told["window"]["ends_at"].endswith("-01T00:00:00Z")
    assert counts == {
        ("tollway_budget_alerts_total", "team", "80"): 1,
        ("tollway_alert_deliveries_total", "failed"): 2,
        ("tollway_alert_deliveries_total", "delivered"): 1,
    }


async def test_two_workers_and_a_restart_tell_each_once(database: Database) -> None:
    counts = Counts()
    async with FakeUpstream(body_reply(b"", delay_s=0.05)) as receiver:
        await window(database.engine, 0, alerts=(20, 40, 60, 80, 100))
        async with worker(database, receiver.url, counts) as a, worker(database, receiver.url, counts) as b:
            for percent in (25, 65):
                await spend(database.engine, percent * USD)
                await asyncio.gather(a.look(), b.look())
                await asyncio.gather(a.deliver(), b.deliver())
        async with worker(database, receiver.url, counts) as again:
            await spend(database.engine, 100 * USD)
            await again.look()
            await deliver_until(lambda: counts["tollway_alert_deliveries_total", "delivered"] == 5, again)
    assert sorted(json.loads(got.body)["percent"] for got in receiver.requests) == [20, 40, 60, 80, 100]


async def test_what_was_queued_outlives_the_worker(database: Database) -> None:
    counts = Counts()
    await window(database.engine, 85 * USD)
    patient = structs.replace(QUICK, attempts=30)  # more than one round can use up
    async with worker(database, "http://127.0.0.1:1", counts, patient) as one:
        await one.look()
        await one.deliver()
    async with FakeUpstream(body_reply(b"")) as receiver, worker(database, receiver.url, counts, patient) as other:
        await deliver_until(lambda: bool(receiver.requests), other)
        assert genuine(receiver.requests[0])


async def test_a_dead_receiver_is_given_up_and_a_slow_one_holds_up_nothing_else(database: Database) -> None:
    counts = Counts()
    await window(database.engine, 85 * USD)
    async with worker(database, "http://127.0.0.1:1", counts) as one:
        await one.look()
        await deliver_until(lambda: counts["tollway_alert_deliveries_total", "given_up"] == 1, one)
        await one.deliver()
    assert counts["tollway_alert_deliveries_total", "failed"] == QUICK.attempts - 1
    async with FakeUpstream([hang()]) as receiver, worker(database, receiver.url, counts) as one:
        await spend(database.engine, 100 * USD)
        await one.look()
        stuck = asyncio.create_task(one.deliver())
        await until(lambda: receiver.requests, "the receiver was asked")
        await one.look()  # it goes on looking meanwhile
        assert not stuck.done()
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)


async def test_a_worker_that_dies_over_its_last_try_leaves_no_alert_for_ever(database: Database) -> None:
    counts = Counts()
    await window(database.engine, 85 * USD)
    async with FakeUpstream() as receiver, worker(database, receiver.url, counts) as one:
        await one.look()
        async with database.engine.begin() as connection:
            await connection.execute(text("UPDATE budget_alerts SET tries = :tries"), {"tries": QUICK.attempts})
        await one.deliver()
        await one.deliver()
        assert counts["tollway_alert_deliveries_total", "given_up"] == 1 and receiver.requests == []


async def test_refused_requests_are_told_too_and_without_a_webhook_it_is_the_log(database: Database) -> None:
    counts = Counts()
    _, number = await window(database.engine, 30 * USD)
    async with worker(database, "", counts, refused=lambda: {number}) as one:
        await one.look()
        await one.look()
        await one.deliver()
    assert counts == {("tollway_budget_alerts_total", "team", "100"): 1}


async def test_while_the_database_is_away_it_waits(database: Database, tmp_path: Path) -> None:
    """No fault of ours, and what was refused meanwhile is told afterwards."""
    counts = Counts()
    _, number = await window(database.engine, 30 * USD)
    refused = [{number}]
    nowhere = make_engine(Storage(state_dir=str(tmp_path), database_url="postgresql+asyncpg://nobody@127.0.0.1:1/nothing"))
    async with (
        FakeUpstream() as receiver,
        worker(database, receiver.url, counts, refused=lambda: refused.pop() if refused else set()) as one,
    ):
        there, one._engine = one._engine, nowhere
        await one.look()
        await one.deliver()
        one._engine = there
        await one.look()
        await one.deliver()
        assert len(receiver.requests) == 1 and json.loads(receiver.requests[0].body)["reason"] == "refused"
    await nowhere.dispose()
