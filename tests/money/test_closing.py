"""Hours of owned hardware on both databases: closed once whoever comes first, corrected when something comes late, checked by the audit."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from msgspec import structs
from sqlalchemy import func, select, text, update

from gateway.db.rollup_tables import rollups
from gateway.db.session import Session, open_session
from gateway.db.tables import owned_hours, usage
from gateway.money.adoption import Adopter
from gateway.money.audit import audit
from gateway.money.closing import averages, close, due
from gateway.money.corrections import resolve
from gateway.money.hours import PRESENT, Span
from gateway.money.journal import Journal
from gateway.money.ledger import HOUR_US, IDLE, WARM_UP
from gateway.money.presence import GRACE_US, Sighting, beat
from gateway.money.rebuild import rebuild
from gateway.money.records import UsageRecord
from gateway.money.sync import Payload, register, sync
from gateway.settings import Money
from tests.conftest import Database
from tests.fixtures.ledger import record
from tests.fixtures.money import intent_of

HOUR = 490_000 * HOUR_US
CLOSING = HOUR + HOUR_US + GRACE_US
RATE = 600_000_000  # 0.60 USD an hour
CENT = 10_000_000
MINUTE = HOUR_US // 60
PROCESS = UUID(int=11)
ON_SQLITE = pytest.mark.parametrize("storage", ["sqlite"], indirect=True)  # nothing in it that another test does not do on both
MONEY = Money(segment_bytes=1 << 18)


@pytest.fixture
async def session(database: Database) -> AsyncIterator[Session]:
    one = open_session(database.engine)
    yield one
    await one.close()


async def present(session: Session, *spans: Span, backend: str = "smol", process: UUID = PROCESS) -> None:
    """A process saw these, and beats at the end of the last one."""
    seen = [Sighting(backend, span, 0) for span in spans]
    first, last = min(span.from_us for span in spans), max(span.until_us for span in spans)
    hours = [(backend, hour, "local", "m") for hour in range(first - first % HOUR_US, last + 1, HOUR_US)]
    await session.run(beat(session.dialect, process, seen, hours, last))


def whole_hour(rate: int = RATE) -> Span:
    return Span("", PRESENT, HOUR, HOUR + HOUR_US, rate)


def share(at_us: int, cost: int, outcome: str = "completed") -> UsageRecord:
    made = record(at_us, [("smol", outcome, cost)], outcome=outcome)
    return structs.replace(
        made, attempts=tuple(structs.replace(end, price_id="hourly:smol:1") for end in made.attempts), price_id="hourly:smol:1"
    )


async def write(session: Session, *rows: UsageRecord) -> None:
    """As a worker does, in the name of a process that is made for it."""
    process = uuid4()
    await session.run(register(session.dialect, process, "host", "boot", "nowhere"))
    await session.run(sync(session.dialect, Payload(process=process, seq=0, rows=rows)))


async def booked(database: Database, backend: str = "smol") -> dict[str, int]:
    """Outcome -> nano-USD in the hour, from the rows."""
    statement = select(usage.c.outcome, func.sum(usage.c.cost)).where(usage.c.backend == backend).group_by(usage.c.outcome)
    async with database.engine.connect() as connection:
        return {outcome: int(cost) for outcome, cost in await connection.execute(statement)}


async def total(database: Database) -> int:
    async with database.engine.connect() as connection:
        return int((await connection.execute(select(func.sum(rollups.c.cost)).where(rollups.c.backend == "smol"))).scalar_one())


async def close_due(database: Database, session: Session, now_us: int = CLOSING) -> list[int | None]:
    return [
        await session.run(close(session.dialect, PROCESS, backend, hour, now_us)) for backend, hour in await due(database.engine, now_us)
    ]


async def test_an_hour_is_closed_by_a_row_of_idle_time(database: Database, session: Session) -> None:
    await present(session, whole_hour())
    await write(session, share(HOUR + MINUTE, 7 * CENT), share(HOUR + 2 * MINUTE, 5 * CENT))
    assert await close_due(database, session, CLOSING - 1) == [], "not before those that run on are through"
    assert await close_due(database, session) == [48 * CENT]
    assert await booked(database) == {"completed": 12 * CENT, IDLE: 48 * CENT}
    assert await total(database) == RATE
    assert await close_due(database, session) == []
    async with database.engine.connect() as connection:
        row = (await connection.execute(select(usage).where(usage.c.outcome == IDLE))).one()
    assert (row.team_id, row.key_id, row.org_id, row.charges, row.started_at_us) == (0, 0, 0, "[]", HOUR)
    assert (await audit(database.engine)).broken == []


@ON_SQLITE
async def test_warm_up_has_a_row_of_its_own(database: Database, session: Session) -> None:
    await present(session, whole_hour(), Span("", WARM_UP, HOUR, HOUR + 9 * MINUTE, RATE))
    await write(session, share(HOUR + 30 * MINUTE, CENT))
    await close_due(database, session)
    assert await booked(database) == {"completed": CENT, WARM_UP: 9 * CENT, IDLE: 50 * CENT}
    assert (await audit(database.engine)).broken == []


async def test_two_that_close_the_same_hour_book_it_once(database: Database, session: Session) -> None:
    await present(session, whole_hour())
    await write(session, share(HOUR, CENT))
    others = [open_session(database.engine) for _ in range(4)]
    try:
        found = await asyncio.gather(*(one.run(close(one.dialect, uuid4(), "smol", HOUR, CLOSING)) for one in others))
    finally:
        for one in others:
            await one.close()
    assert sorted(found, key=str) == [59 * CENT, None, None, None]
    assert await booked(database) == {"completed": CENT, IDLE: 59 * CENT}
    assert (await audit(database.engine)).broken == []


async def test_a_row_that_comes_after_the_hour_was_closed_is_made_good(database: Database, session: Session) -> None:
    """As an adopter brings it, in a dead process's name."""
    await present(session, whole_hour())
    await close_due(database, session)
    assert await total(database) == RATE
    await write(session, share(HOUR + MINUTE, 3 * CENT))
    assert await total(database) == RATE + 3 * CENT
    assert (await audit(database.engine)).broken == [], "it is to be looked at again, so it is not wrong"
    assert await close_due(database, session) == [-3 * CENT]
    assert await booked(database) == {"completed": 3 * CENT, IDLE: 57 * CENT}
    assert await total(database) == RATE
    await write(session, share(HOUR + 2 * MINUTE, 4 * CENT), share(HOUR + 2 * MINUTE, 0))
    assert await close_due(database, session) == [-4 * CENT]
    async with database.engine.connect() as connection:
        rows = (await connection.execute(select(usage.c.cost, usage.c.error).where(usage.c.outcome == IDLE).order_by(usage.c.cost))).all()
    assert [tuple(row) for row in rows] == [(-4 * CENT, "late"), (-3 * CENT, "late"), (RATE, "")]
    assert (await audit(database.engine)).broken == []


