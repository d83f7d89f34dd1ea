"""Budgets: set, overridden, listed with their present window, lifted."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sqlalchemy import event, func, insert, select, update

from gateway import audit, people, rates
from gateway.access import COMMAND_LINE, Actor
from gateway.db.rollup_tables import rollups
from gateway.db.tables import budget_windows, budgets
from gateway.errors import Forbidden, GatewayError, InvalidRequest, NotFound
from gateway.people import NewBudget, NewKey
from tests.conftest import Database

SECRET = b"s" * 32
DOLLAR = 10**9
HOUR_US = 3_600_000_000


async def spent(database: Database, *, cost: int, at_us: int, route: str = "assistant", team_id: int = 1) -> None:
    row = {"bucket_us": at_us - at_us % 900_000_000, "org_id": 1, "team_id": team_id, "key_id": 1, "route": route, "cost": cost}
    words = {"backend": "b", "vendor": "v", "model": "m", "outcome": "completed", "tag": ""}
    async with database.engine.begin() as connection:
        await connection.execute(insert(rollups).values(**row, **words, requests=1))


async def test_a_budget_is_set_again_not_made_again(database: Database) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    new = NewBudget(scope_kind="team", scope="alpha", limit_nanousd=100 * DOLLAR, period="month", timezone="Europe/Berlin")
    first = await people.set_budget(database.engine, new, actor=COMMAND_LINE)
    again = await people.set_budget(
        database.engine,
        NewBudget(scope_kind="team", scope="alpha", limit_nanousd=DOLLAR, period="month", timezone="Europe/Berlin"),
        actor=COMMAND_LINE,
    )
    assert (again.id, again.limit_nanousd) == (first.id, DOLLAR)
    others = [
        NewBudget(scope_kind="team", scope="alpha", limit_nanousd=DOLLAR, period="month", timezone="UTC"),
        NewBudget(scope_kind="team", scope="alpha", limit_nanousd=DOLLAR, period="day", timezone="Europe/Berlin"),
        NewBudget(scope_kind="team", scope="alpha", limit_nanousd=DOLLAR, period="month", timezone="Europe/Berlin", model="assistant"),
        NewBudget(scope_kind="organisation", scope="default", limit_nanousd=DOLLAR, period="total"),
    ]
    ids = {first.id} | {(await people.set_budget(database.engine, other, actor=COMMAND_LINE)).id for other in others}
    assert len(ids) == 5
    assert {budget.id for budget in await people.list_budgets(database.engine)} == ids


async def test_budgets_are_listed_with_their_present_window(database: Database) -> None:
    engine = database.engine
    team = await people.add_team(engine, "alpha", actor=COMMAND_LINE)
    _, key = await people.add_key(engine, SECRET, NewKey(team="alpha"), actor=COMMAND_LINE)
    of_team = await people.set_budget(
        engine, NewBudget(scope_kind="team", scope="alpha", limit_nanousd=5, period="total"), actor=COMMAND_LINE
    )
    of_key = await people.set_budget(
        engine, NewBudget(scope_kind="key", scope=key.public, limit_nanousd=5, period="day"), actor=COMMAND_LINE
    )
    assert of_key.scope == key.public and of_key.resets_at_us is not None and of_team.resets_at_us is None
    async with engine.begin() as connection:
        for row in (
            {"budget_id": of_team.id, "starts_at_us": 0, "ends_at_us": None, "spent": 4, "leased": 3},
            {"budget_id": of_key.id, "starts_at_us": 0, "ends_at_us": 86_400_000_000, "spent": 9, "leased": 9},  # a window long past
        ):
            await connection.execute(insert(budget_windows).values(**row))
    found = {budget.id: budget for budget in await people.list_budgets(engine)}
    assert (found[of_team.id].spent_nanousd, found[of_team.id].leased_nanousd, found[of_team.id].ceiling_nanousd) == (4, 3, 7)
    assert (found[of_key.id].spent_nanousd, found[of_key.id].ceiling_nanousd) == (0, 5)
    assert team.id == 1


async def test_an_unopened_window_shows_what_opening_it_would_book(database: Database) -> None:
    team = await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    now = time.time_ns() // 1000
    await spent(database, cost=300, at_us=now, team_id=team.id)
    await spent(database, cost=20, at_us=now, route="other", team_id=team.id)
    await spent(database, cost=1, at_us=now, team_id=team.id + 1)
    await spent(database, cost=4000, at_us=now - 40 * 24 * HOUR_US, team_id=team.id)
    kinds = [("total", None, 4320), ("month", None, 320), ("month", "other", 20)]
    for period, model, expected in kinds:
        new = NewBudget(scope_kind="team", scope="alpha", limit_nanousd=5000, period=period, model=model)
        assert (await people.set_budget(database.engine, new, actor=COMMAND_LINE)).spent_nanousd == expected


async def test_windows_that_nobody_opened_are_added_up_together(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many budgets are alike: a statement for each of ten thousand takes seconds."""
    monkeypatch.setattr("gateway.people.budgets.ALIKE_MAX", 3)
    now = time.time_ns() // 1000
    for number in range(1, 6):
        team = await people.add_team(database.engine, f"team-{number}", actor=COMMAND_LINE)
        await spent(database, cost=number, at_us=now, team_id=team.id)
        new = NewBudget(scope_kind="team", scope=team.name, limit_nanousd=9, period="month")
        await people.set_budget(database.engine, new, actor=COMMAND_LINE)
    asked: list[str] = []
    event.listen(database.engine.sync_engine, "before_cursor_execute", lambda *told: asked.append(told[2]))
    found = await people.list_budgets(database.engine)
    assert [(one.scope, one.spent_nanousd) for one in found] == [(f"team-{number}", number) for number in range(1, 6)]
    assert sum("rollups" in statement for statement in asked) == 2
    (one,) = await people.list_budgets(database.engine, budget_id=found[3].id)
    assert one == found[3] and await people.list_budgets(database.engine, frozenset({1}), budget_id=found[3].id) == []


