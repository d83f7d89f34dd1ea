"""Reports for people: parts add up to groups, groups to the total, and the total is the ledger's own sum."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.errors import NotFound
from gateway.money.ledger import DAY_US
from gateway.views import spend
from tests.conftest import Database
from tests.fixtures.ledger import mixed, write
from tests.views.test_series import NOVEMBER

UNTIL = NOVEMBER + 2 * DAY_US


async def filled(database: Database) -> list[object]:
    for name in ("one", "two", "three"):
        await people.add_team(database.engine, name, actor=COMMAND_LINE)
    records = mixed(300, NOVEMBER, UNTIL)
    await write(database.engine, records)
    return list(records)


def asked(*by: str, **more: object) -> spend.Asked:
    return spend.Asked(by=by, since_us=NOVEMBER, until_us=UNTIL, **more)  # type: ignore[arg-type]


async def test_everything_adds_up_to_the_ledger(database: Database) -> None:
    records = await filled(database)
    for by in (("team",), ("team", "model"), ("backend", "outcome"), ("day", "route"), ("tag", "hour"), ("key", "month")):
        told = await spend.told(database.engine, asked(*by, tz="Europe/Berlin"))
        total = told.report.total
        assert told.ledger == total.cost == sum(group.line.cost for group in told.groups), by
        assert total.requests == len(records) == sum(group.line.requests for group in told.groups)
        for group in told.groups:
            if len(by) > 1:
                assert sum(line.cost for line in group.parts) == group.line.cost
        assert told.series.total.of("cost") == total.cost
        if by[0] not in ("day", "month"):
            costs = [group.line.cost for group in told.groups]
            assert costs == sorted(costs, reverse=True)
            assert {group.name for group in told.groups} == {name for (name,) in told.series.by}


async def test_a_sum_that_is_not_the_ledger_s_is_seen(database: Database) -> None:
    await filled(database)
    async with database.engine.begin() as connection:
        await connection.execute(text("UPDATE usage SET cost = cost + 1 WHERE id = (SELECT id FROM usage WHERE cost > 0 LIMIT 1)"))
    told = await spend.told(database.engine, asked("team"))
    assert told.ledger == told.report.total.cost + 1


async def test_what_is_booked_while_it_is_read_makes_no_difference(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and ledger are of one instant: a request that ends between two of its reads stands in neither."""
    records = await filled(database)
    read = spend.series

    async def meanwhile(*asked: Any, **more: Any) -> Any:
        found = await read(*asked, **more)
        await write(database.engine, mixed(3, NOVEMBER, UNTIL, seed=len(written)))
        written.append(3)
        return found

    written: list[int] = []
    monkeypatch.setattr(spend, "series", meanwhile)
    told = await spend.told(database.engine, asked("team"))
    assert written and told.ledger == told.report.total.cost == sum(one.cost or 0 for one in records)  # type: ignore[attr-defined]
    monkeypatch.undo()
    assert (await spend.told(database.engine, asked("team"))).report.total.requests == len(records) + sum(written)


async def test_filters_and_what_the_ledger_can_check(database: Database) -> None:
    await filled(database)
    told = await spend.told(database.engine, asked("model", team="two", where={"route": frozenset(("code", "none"))}))
    assert told.ledger == told.report.total.cost > 0
    by_backend = await spend.told(database.engine, asked("team", where={"backend": frozenset(("a",))}))
    assert by_backend.ledger is None and not by_backend.checkable
    assert 0 < by_backend.report.total.cost < (await spend.told(database.engine, asked("team"))).report.total.cost


async def test_only_what_is_seen_counts(database: Database) -> None:
    await filled(database)
    told = await spend.told(database.engine, asked("team", scope=frozenset((2,))))
    assert [group.name for group in told.groups] == ["two"] and told.ledger == told.report.total.cost
    with pytest.raises(NotFound):
        await spend.told(database.engine, asked("team", team="one", scope=frozenset((2,))))
    nobody = await spend.told(database.engine, asked("team", scope=frozenset()))
    assert (nobody.report.total.cost, nobody.ledger, nobody.groups) == (0, 0, ())


async def test_an_empty_ledger_is_no_error(database: Database) -> None:
    told = await spend.told(database.engine, asked("team", "model"))
    assert (told.groups, told.ledger) == ((), 0)


async def test_many_rows_are_added_up_when_asked(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(database)
    monkeypatch.setattr(spend, "CHECKED_MAX", 10)
    assert (await spend.told(database.engine, asked("team"))).ledger is None
    told = await spend.told(database.engine, asked("team", check=True))
    assert told.ledger == told.report.total.cost


async def test_a_long_report_is_cut_to_its_end_and_says_so(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that no cut has together are read by quarters; of names that no hour has only the chart is cut."""
    await filled(database)
    whole = await spend.told(database.engine, asked("key", "model"))
    monkeypatch.setattr("gateway.views.series.tail.__defaults__", (20,))
    cut = await spend.told(database.engine, asked("key", "model"))
    assert whole.since_us == NOVEMBER < cut.since_us
    assert 0 < cut.report.total.requests < whole.report.total.requests and cut.ledger == cut.report.total.cost
    for by in (("team", "day"), ("model",), ("backend", "outcome")):
        told = await spend.told(database.engine, asked(*by))
        assert told.report.total.cost == whole.report.total.cost == told.series.total.of("cost"), by
    for by in (("tag",), ("key", "team")):
        told = await spend.told(database.engine, asked(*by))
        assert told.report.total.cost == whole.report.total.cost > told.series.total.of("cost") > 0, by
        assert told.series.steps.starts[0] == cut.since_us


async def test_the_time_before_is_as_long_and_of_the_same(database: Database) -> None:
    await filled(database)
    half = spend.Asked(by=("tag",), since_us=NOVEMBER + DAY_US, until_us=UNTIL, where={"route": frozenset(("code",))})
    first = await spend.told(database.engine, replace(half, since_us=NOVEMBER, until_us=NOVEMBER + DAY_US))
    assert (await spend.told(database.engine, half)).before.of("cost") == first.report.total.cost > 0