async def test_what_a_dead_process_left_is_adopted_into_a_closed_hour(database: Database, session: Session, tmp_path: Path) -> None:
    """A settled request and an open one, found in its journal when the hour had been closed; then the open one's true cost."""
    await present(session, whole_hour())
    await close_due(database, session)
    dead = uuid4()
    journal = Journal(tmp_path, dead, MONEY)
    settled, lost = share(HOUR + MINUTE, 3 * CENT), share(HOUR + 2 * MINUTE, CENT)
    for one, worst in ((settled, 8 * CENT), (lost, 5 * CENT)):
        plain = intent_of(one.id, one.started_at_us, None, worst)
        journal.intent(structs.replace(plain, backend="smol", price_id=one.price_id))
    journal.settlement(settled)
    journal.close(remove=False)
    await session.run(register(session.dialect, dead, "host", "boot", str(journal.directory)))
    assert await Adopter(session, MONEY, tmp_path, lambda: CLOSING).adopt(journal.directory)
    assert await total(database) == RATE + 8 * CENT
    assert await close_due(database, session) == [-8 * CENT]
    await resolve(database.engine, lost.id, 2 * CENT)
    assert await close_due(database, session) == [3 * CENT]
    assert await booked(database) == {"completed": 3 * CENT, "unknown": 5 * CENT, IDLE: RATE - 5 * CENT}
    assert await total(database) == RATE
    assert (await audit(database.engine)).broken == []


@ON_SQLITE
async def test_what_is_written_twice_changes_nothing(database: Database, session: Session) -> None:
    await present(session, whole_hour())
    row = share(HOUR + MINUTE, 3 * CENT)
    await write(session, row)
    await close_due(database, session)
    await write(session, row)
    assert await close_due(database, session) == [0]
    assert await total(database) == RATE