async def test_a_running_override_is_the_limit_that_is_shown(database: Database) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    new = NewBudget(scope_kind="team", scope="alpha", limit_nanousd=5, period="day")
    await people.set_budget(database.engine, new, actor=COMMAND_LINE)
    for until, cap in ((1, 5), (1 << 60, 77)):
        async with database.engine.begin() as connection:
            await connection.execute(update(budgets).values(override_nanousd=77, override_until_us=until))
        shown = (await people.list_budgets(database.engine))[0]
        assert (shown.limit_nanousd, shown.cap_nanousd, shown.ceiling_nanousd) == (5, cap, cap)
        assert (shown.override_nanousd, shown.override_until_us) == ((None, None) if cap == 5 else (77, until))


async def test_thresholds_are_kept_until_others_are_set(database: Database) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)

    async def alerts(**more: Any) -> tuple[int, ...]:
        new = NewBudget(scope_kind="team", scope="alpha", limit_nanousd=5, period="day", **more)
        return (await people.set_budget(database.engine, new, actor=COMMAND_LINE)).alerts

    assert await alerts() == (80, 100)
    assert await alerts(alerts=(100, 50, 50)) == (50, 100)
    assert await alerts() == (50, 100)
    assert await alerts(alerts=()) == () == (await people.list_budgets(database.engine))[0].alerts
    for wrong in ((0,), (101,), tuple(range(1, 12))):
        with pytest.raises(InvalidRequest, match="percents between 1 and 100"):
            await alerts(alerts=wrong)


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"period": "fortnight"}, "period"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"timezone": "../../etc/passwd"}, "timezone"),
        ({"limit_nanousd": -1}, "limit"),
        ({"limit_nanousd": 1 << 62}, "limit"),
        ({"scope_kind": "user"}, "scope_kind"),
        ({"scope": "nobody"}, "scope"),
        ({"scope_kind": "organisation", "scope": "nobody"}, "scope"),
        ({"scope_kind": "key", "scope": "AAAAAAAAAAAA"}, "scope"),
        ({"model": ""}, "model"),
    ],
)
async def test_a_budget_that_cannot_be_meant_is_refused(database: Database, wrong: dict[str, object], param: str) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    fine: dict[str, object] = {"scope_kind": "team", "scope": "alpha", "limit_nanousd": 5, "period": "day"}
    with pytest.raises(GatewayError) as told:
        await people.set_budget(database.engine, NewBudget(**{**fine, **wrong}), actor=COMMAND_LINE)  # type: ignore[arg-type]
    assert told.value.param == param and told.value.status in (400, 404)
    async with database.engine.connect() as connection:
        assert (await connection.execute(select(func.count()).select_from(budgets))).scalar_one() == 0


