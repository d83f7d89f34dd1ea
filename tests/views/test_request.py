"""One request: its row, attempts, bill, budgets and decision add up, and whoever may not see it is told what is told of a missing one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from sqlalchemy import insert

from gateway import people
from gateway.access import ADMIN, COMMAND_LINE, MEMBER, TEAM_ADMIN, Actor
from gateway.catalog import Backend, Catalog, Price, Route
from gateway.db.tables import adjustments, api_keys, budget_windows, decisions, price_book
from gateway.errors import NotFound
from gateway.money.pricing import cost
from gateway.money.records import UsageRecord
from gateway.money.windows import to_us
from gateway.routing.choose import Knobs, choose
from gateway.routing.decision import Decision, encode
from gateway.routing.state import BackendState
from gateway.views.request import decision_document, document, find, wanted_id
from providers.types import Usage
from tests.conftest import Database
from tests.fixtures.ledger import attempt, record, write
from tests.routing.conftest import make_backend, make_features

NOW = to_us(datetime(2026, 11, 18, 13, 31, 7, tzinfo=UTC))
PRICE = Price(id="book:mini", input=150_000_000, output=600_000_000, cache_read=75_000_000)
OWN = Price(id="config:qwen", input=1_000_000, output=1_000_000)
CATALOG = Catalog(
    version="v",
    backends={
        "qwen": Backend(name="qwen", vendor="vllm", model="m", dialect="openai_chat", price=OWN, hourly_nanousd=10**9),
        "mini": Backend(name="mini", vendor="openai", model="m", dialect="openai_chat"),
    },
    routes={"assistant": Route(name="assistant", backends=("qwen", "mini"), ttft_ms=1500.0)},
)
BOSS = Actor(name="key a", role=ADMIN)
USAGE = Usage(input=951, cache_read=1920, output=541)


def decided() -> Decision:
    states = [BackendState(make_backend("qwen", ttft_prior_ms=400.0)), BackendState(make_backend("mini", vendor="groq"))]
    return choose(make_features(ttft_ms=1500.0), states, 10.0, 0.5, Knobs())[1]


def failed_over() -> UsageRecord:
    request_id = uuid4()
    refused = {"status": 503, "error": "overloaded", "usage": Usage(), "began_ms": 1, "ttft_ms": None}
    first = msgspec.structs.replace(attempt(request_id, 1, "qwen", "failed", 0), price_id=OWN.id, worst=1000, **refused)
    second = msgspec.structs.replace(
        attempt(request_id, 2, "mini", "completed", cost(PRICE, USAGE)), price_id=PRICE.id, usage=USAGE, worst=1_045_050, status=200
    )
    second = msgspec.structs.replace(second, began_ms=216)
    whole = record(NOW, [("mini", "completed", cost(PRICE, USAGE))], team_id=1)
    return msgspec.structs.replace(
        whole, id=request_id, attempts=(first, second), usage=USAGE, price_id=PRICE.id, key_id=10, charges=(1, 2)
    )


async def prepare(database: Database, one: UsageRecord) -> None:
    await people.add_team(database.engine, "growth", actor=COMMAND_LINE)
    await people.add_team(database.engine, "search", actor=COMMAND_LINE)
    for kind, scope in (("team", "growth"), ("organisation", "default")):
        await people.set_budget(
            database.engine,
            people.NewBudget(scope_kind=kind, scope=scope, limit_nanousd=10**12, period="month", timezone="Europe/Berlin"),
            actor=COMMAND_LINE,
        )
    async with database.engine.begin() as connection:
        values: dict[str, Any] = {"id": 10, "team_id": 1, "public": "campaign1234", "digest": b"d", "name": "campaign-writer"}
        await connection.execute(insert(api_keys).values(**values, scopes="inference", created_at_us=1, member_id=9))
        for n in (1, 2):
            await connection.execute(insert(budget_windows).values(id=n, budget_id=n, starts_at_us=NOW - 10**9))
        entry = {"id": PRICE.id, "vendor": "openai", "model": "m", "source": "api", "from_us": NOW - 1, "created_at_us": 1}
        await connection.execute(insert(price_book).values(**entry, record=msgspec.json.encode(PRICE).decode()))
        made = {"request_id": one.id, "made_at_us": NOW, "team_id": 1, "record": encode(decided())}
        await connection.execute(insert(decisions).values(**made))
        later = {"id": UUID(int=5), "usage_id": one.id, "delta": 50, "reason": "reprice", "created_at_us": NOW + 5}
        await connection.execute(insert(adjustments).values(**later))
    await write(database.engine, [one])


async def test_it_is_told_whole(database: Database) -> None:
    one = failed_over()
    await prepare(database, one)
    found = await find(database.engine, BOSS, one.id, CATALOG)
    assert found.cost == 611_250 + 50
    assert [(charged.scope_kind, charged.scope, charged.timezone) for charged in found.charged] == [
        ("team", "growth", "Europe/Berlin"),
        ("organisation", "default", "Europe/Berlin"),
    ]
    first, second = found.tried
    assert first.share and first.bill is None and not second.share and second.bill is not None
    assert [(line.what, line.tokens, line.millionths // 10**6) for line in second.bill.lines] == [
        ("input", 951, 142_650),
        ("cache_read", 1920, 144_000),
        ("output", 541, 324_600),
    ]
    told = document(found)
    assert (told["team"], told["key"], told["key_name"], told["cost_usd"], told["adjusted_usd"]) == (
        *("growth", "campaign1234", "campaign-writer"),
        *("0.000611250", "0.000000050"),
    )
    assert (found.row["price_id"], told["price_since_us"]) == (PRICE.id, NOW - 1)
    assert told["failed_over"] and not told["hedged"] and told["decision"] == f"/admin/decisions/{one.id}"
    assert [(a["backend"], a["status"], a["worst_nanousd"], a["began_ms"]) for a in told["attempts"]] == [
        ("qwen", 503, 1000, 1),
        ("mini", 200, 1_045_050, 216),
    ]
    assert sum(a["cost_nanousd"] for a in told["attempts"]) == told["cost_nanousd"]


async def test_its_decision_is_computed_again(database: Database) -> None:
    one = failed_over()
    await prepare(database, one)
    told = decision_document(await find(database.engine, BOSS, one.id, CATALOG))
    assert told["agrees"] and told["differences"] == [] and told["explanation"].endswith("recomputed: agrees")
    assert [row["backend"] for row in told["candidates"]] and told["headline"].startswith(told["candidates"][0]["backend"])
    assert told["record"]["candidates"][0]["backend"] == "qwen" and told["limit_us"] == 1_365_000
    wrong = decided()
    wrong.candidates[0].cost = 1
    from sqlalchemy import update

    async with database.engine.begin() as connection:
        await connection.execute(update(decisions).values(record=encode(wrong)))
    told = decision_document(await find(database.engine, BOSS, one.id, CATALOG))
    assert not told["agrees"] and any("cost" in text for text in told["differences"])
    async with database.engine.begin() as connection:
        await connection.execute(update(decisions).values(record=b"\x00of another version"))
    found = await find(database.engine, BOSS, one.id, CATALOG)
    assert document(found)["decision"] is None
    with pytest.raises(NotFound, match="No decision"):
        decision_document(found)


async def test_who_may_not_see_it_is_told_that_it_is_missing(database: Database) -> None:
    one = failed_over()
    await prepare(database, one)
    seeing = [
        Actor(name="t", role=TEAM_ADMIN, teams={1: TEAM_ADMIN}),
        Actor(name="m", role=MEMBER, teams={1: MEMBER}, member_id=9),
    ]
    for actor in seeing:
        assert (await find(database.engine, actor, one.id, CATALOG)).row["team"] == "growth"
    blind = [
        Actor(name="t", role=TEAM_ADMIN, teams={2: TEAM_ADMIN}),
        Actor(name="m", role=MEMBER, teams={1: MEMBER}, member_id=8),
        Actor(name="m", role=MEMBER, teams={2: MEMBER}, member_id=9),
        Actor(name="m", role=MEMBER, teams={1: MEMBER}),
    ]
    for actor in blind:
        with pytest.raises(NotFound) as hidden:
            await find(database.engine, actor, one.id, CATALOG)
        assert hidden.value.message == _missing(one.id)
    with pytest.raises(NotFound) as absent:
        await find(database.engine, BOSS, UUID(int=3), CATALOG)
    assert absent.value.message == _missing(UUID(int=3))
    with pytest.raises(NotFound):
        wanted_id("nonsense")


def _missing(request: UUID) -> str:
    return f"There is no request '{request}' here: its row appears at the latest a second after the answer."
