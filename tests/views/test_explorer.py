"""The explorer beside a reference that goes through every record: filters, counts, facets, order and cursor, for every role."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import insert

from gateway import people
from gateway.access import ADMIN, COMMAND_LINE, MEMBER, TEAM_ADMIN, Actor
from gateway.db.tables import api_keys
from gateway.errors import InvalidRequest
from gateway.money.ledger import BOOKED, DAY_US, HOUR_US
from gateway.money.marks import HEDGED, MISSED, UNPRICED, marks
from gateway.money.records import UsageRecord
from gateway.money.windows import to_us
from gateway.views import explorer, explorer_counts, explorer_rows
from gateway.views.explorer import Listing, document, listing
from gateway.views.explorer_filter import NAMES, ONLY, Sight, wanted
from gateway.views.query import Query, read
from tests.conftest import Database
from tests.fixtures.ledger import mixed, write

NOW = to_us(datetime(2026, 11, 18, 14, 30, tzinfo=UTC))
EVERYTHING = Actor(name="key a", role=ADMIN)
TEAMS = {1: "growth", 2: "search", 3: "data-platform"}
Matches = Callable[[UsageRecord], bool]


def records(count: int) -> list[UsageRecord]:
    """Requests of the last 30 days by chance, some in the same microsecond, with marks and keys of their own."""
    chance = random.Random(5)
    made = []
    for one in mixed(count, NOW - 30 * DAY_US, NOW, seed=3):
        given: dict[str, Any] = {name: getattr(one, name) for name in one.__struct_fields__}
        given |= {
            "marks": chance.choice([0, 0, 0, HEDGED, MISSED, HEDGED | MISSED]),
            "key_id": one.team_id * 10 + chance.randint(0, 1),
            "ttft_ms": None if one.outcome in ("refused", "cached") else chance.randrange(10, 3000),
            "duration_ms": chance.randrange(10, 9000),
            "error": chance.choice(["", "over_loaded", "100%"]),
        }
        if chance.random() < 0.2:
            given["started_at_us"] = NOW - chance.randrange(1, 4) * HOUR_US
        made.append(UsageRecord(**given))
    return made


async def prepare(database: Database, made: list[UsageRecord]) -> None:
    for name in TEAMS.values():
        await people.add_team(database.engine, name, actor=COMMAND_LINE)
    async with database.engine.begin() as connection:
        for team in TEAMS:
            for n in range(2):
                values = {"id": team * 10 + n, "team_id": team, "public": f"key-{team}-{n}", "digest": bytes([team, n]), "name": "k"}
                values |= {"scopes": "inference", "created_at_us": 1, "member_id": 9 if n else None}
                await connection.execute(insert(api_keys).values(values))
    await write(database.engine, made)


def asked(text: str = "range=30d", now_us: int = NOW) -> Query:
    pairs = [tuple(pair.split("=", 1)) for pair in text.split("&") if pair]
    return read(pairs, now_us, NAMES, default="30d")  # type: ignore[arg-type]


def has(query: Query, leave_out: str = "") -> Matches:
    """What the documents say of each filter, record by record."""

    def match(one: UsageRecord) -> bool:
        words = {name: values for name, values in query.words.items() if name != leave_out}
        has_value = {
            "team": TEAMS[one.team_id],
            "key": f"key-{one.team_id}-{one.key_id % 10}",
            **{name: getattr(one, name) for name in ("route", "backend", "model", "outcome", "tag")},
        }
        bits = marks(one, BOOKED)
        least, most = query.money.get("cost_min"), query.money.get("cost_max")
        first, last = query.ms.get("ttft_min"), query.ms.get("ttft_max")
        return (
            query.from_us <= one.started_at_us < query.until_us
            and all(has_value[name] in values for name, values in words.items() if name != "only")
            and ("only" not in words or any(bits & ONLY[word] for word in words["only"]))
            and (least is None or (one.cost is not None and one.cost >= least))
            and (most is None or (one.cost is not None and one.cost <= most))
            and (first is None or (one.ttft_ms is not None and one.ttft_ms >= first))
            and (last is None or (one.ttft_ms is not None and one.ttft_ms <= last))
            and query.q.lower() in "\n".join((one.route, one.backend, one.model, one.tag, one.error, one.provider_id)).lower()
        )

    return match


def facet(found: Listing, name: str) -> dict[str, int]:
    return {one.value: one.requests for offered in found.facets if offered.name == name for one in offered.values if one.requests}


async def pages(database: Database, actor: Actor, text: str) -> list[UUID]:
    """The ids of all pages in order."""
    found: list[UUID] = []
    after = ""
    for _ in range(60):
        one = await listing(database.engine, actor, asked(f"{text}&after={after}" if after else text))
        found += [row["id"] for row in one.page.rows]
        after = one.page.after
        if not after:
            return found
    raise AssertionError("the pages do not end")


VALUES: Mapping[str, Callable[[UsageRecord], str]] = {
    "team": lambda one: TEAMS[one.team_id],
    "outcome": lambda one: one.outcome,
    "route": lambda one: one.route,
}
QUESTIONS = (
    "range=30d",
    "range=7d&team=growth",
    "range=30d&team=growth&team=search&outcome=completed",
    "range=24h&outcome=failed&outcome=refused&outcome=unknown",
    "range=30d&route=assistant&backend=b",
    "range=30d&only=failed_over",
    "range=30d&only=hedged&only=unpriced&team=search",
    "range=7d&only=missed_objective&outcome=completed",
    "range=30d&cost_min=2.5&cost_max=7",
    "range=30d&ttft_min=100&ttft_max=900&tag=nightly",
    "range=30d&key=key-1-0",
    "range=30d&model=model of b&outcome=cancelled",
    "range=30d&q=100%",
    "range=30d&q=R_loaded&route=code",
    "range=1h",
    "from=2026-11-18T11:07:00Z&to=2026-11-18T12:31:00Z",
    "from=2026-11-05&to=2026-11-16&route=code",
    "range=30d&team=nobody",
)


async def test_it_finds_what_a_reference_finds(database: Database) -> None:
    made = records(350)
    await prepare(database, made)
    for text in QUESTIONS:
        query = asked(text)
        found = await listing(database.engine, EVERYTHING, query)
        matching = [one for one in made if has(query)(one)]
        assert found.counts.matching == len(matching), text
        assert found.counts.total == sum(query.from_us <= one.started_at_us < query.until_us for one in made), text
        expected = sorted(matching, key=lambda one: (-one.started_at_us, -one.id.int))
        assert [row["id"] for row in found.page.rows] == [one.id for one in expected[: explorer_rows.PAGE]], text
        for name, value in (
            ("team", lambda one: TEAMS[one.team_id]),
            ("outcome", lambda one: one.outcome),
            ("route", lambda one: one.route),
        ):
            others = [one for one in made if has(query, leave_out=name)(one)]
            assert facet(found, name) == _counted(others, value), (text, name)
        others = [one for one in made if has(query, leave_out="only")(one)]
        assert facet(found, "only") == {word: n for word, bit in ONLY.items() if (n := sum(bool(marks(o, BOOKED) & bit) for o in others))}
        bars: dict[tuple[int, str], int] = {}
        for one in matching:
            key = (one.started_at_us - one.started_at_us % found.counts.step_us, one.outcome)
            bars[key] = bars.get(key, 0) + 1
        assert found.counts.bars == bars, text
        assert len({start for start, _ in bars}) <= explorer_counts.BARS + 1


def _counted(made: list[UsageRecord], value: Callable[[UsageRecord], str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in made:
        found[value(one)] = found.get(value(one), 0) + 1
    return found


SORTS: Mapping[str, Callable[[UsageRecord], tuple[int, int]]] = {
    "-time": lambda one: (-one.started_at_us, -one.id.int),
    "-cost": lambda one: (-(-1 if one.cost is None else one.cost), -one.id.int),
    "cost": lambda one: (1 << 62 if one.cost is None else one.cost, one.id.int),
    "-ttft": lambda one: (-(-1 if one.ttft_ms is None else one.ttft_ms), -one.id.int),
    "ttft": lambda one: (1 << 62 if one.ttft_ms is None else one.ttft_ms, one.id.int),
    "-duration": lambda one: (-one.duration_ms, -one.id.int),
    "duration": lambda one: (one.duration_ms, one.id.int),
}


async def test_pages_in_every_order_hold_each_request_once(database: Database) -> None:
    made = records(130)
    await prepare(database, made)
    for order, by in SORTS.items():
        found = await pages(database, EVERYTHING, f"range=30d&sort={order}&route=assistant")
        assert found == [one.id for one in sorted(made, key=by) if one.route == "assistant" and one.started_at_us < NOW], order


async def test_rows_that_come_between_two_pages_move_nothing(database: Database) -> None:
    made = records(150)
    await prepare(database, made)
    first = await listing(database.engine, EVERYTHING, asked())
    await write(database.engine, mixed(60, NOW - HOUR_US, NOW, seed=77))
    second = await listing(database.engine, EVERYTHING, asked(f"range=30d&after={first.page.after}"))
    expected = [one.id for one in sorted(made, key=SORTS["-time"])]
    assert [row["id"] for row in (*first.page.rows, *second.page.rows)] == expected[:100]


async def test_a_search_stops_after_so_many_rows_says_so_and_goes_on(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    made = records(250)
    await prepare(database, made)
    monkeypatch.setattr(explorer_rows.page, "__defaults__", (60, explorer_rows.PAGE))
    monkeypatch.setattr(explorer_counts, "LOOKED_AT", 60)
    monkeypatch.setattr(explorer_counts, "ROLLUPS_AT_ONCE", 50)
    query = asked("range=30d&q=nightly&backend=c")
    found = await listing(database.engine, EVERYTHING, query)
    assert found.page.after and found.page.searched_from_us > query.from_us
    assert found.counts.matching_since_us > query.from_us
    seen = [one for one in made if has(query)(one)]
    assert found.counts.matching == sum(one.started_at_us >= found.counts.matching_since_us for one in seen)
    everything = await pages(database, EVERYTHING, "range=30d&q=nightly&backend=c")
    assert everything == [one.id for one in sorted(seen, key=SORTS["-time"])]
    # by team alone nothing is left out, however long the stretch
    query = asked("range=30d&team=growth")
    found = await listing(database.engine, EVERYTHING, query)
    assert (found.counts.matching, found.counts.matching_since_us) == (sum(one.team_id == 1 for one in made), query.from_us)
    assert facet(found, "team") == _counted(made, lambda one: TEAMS[one.team_id])
    routes = next(offered for offered in found.facets if offered.name == "route")
    assert routes.since_us > query.from_us
    assert {one.value: one.requests for one in routes.values} == _counted(
        [one for one in made if one.team_id == 1 and one.started_at_us >= routes.since_us], lambda one: one.route
    )


async def test_who_sees_what(database: Database) -> None:
    made = records(110)
    await prepare(database, made)
    own = Actor(name="m", role=MEMBER, teams={1: MEMBER, 2: MEMBER}, member_id=9)
    both = Actor(name="t", role=TEAM_ADMIN, teams={3: TEAM_ADMIN, 1: MEMBER}, member_id=9)
    nobody = Actor(name="n", role=MEMBER, teams={1: MEMBER}, member_id=8)
    cases: list[tuple[Actor, Matches]] = [
        (Actor(name="t", role=TEAM_ADMIN, teams={2: TEAM_ADMIN}), lambda one: one.team_id == 2),
        (own, lambda one: one.key_id in (11, 21)),
        (both, lambda one: one.team_id == 3 or one.key_id == 11),
        (nobody, lambda one: False),
    ]
    for actor, sees in cases:
        for text in ("range=30d&team=growth&team=search", "range=30d&only=hedged", "range=1h"):
            query = asked(text)
            expected = [one for one in made if sees(one) and has(query)(one)]
            found = await listing(database.engine, actor, query)
            assert found.counts.matching == len(expected), (actor.name, text)
            assert found.counts.total == sum(sees(one) and query.from_us <= one.started_at_us for one in made)
            assert await pages(database, actor, text) == [one.id for one in sorted(expected, key=SORTS["-time"])]
            others = [one for one in made if sees(one) and has(query, leave_out="team")(one)]
            assert facet(found, "team") == _counted(others, lambda one: TEAMS[one.team_id])
    foreign = next(one for one in made if one.team_id == 1)
    assert (await listing(database.engine, cases[0][0], asked(f"range=30d&q={foreign.id}"))).page.rows == []
    assert [row["id"] for row in (await listing(database.engine, EVERYTHING, asked(f"range=1h&q={foreign.id}"))).page.rows] == [foreign.id]


async def test_its_document_names_money_twice_and_teams_as_they_are(database: Database) -> None:
    await prepare(database, records(20))
    query = asked()
    told = document(await listing(database.engine, EVERYTHING, query), query)
    assert {row["team"] for row in told["data"]} <= set(TEAMS.values())
    row = next(row for row in told["data"] if row["cost_nanousd"])
    assert row["cost_usd"] == f"{row['cost_nanousd'] // 10**9}.{row['cost_nanousd'] % 10**9:09d}"
    assert told["after"] is None and told["total"]["requests"] == 20


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ("sort=price", "sort"),
        ("outcome=lost", "outcome"),
        ("only=late", "only"),
        ("after=%%%", "after"),
        ("after=AAAA", "after"),
        ("colour=red", "colour"),
    ],
)
async def test_what_cannot_be_meant_is_named(text: str, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        query = asked(f"range=30d&{text}")
        explorer.order_of(query.sort)
        explorer_rows.place_of(query.after, "-time")
        await wanted(None, query, Sight(None))  # type: ignore[arg-type]
    assert caught.value.param == param


async def test_a_cursor_of_another_order_is_refused(database: Database) -> None:
    await prepare(database, records(120))
    first = await listing(database.engine, EVERYTHING, asked("range=30d&sort=cost"))
    with pytest.raises(InvalidRequest, match="another order"):
        await listing(database.engine, EVERYTHING, asked(f"range=30d&after={first.page.after}"))


async def test_what_got_a_price_since_is_unpriced_no_more(database: Database) -> None:
    from gateway.db.tables import adjustments

    made = records(60)
    await prepare(database, made)
    without = [one for one in made if marks(one, BOOKED) & UNPRICED]
    async with database.engine.begin() as connection:
        values = {"id": UUID(int=1), "usage_id": without[0].id, "delta": 5, "reason": "reprice", "created_at_us": 1}
        await connection.execute(insert(adjustments).values(values))
    found = await listing(database.engine, EVERYTHING, asked("range=30d&only=unpriced"))
    assert facet(found, "only")["unpriced"] == found.counts.matching == len(without) - 1
    assert without[0].id not in [row["id"] for row in found.page.rows]
