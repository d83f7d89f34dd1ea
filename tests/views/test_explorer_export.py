"""Files of requests: what a reference finds, each once, whatever the pages; of what is seen, and never cut in silence."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.access import MEMBER, TEAM_ADMIN, Actor
from gateway.errors import InvalidRequest
from gateway.money.ledger import HOUR_US
from gateway.views import explorer_export, explorer_rows
from gateway.views.explorer_export import COLUMNS, begin, line, rows
from tests.conftest import Database
from tests.fixtures.ledger import mixed, write
from tests.views.test_explorer import EVERYTHING, NOW, QUESTIONS, TEAMS, asked, has, prepare, records


async def told(database: Database, text: str, actor: Actor = EVERYTHING) -> tuple[int | None, list[dict[str, Any]]]:
    """(how many were promised, the rows)"""
    begun = await begin(database.engine, actor, asked(text))
    return begun.matching, [row async for some in rows(database.engine, begun) for row in some]


async def test_each_request_that_matches_is_told_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    made = records(250)
    await prepare(database, made)
    monkeypatch.setattr(explorer_export, "ROWS_AT_ONCE", 30)
    monkeypatch.setattr(explorer_rows.page, "__defaults__", (60, 50))  # rows looked at for one page
    for question in QUESTIONS:
        query = asked(question)
        expected = sorted((one for one in made if has(query)(one)), key=lambda one: (-one.started_at_us, -one.id.int))
        matching, found = await told(database, question)
        assert [row["id"] for row in found] == [one.id for one in expected], question
        assert matching == len(expected), question
    newest = (await told(database, "range=30d"))[1][0]
    assert len(set(COLUMNS)) == len(COLUMNS)
    cells = dict(zip(COLUMNS, line(newest, asked().zone), strict=True))
    first = min(made, key=lambda one: (-one.started_at_us, -one.id.int))
    assert (cells["id"], cells["team"], cells["cost_nanousd"]) == (str(first.id), TEAMS[first.team_id], first.cost)
    assert (cells["input_tokens"], cells["attempts"], cells["outcome"]) == (first.usage.input, len(first.attempts), first.outcome)


async def test_rows_that_come_meanwhile_move_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    made = records(100)
    await prepare(database, made)
    monkeypatch.setattr(explorer_export, "ROWS_AT_ONCE", 30)
    pages = rows(database.engine, await begin(database.engine, EVERYTHING, asked("range=30d")))
    found = list(await anext(pages))
    await write(database.engine, mixed(40, NOW - HOUR_US, NOW + HOUR_US, seed=77))
    newer = {one.id for one in made if one.started_at_us >= found[-1]["started_at_us"]}
    found += [row for row in [row async for some in pages for row in some] if row["id"] in {one.id for one in made}]
    assert sorted(row["id"] for row in found) == sorted(one.id for one in made) and newer


async def test_only_what_is_seen_is_told_and_too_much_is_refused(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    made = records(120)
    await prepare(database, made)
    mine = Actor(name="t", role=TEAM_ADMIN, teams={1: TEAM_ADMIN})
    assert {row["id"] for row in (await told(database, "range=30d", mine))[1]} == {one.id for one in made if one.team_id == 1}
    member = Actor(name="m", role=MEMBER, teams={2: MEMBER}, member_id=9)
    own = {one.id for one in made if one.key_id == 21}
    assert own and {row["id"] for row in (await told(database, "range=30d", member))[1]} == own

    begun = await begin(database.engine, EVERYTHING, asked("range=30d"))
    with pytest.raises(InvalidRequest, match="shorter range"):
        _ = [some async for some in rows(database.engine, begun, most=119)]
    monkeypatch.setattr(explorer_export, "ROWS_MAX", 119)
    with pytest.raises(InvalidRequest, match="shorter range"):
        await begin(database.engine, EVERYTHING, asked("range=30d"))