@pytest.mark.parametrize("person", [True, False], ids=["by a person", "by its own settlement"])
async def test_an_unknown_request_that_is_resolved_is_made_good(database: Database, session: Session, person: bool) -> None:
    await present(session, whole_hour())
    lost = share(HOUR + MINUTE, 20 * CENT, outcome="unknown")
    await write(session, lost)
    await close_due(database, session)
    if person:
        await resolve(database.engine, lost.id, 2 * CENT)
    else:
        truth = structs.replace(share(HOUR + MINUTE, 2 * CENT), id=lost.id)
        await write(session, truth)
    assert await total(database) == RATE - 18 * CENT
    assert await close_due(database, session) == [18 * CENT]
    assert await total(database) == RATE
    assert (await audit(database.engine)).broken == []


@ON_SQLITE
async def test_a_process_that_says_late_that_it_was_there_makes_the_hour_longer(database: Database, session: Session) -> None:
    await present(session, Span("", PRESENT, HOUR, HOUR + 30 * MINUTE, RATE))
    assert await close_due(database, session) == [30 * CENT]
    other = uuid4()
    await present(session, Span("", PRESENT, HOUR + 10 * MINUTE, HOUR + HOUR_US, RATE), process=other)
    assert await close_due(database, session) == [30 * CENT]
    assert await total(database) == RATE
    assert (await audit(database.engine)).broken == []


async def test_the_audit_finds_an_hour_that_does_not_add_up(database: Database, session: Session) -> None:
    await present(session, whole_hour())
    await close_due(database, session)
    async with database.engine.begin() as connection:
        await connection.execute(update(usage).where(usage.c.outcome == IDLE).values(cost=usage.c.cost - 1))
    rules = {one.rule for one in (await audit(database.engine)).broken}
    assert rules == {"roll-ups are the sums of rows"}, "the hour is summed from roll-ups, which are checked against the rows"
    await rebuild(database.engine)
    (broken,) = (await audit(database.engine)).broken
    assert (broken.rule, broken.where) == ("an owned hour's shares, idle and warm-up are hours × rate", f"smol {HOUR}")
    assert f"booked {RATE - 1}" in broken.told
    async with database.engine.begin() as connection:
        await connection.execute(update(usage).where(usage.c.outcome == IDLE).values(cost=usage.c.cost + 1))
        await connection.execute(text("UPDATE owned_spans SET until_us = until_us - 60000000"))
    await rebuild(database.engine)
    (broken,) = (await audit(database.engine)).broken
    assert f"hours × rate {RATE - CENT}" in broken.told


@pytest.mark.parametrize("seed", range(2))
async def test_any_day_adds_up(database: Database, session: Session, seed: int) -> None:
    """Random processes, rates, requests and closings in any order; at the end every hour is exact."""
    rng = random.Random(seed)
    processes = [uuid4() for _ in range(3)]
    for _ in range(40):
        at = HOUR + rng.randrange(5 * HOUR_US)
        what = rng.randrange(4)
        if what == 0:
            kind = rng.choice([PRESENT, PRESENT, WARM_UP])
            span = Span("", kind, at, at + rng.randrange(2 * HOUR_US), rng.choice([RATE, RATE, 333_333_333, 1]))
            await present(session, span, process=rng.choice(processes))
        elif what < 3:
            rows = [share(at + n, rng.randrange(CENT), rng.choice(["completed", "failed", "unknown"])) for n in range(rng.randrange(1, 6))]
            await write(session, *rows)
        else:
            await close_due(database, session, at)
    assert None not in await close_due(database, session, HOUR + 20 * HOUR_US)
    async with database.engine.connect() as connection:
        hours = (await connection.execute(select(owned_hours))).all()
        begins = rollups.c.bucket_us - rollups.c.bucket_us % HOUR_US
        sums = select(begins, func.sum(rollups.c.cost)).where(rollups.c.backend == "smol").group_by(begins)
        by_hour = {row[0]: int(row[1]) for row in await connection.execute(sums)}
    assert {row.hour_us: row.owed for row in hours if row.owed or row.hour_us in by_hour} == by_hour
    assert (await audit(database.engine)).broken == []


async def test_the_average_is_of_shares_alone_and_of_enough_tokens(database: Database, session: Session) -> None:
    await present(session, whole_hour())
    await close_due(database, session)
    await write(session, *(share(HOUR + 50 * MINUTE + n, CENT) for n in range(10)))
    now = HOUR + HOUR_US + 10 * MINUTE
    assert await averages(database.engine, ["smol"], now) == {}, "130 tokens say nothing"
    await write(session, *(share(HOUR + 51 * MINUTE + n, CENT) for n in range(990)))
    # 1,000 requests of 3 + 4 + 5 + 1 tokens for a cent each
    assert await averages(database.engine, ["smol"], now) == {"smol": -(-1000 * CENT * 1_000_000 // 13_000)}
    assert await averages(database.engine, ["other"], now) == {}
