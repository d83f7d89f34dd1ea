"""A worker's view of owned hardware in SQL, with a clock that the tests move: presence, warm-up, rates, others' load, closed hours."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from msgspec import structs
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.catalog import Backend, Price
from gateway.db.tables import owned_hours, owned_spans, usage
from gateway.money.audit import audit
from gateway.money.keeper import Keeper
from gateway.money.ledger import HOUR_US
from gateway.money.owned import Owned
from gateway.money.presence import GRACE_US
from tests.conftest import Database
from tests.money.test_closing import share, write

HOUR = 490_000 * HOUR_US
SECOND = 1_000_000
RATE = 600_000_000
ON_SQLITE = pytest.mark.parametrize("storage", ["sqlite"], indirect=True)  # what SQL does here is run on both elsewhere


class World:
    """Gateway processes, what they have in their catalogs, and one clock for all."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.now_us = HOUR
        self.backends = {"smol": self.backend("smol"), "hosted": self.backend("hosted", hourly=None)}
        self.down: set[str] = set()
        self.keepers: list[Keeper] = []

    def backend(self, name: str, *, hourly: int | None = RATE, vendor: str = "vllm") -> Backend:
        price = Price(id=f"hourly:{name}", input=0, output=0)
        return Backend(name=name, vendor=vendor, model="m", dialect="", price=price, hourly_nanousd=hourly)

    def process(self) -> Keeper:
        async def ready(name: str) -> bool:
            return name not in self.down

        made = Keeper(self.database.engine, uuid4(), Owned(), lambda: self.now_us, lambda: self.backends, ready)
        self.keepers.append(made)
        return made

    async def spans(self) -> list[tuple[str, str, int, int, int]]:
        """(backend, kind, from, until, rate) in seconds since the first hour began."""
        order = owned_spans.c.backend, owned_spans.c.kind, owned_spans.c.from_us
        async with self.database.engine.connect() as connection:
            rows = (await connection.execute(select(owned_spans).order_by(*order))).all()
        return [(row.backend, row.kind, (row.from_us - HOUR) // SECOND, (row.until_us - HOUR) // SECOND, row.rate) for row in rows]

    async def idle(self) -> list[tuple[int, str, int]]:
        """(hour, outcome, nano-USD) of what was booked."""
        async with self.database.engine.connect() as connection:
            rows = (await connection.execute(select(usage).order_by(usage.c.started_at_us, usage.c.outcome))).all()
        return [((row.started_at_us - HOUR) // HOUR_US, row.outcome, row.cost) for row in rows]


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    made = World(database)
    yield made
    for one in made.keepers:
        await one.session.close()


@ON_SQLITE
async def test_a_span_grows_with_every_beat(world: World) -> None:
    one = world.process()
    for second in (0, 5, 10):
        world.now_us = HOUR + second * SECOND
        await one.beat()
    assert await world.spans() == [("smol", "present", 0, 10, RATE)]


@ON_SQLITE
async def test_at_rest_it_says_little_and_in_use_what_it_has_in_flight(world: World) -> None:
    one, other = world.process(), world.process()
    machine = one.owned.machine(world.backends["smol"], time.monotonic())
    for second in range(5):
        world.now_us = HOUR + second * SECOND
        await one.beat()
    assert await world.spans() == [("smol", "present", 0, 0, RATE)]
    share = machine.enter(50, time.monotonic())
    await one.beat()
    assert await world.spans() == [("smol", "present", 0, 4, RATE)]
    await other.beat()
    assert other.owned.machines["smol"].others > 0
    share.leave(time.monotonic())
    machine.mean_weight(time.monotonic())
    await one.beat()
    await other.beat(last=True)
    assert other.owned.machines["smol"].others == 0, "that nothing is in flight any more is said at once"


@ON_SQLITE
async def test_without_such_hardware_nothing_is_written(world: World) -> None:
    del world.backends["smol"]
    one = world.process()
    await one.beat()
    await one.close_hours()
    assert await world.spans() == []


@ON_SQLITE
async def test_a_backend_that_leaves_and_comes_back_has_two_spans(world: World) -> None:
    one = world.process()
    await one.beat()
    smol = world.backends.pop("smol")
    world.now_us = HOUR + 100 * SECOND
    await one.beat()
    world.backends["smol"] = smol
    world.now_us = HOUR + 200 * SECOND
    await one.beat()
    assert await world.spans() == [("smol", "present", 0, 0, RATE), ("smol", "present", 200, 200, RATE)]


@ON_SQLITE
async def test_a_new_rate_begins_a_span_and_is_what_shares_are_reckoned_at(world: World) -> None:
    one = world.process()
    await one.beat()
    world.now_us = HOUR + 60 * SECOND
    world.backends["smol"] = structs.replace(world.backends["smol"], hourly_nanousd=2 * RATE)
    await one.beat()
    assert await world.spans() == [("smol", "present", 0, 60, RATE), ("smol", "present", 60, 60, 2 * RATE)]
    assert one.owned.machines["smol"].rate == 2 * RATE


@ON_SQLITE
async def test_while_the_machine_does_not_answer_it_warms_up(world: World) -> None:
    one = world.process()
    for second, up in ((0, False), (5, False), (10, True), (15, True), (20, False), (25, True)):
        world.now_us = HOUR + second * SECOND
        world.down = set() if up else {"smol"}
        await one.beat()
    assert await world.spans() == [
        ("smol", "present", 0, 25, RATE),
        ("smol", "warm_up", 0, 5, RATE),
        ("smol", "warm_up", 15, 20, RATE),
    ]


async def test_each_knows_what_the_others_have_in_flight(world: World) -> None:
    one, other = world.process(), world.process()
    now = time.monotonic()
    one.owned.machine(world.backends["smol"], now).enter(100, now)
    other.owned.machine(world.backends["smol"], now).enter(300, now)
    for keeper in (one, other, one):
        await keeper.beat()
    assert (one.owned.machines["smol"].others, other.owned.machines["smol"].others) == (300, 100)
    world.now_us += 60 * SECOND  # the other said nothing for a minute
    await one.beat()
    assert one.owned.machines["smol"].others == 0


@ON_SQLITE
async def test_a_local_engine_is_a_machine_of_its_host(world: World) -> None:
    world.backends = {"smol": world.backend("smol", vendor="local")}
    one, other = world.process(), world.process()
    other.host = "another"
    now = time.monotonic()
    one.owned.machine(world.backends["smol"], now).enter(100, now)
    await one.beat()
    await other.beat()
    assert other.owned.machines["smol"].others == 0
    world.now_us += HOUR_US - 1
    for keeper in (one, other):
        await keeper.beat()
    world.now_us += HOUR_US + GRACE_US
    await one.close_hours()
    assert await world.idle() == [(0, "idle", 2 * RATE)]


async def test_hours_are_closed_by_whoever_is_there(world: World) -> None:
    one = world.process()
    for minute in range(0, 121, 4):
        world.now_us = HOUR + minute * 60 * SECOND
        world.down = {"smol"} if minute in (4, 8) else set()
        await one.beat()
    world.backends = {}
    other = world.process()
    world.now_us = HOUR + 3 * HOUR_US
    await other.beat()
    await other.close_hours()
    await one.close_hours()
    warm = RATE * 8 // 60
    assert await world.idle() == [(0, "idle", RATE - warm), (0, "warm_up", warm), (1, "idle", RATE)]
    assert (await audit(world.database.engine)).broken == []


@ON_SQLITE
async def test_what_was_seen_while_the_database_was_away_is_told_later(world: World) -> None:
    one = world.process()
    await one.beat()
    session, engine = one.session, one.engine
    away = create_async_engine("sqlite+aiosqlite:////nonexistent/tollway.db")
    one.engine, one.session = away, Keeper(away, one.process, one.owned, one.now_us, one.backends, one.ready).session
    world.now_us = HOUR + HOUR_US + 60 * SECOND
    world.backends["smol"] = structs.replace(world.backends["smol"], hourly_nanousd=2 * RATE)
    await one.beat()
    await one.close_hours()
    await one.session.close()
    await away.dispose()
    one.session, one.engine = session, engine
    world.now_us = HOUR + 2 * HOUR_US
    await one.beat()
    assert await world.spans() == [("smol", "present", 0, 3660, RATE), ("smol", "present", 3660, 7200, 2 * RATE)]
    world.now_us += 2 * HOUR_US
    await one.close_hours()
    assert await world.idle() == [(0, "idle", RATE), (1, "idle", RATE // 60 + 2 * RATE * 59 // 60)]


@ON_SQLITE
async def test_a_database_that_forgot_the_hours_is_told_again(world: World) -> None:
    one = world.process()
    for minute in range(0, 181, 4):
        world.now_us = HOUR + minute * 60 * SECOND
        if minute == 160:
            async with world.database.engine.begin() as connection:
                await connection.execute(delete(owned_hours))
                await connection.execute(delete(owned_spans))
        await one.beat()
    world.now_us += HOUR_US
    await one.close_hours()
    assert await world.idle() == [(hour, "idle", RATE) for hour in range(3)]


@ON_SQLITE
async def test_budgets_reserve_at_what_tokens_lately_cost(world: World) -> None:
    one = world.process()
    await one.beat()
    await write(one.session, *(share(HOUR + n, 50_000) for n in range(1000)))
    assert one.owned.machines["smol"].average is None
    world.now_us = HOUR + 600 * SECOND
    await one.close_hours()
    # 1,000 shares of 0.00005 USD for 13 tokens each
    assert one.owned.machines["smol"].average == -(-50_000_000 * 1_000_000 // 13_000)
    world.now_us = HOUR + 3 * HOUR_US
    await one.close_hours()
    assert one.owned.machines["smol"].average is None, "that was hours ago"
