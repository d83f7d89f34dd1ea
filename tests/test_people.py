"""Teams, keys and budgets: what is made, what is refused and with which words, and that every change moves the version."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from sqlalchemy import func, insert, select, update

from gateway import people, rates
from gateway.auth import digest_of, live_keys, principal_from
from gateway.db.tables import api_keys, budget_windows, budgets, catalog_version, rollups
from gateway.errors import GatewayError, InvalidRequest, NotFound
from gateway.labels import Labels
from gateway.people import NewBudget, NewKey
from tests.conftest import Database

SECRET = b"s" * 32
DOLLAR = 10**9
HOUR_US = 3_600_000_000


async def version(database: Database) -> int:
    async with database.engine.connect() as connection:
        return int((await connection.execute(select(catalog_version.c.version))).scalar_one())


async def spent(database: Database, *, cost: int, at_us: int, route: str = "assistant", team_id: int = 1) -> None:
    row = {"bucket_us": at_us - at_us % 900_000_000, "org_id": 1, "team_id": team_id, "key_id": 1, "route": route, "cost": cost}
    words = {"backend": "b", "vendor": "v", "model": "m", "outcome": "completed", "tag": ""}
    async with database.engine.begin() as connection:
        await connection.execute(insert(rollups).values(**row, **words, requests=1))


async def test_teams_belong_to_organisations(database: Database) -> None:
    first = await people.add_team(database.engine, "search")
    second = await people.add_team(database.engine, "ads", "growth")
    third = await people.add_team(database.engine, "mail", "growth")
    assert [(team.name, team.org) for team in await people.list_teams(database.engine)] == [
        ("ads", "growth"),
        ("mail", "growth"),
        ("search", "default"),
    ]
    assert len({first.id, second.id, third.id}) == 3
    assert abs(first.created_at_us / 1e6 - time.time()) < 60


async def test_every_change_moves_the_version(database: Database) -> None:
    engine = database.engine
    seen = [await version(database)]

    async def moved() -> bool:
        seen.append(await version(database))
        return seen[-1] > seen[-2]

    await people.add_team(engine, "alpha")
    assert await moved()
    _, key = await people.add_key(engine, SECRET, NewKey(team="alpha"))
    assert await moved()
    budget = await people.set_budget(engine, NewBudget(scope_kind="team", scope="alpha", limit_nanousd=1, period="day"))
    assert await moved()
    await people.delete_budget(engine, budget.id)
    assert await moved()
    await people.revoke_key(engine, key.public)
    assert await moved()
    await people.delete_team(engine, "alpha")
    assert await moved()


async def test_a_change_that_is_refused_moves_nothing(database: Database) -> None:
    await people.add_team(database.engine, "alpha")
    before = await version(database)
    with pytest.raises(InvalidRequest):
        await people.add_team(database.engine, "alpha")
    with pytest.raises(NotFound):
        await people.add_key(database.engine, SECRET, NewKey(team="beta"))
    assert await version(database) == before


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "../etc", "a" * 65, "é", "a\n", "a;drop table teams", "a/b"])
async def test_names_that_would_need_quoting_somewhere_are_refused(database: Database, name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot name a team"):
        await people.add_team(database.engine, name)
    with pytest.raises(InvalidRequest, match="cannot name a organisation"):
        await people.add_team(database.engine, "fine", name)


async def test_a_team_is_made_once_also_by_two_at_the_same_time(database: Database) -> None:
    both = await asyncio.gather(*(people.add_team(database.engine, "alpha") for _ in range(2)), return_exceptions=True)
    told = [one for one in both if isinstance(one, GatewayError)]
    assert len(told) == 1 and told[0].status == 409
    assert len(await people.list_teams(database.engine)) == 1


async def test_the_name_of_a_deleted_team_stays_taken(database: Database) -> None:
    await people.add_team(database.engine, "alpha")
    await people.delete_team(database.engine, "alpha")
    assert await people.list_teams(database.engine) == []
    with pytest.raises(InvalidRequest, match="deleted"):
        await people.add_team(database.engine, "alpha")
    with pytest.raises(NotFound, match="tollway teams list"):
        await people.delete_team(database.engine, "alpha")


async def test_a_key_is_stored_as_its_digest_alone(database: Database) -> None:
    await people.add_team(database.engine, "alpha")
    new = NewKey(team="alpha", name="ci", models=("gpt-4o", "assistant"), expires="30d", tag="nightly", scopes=("admin", "inference"))
    text, key = await people.add_key(database.engine, SECRET, new)
    async with database.engine.connect() as connection:
        row = (await connection.execute(select(api_keys))).mappings().one()
    assert bytes(row["digest"]) == digest_of(text.encode(), SECRET)
    assert not any(text[16:] in str(value) for value in row.values())
    assert (key.public, key.team, key.name, key.models, key.scopes) == (text[3:15], "alpha", "ci", new.models, ("admin", "inference"))
    assert key.expires_at_us is not None and key.expires_at_us - key.created_at_us == 30 * 24 * HOUR_US
    assert await people.list_keys(database.engine) == [key] == await people.list_keys(database.engine, "alpha")


async def test_a_key_is_revoked_by_its_public_part_or_by_itself(database: Database) -> None:
    await people.add_team(database.engine, "alpha")
    one, first = await people.add_key(database.engine, SECRET, NewKey(team="alpha"))
    _, second = await people.add_key(database.engine, SECRET, NewKey(team="alpha"))
    ended = await people.revoke_key(database.engine, one)
    assert ended.public == first.public and ended.revoked_at_us is not None
    assert (await people.revoke_key(database.engine, first.public)).revoked_at_us == ended.revoked_at_us
    assert [key.revoked_at_us is None for key in await people.list_keys(database.engine)] == [False, True]
    with pytest.raises(NotFound, match="tollway keys list"):
        await people.revoke_key(database.engine, "AAAAAAAAAAAA")
    assert second.revoked_at_us is None


async def test_labels_of_a_team_and_of_its_key_both_hold_for_the_key(database: Database) -> None:
    engine = database.engine
    team = await people.add_team(engine, "alpha", labels={"residency": "eu"})
    _, key = await people.add_key(engine, SECRET, NewKey(team="alpha", labels={"retention": "none"}))
    assert (team.labels, key.labels) == ({"residency": "eu"}, {"retention": "none"})
    assert [one.labels for one in await people.list_teams(engine)] == [team.labels]

    async def held() -> Labels:
        async with engine.connect() as connection:
            return principal_from((await connection.execute(live_keys())).one())[1].labels

    assert await held() == (("residency", "eu"), ("retention", "none"))
    before = await version(database)
    assert await people.label_team(engine, "alpha", {"residency": "us"}) == {"residency": "us"}
    assert await version(database) == before + 1 and await held() == (("residency", "us"), ("retention", "none"))
    await people.label_team(engine, "alpha", {})
    assert await held() == (("retention", "none"),)
    with pytest.raises(InvalidRequest, match=r"^labels: ") as told:
        await people.label_team(engine, "alpha", {"residency": "e u"})
    assert told.value.param == "labels"
    with pytest.raises(NotFound, match="There is no team 'beta'"):
        await people.label_team(engine, "beta", {})


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"labels": {"": "eu"}}, "labels"),
        ({"labels": {"residency": "eu,x=y"}}, "labels"),
        ({"scopes": ("root",)}, "scopes"),
        ({"scopes": ()}, "scopes"),
        ({"models": ()}, "models"),
        ({"models": ("a", "")}, "models"),
        ({"models": ("a",) * 1001}, "models"),
        ({"name": "x" * 201}, "name"),
        ({"expires": "soon"}, "expires"),
        ({"expires": "2020-01-01"}, "expires"),
        ({"expires": "0d"}, "expires"),
        ({"expires": "99999999d"}, "expires"),
        ({"expires": ""}, "expires"),
    ],
)
async def test_a_key_that_cannot_be_meant_is_refused(database: Database, wrong: dict[str, object], param: str) -> None:
    await people.add_team(database.engine, "alpha")
    with pytest.raises(InvalidRequest) as told:
        await people.add_key(database.engine, SECRET, NewKey(team="alpha", **wrong))  # type: ignore[arg-type]
    assert told.value.param == param
    assert await people.list_keys(database.engine) == []


@pytest.mark.parametrize("number", [0, -1, 1 << 63, 10**20])
async def test_a_number_that_no_row_can_have_finds_nothing(database: Database, number: int) -> None:
    for work in (
        people.delete_budget(database.engine, number),
        people.end_override(database.engine, number),
        people.override_budget(database.engine, number, 1, "2d"),
        rates.delete_limit(database.engine, number),
    ):
        with pytest.raises(NotFound, match=f"There is no (budget|limit) {number}"):
            await work


async def test_text_that_a_database_cannot_hold_is_named_and_finds_nothing(database: Database) -> None:
    """Postgres refuses the character NUL in a text, which would be an error of ours."""
    await people.add_team(database.engine, "alpha")
    scope: dict[str, Any] = {"scope_kind": "team", "scope": "alpha"}
    refused = {
        "name": people.add_key(database.engine, SECRET, NewKey(team="alpha", name="a\0b")),
        "tag": people.add_key(database.engine, SECRET, NewKey(team="alpha", tag="line\nbreak")),
        "models[1]": people.add_key(database.engine, SECRET, NewKey(team="alpha", models=("a", "\0"))),
        "model": people.set_budget(database.engine, NewBudget(**scope, limit_nanousd=1, period="day", model="\0")),
    }
    for field, work in refused.items():
        with pytest.raises(InvalidRequest, match="printable characters") as told:
            await work
        assert told.value.param == field
    with pytest.raises(InvalidRequest, match="printable characters"):
        await rates.set_limit(database.engine, rates.NewLimit(**scope, rpm=1, model="\0"))
    for missing in (
        people.list_keys(database.engine, "\0"),
        people.delete_team(database.engine, "\0"),
        people.revoke_key(database.engine, "\0"),
        people.set_budget(database.engine, NewBudget(scope_kind="key", scope="\0", limit_nanousd=1, period="day")),
        people.set_budget(database.engine, NewBudget(scope_kind="organisation", scope="\0", limit_nanousd=1, period="day")),
    ):
        with pytest.raises(NotFound):
            await missing


async def test_a_budget_is_set_again_not_made_again(database: Database) -> None:
    await people.add_team(database.engine, "alpha")
    new = NewBudget(scope_kind="team", scope="alpha", limit_nanousd=100 * DOLLAR, period="month", timezone="Europe/Berlin")
    first = await people.set_budget(database.engine, new)
    again = await people.set_budget(
        database.engine, NewBudget(scope_kind="team", scope="alpha", limit_nanousd=DOLLAR, period="month", timezone="Europe/Berlin")
    )
    assert (again.id, again.limit_nanousd) == (first.id, DOLLAR)
    others = [
        NewBudget(scope_kind="team", scope="alpha", limit_nanousd=DOLLAR, period="month", timezone="UTC"),
        NewBudget(scope_kind="team", scope="alpha", limit_nanousd=DOLLAR, period="day", timezone="Europe/Berlin"),
        NewBudget(scope_kind="team", scope="alpha", limit_nanousd=DOLLAR, period="month", timezone="Europe/Berlin", model="assistant"),
        NewBudget(scope_kind="organisation", scope="default", limit_nanousd=DOLLAR, period="total"),
    ]
    ids = {first.id} | {(await people.set_budget(database.engine, other)).id for other in others}
    assert len(ids) == 5
    assert {budget.id for budget in await people.list_budgets(database.engine)} == ids


async def test_budgets_are_listed_with_their_present_window(database: Database) -> None:
    engine = database.engine
    team = await people.add_team(engine, "alpha")
    _, key = await people.add_key(engine, SECRET, NewKey(team="alpha"))
    of_team = await people.set_budget(engine, NewBudget(scope_kind="team", scope="alpha", limit_nanousd=5, period="total"))
    of_key = await people.set_budget(engine, NewBudget(scope_kind="key", scope=key.public, limit_nanousd=5, period="day"))
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
    team = await people.add_team(database.engine, "alpha")
    now = time.time_ns() // 1000
    await spent(database, cost=300, at_us=now, team_id=team.id)
    await spent(database, cost=20, at_us=now, route="other", team_id=team.id)
    await spent(database, cost=1, at_us=now, team_id=team.id + 1)
    await spent(database, cost=4000, at_us=now - 40 * 24 * HOUR_US, team_id=team.id)
    kinds = [("total", None, 4320), ("month", None, 320), ("month", "other", 20)]
    for period, model, expected in kinds:
        new = NewBudget(scope_kind="team", scope="alpha", limit_nanousd=5000, period=period, model=model)
        assert (await people.set_budget(database.engine, new)).spent_nanousd == expected


async def test_a_running_override_is_the_limit_that_is_shown(database: Database) -> None:
    await people.add_team(database.engine, "alpha")
    new = NewBudget(scope_kind="team", scope="alpha", limit_nanousd=5, period="day")
    await people.set_budget(database.engine, new)
    for until, cap in ((1, 5), (1 << 60, 77)):
        async with database.engine.begin() as connection:
            await connection.execute(update(budgets).values(override_nanousd=77, override_until_us=until))
        shown = (await people.list_budgets(database.engine))[0]
        assert (shown.limit_nanousd, shown.cap_nanousd, shown.ceiling_nanousd) == (5, cap, cap)
        assert (shown.override_nanousd, shown.override_until_us) == ((None, None) if cap == 5 else (77, until))


async def test_thresholds_are_kept_until_others_are_set(database: Database) -> None:
    await people.add_team(database.engine, "alpha")

    async def alerts(**more: Any) -> tuple[int, ...]:
        new = NewBudget(scope_kind="team", scope="alpha", limit_nanousd=5, period="day", **more)
        return (await people.set_budget(database.engine, new)).alerts

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
        ({"scope": "nobody"}, "team"),
        ({"scope_kind": "organisation", "scope": "nobody"}, "scope"),
        ({"scope_kind": "key", "scope": "AAAAAAAAAAAA"}, "scope"),
        ({"model": ""}, "model"),
    ],
)
async def test_a_budget_that_cannot_be_meant_is_refused(database: Database, wrong: dict[str, object], param: str) -> None:
    await people.add_team(database.engine, "alpha")
    fine: dict[str, object] = {"scope_kind": "team", "scope": "alpha", "limit_nanousd": 5, "period": "day"}
    with pytest.raises(GatewayError) as told:
        await people.set_budget(database.engine, NewBudget(**{**fine, **wrong}))  # type: ignore[arg-type]
    assert told.value.param == param and told.value.status in (400, 404)
    async with database.engine.connect() as connection:
        assert (await connection.execute(select(func.count()).select_from(budgets))).scalar_one() == 0


async def test_a_deleted_budget_is_gone_and_may_be_made_again(database: Database) -> None:
    await people.add_team(database.engine, "alpha")
    new = NewBudget(scope_kind="team", scope="alpha", limit_nanousd=5, period="day")
    first = await people.set_budget(database.engine, new)
    await people.delete_budget(database.engine, first.id)
    assert await people.list_budgets(database.engine) == []
    with pytest.raises(NotFound):
        await people.delete_budget(database.engine, first.id)
    assert (await people.set_budget(database.engine, new)).id != first.id