async def test_a_deleted_budget_is_gone_and_may_be_made_again(database: Database) -> None:
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    new = NewBudget(scope_kind="team", scope="alpha", limit_nanousd=5, period="day")
    first = await people.set_budget(database.engine, new, actor=COMMAND_LINE)
    await people.delete_budget(database.engine, first.id, actor=COMMAND_LINE)
    assert await people.list_budgets(database.engine) == []
    with pytest.raises(NotFound):
        await people.delete_budget(database.engine, first.id, actor=COMMAND_LINE)
    assert (await people.set_budget(database.engine, new, actor=COMMAND_LINE)).id != first.id


async def test_a_team_admin_sets_what_keys_of_its_team_may_spend_and_no_more(database: Database) -> None:
    engine = database.engine
    for team in ("alpha", "beta"):
        await people.add_team(engine, team, actor=COMMAND_LINE)
    carla = Actor(name="carla", role="team_admin", teams={1: "team_admin"})
    _, mine = await people.add_key(engine, SECRET, people.NewKey(team="alpha"), actor=COMMAND_LINE)
    _, other = await people.add_key(engine, SECRET, people.NewKey(team="beta"), actor=COMMAND_LINE)

    def of(kind: str, scope: str) -> NewBudget:
        return NewBudget(scope_kind=kind, scope=scope, limit_nanousd=DOLLAR, period="day")

    teams = [await people.set_budget(engine, of("team", team), actor=COMMAND_LINE) for team in ("alpha", "beta")]
    org = await people.set_budget(engine, of("organisation", "default"), actor=COMMAND_LINE)
    theirs = await people.set_budget(engine, of("key", other.public), actor=COMMAND_LINE)
    made = await people.set_budget(engine, of("key", mine.public), actor=carla)
    assert [one.id for one in await people.list_budgets(engine, carla.scope)] == [teams[0].id, made.id]
    for kind, scope, wrong in (
        ("team", "alpha", Forbidden),
        ("organisation", "default", Forbidden),
        ("team", "beta", NotFound),
        ("key", other.public, NotFound),
    ):
        with pytest.raises(wrong):
            await people.set_budget(engine, of(kind, scope), actor=carla)
        with pytest.raises(wrong):
            await rates.set_limit(engine, rates.NewLimit(scope_kind=kind, scope=scope, rpm=5), actor=carla)
    for budget, wrong in ((teams[0], Forbidden), (teams[1], NotFound), (org, NotFound), (theirs, NotFound)):
        for call in (
            people.override_budget(engine, budget.id, 1, "1h", actor=carla),
            people.end_override(engine, budget.id, actor=carla),
            people.delete_budget(engine, budget.id, actor=carla),
        ):
            with pytest.raises(wrong):
                await call
    await people.override_budget(engine, made.id, 1, "1h", actor=carla)
    await people.end_override(engine, made.id, actor=carla)
    await people.delete_budget(engine, made.id, actor=carla)
    limit = await rates.set_limit(engine, rates.NewLimit(scope_kind="key", scope=mine.public, rpm=5), actor=carla)
    wide = await rates.set_limit(engine, rates.NewLimit(scope_kind="team", scope="beta", rpm=5), actor=COMMAND_LINE)
    assert await rates.list_limits(engine, carla.scope) == [limit]
    with pytest.raises(NotFound):
        await rates.delete_limit(engine, wide.id, actor=carla)
    await rates.delete_limit(engine, limit.id, actor=carla)
    entries, _ = await audit.read(engine, audit.Asked(actor="carla"))
    assert [(one.action, one.ident, one.team) for one in reversed(entries)] == [
        ("budget.set", f"key {mine.public} per day", "alpha"),
        ("budget.override", f"key {mine.public} per day", "alpha"),
        ("budget.end_override", f"key {mine.public} per day", "alpha"),
        ("budget.delete", f"key {mine.public} per day", "alpha"),
        ("limit.set", f"key {mine.public}", "alpha"),
        ("limit.delete", f"key {mine.public}", "alpha"),
    ]
    assert entries[0].before == {"rpm": 5, "tpm": None, "parallel": None} and entries[0].after is None
