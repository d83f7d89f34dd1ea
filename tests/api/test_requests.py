"""Requests and decisions over HTTP: a listing, one row, one decision, for those who may see them; tests/views has what they say."""

from __future__ import annotations

import time

from sqlalchemy import insert

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.auth import load_secrets
from gateway.db.tables import decisions
from gateway.routing.decision import encode
from gateway.settings import Settings
from tests.api.test_admin import Admin, ops  # noqa: F401  (a fixture)
from tests.conftest import Database
from tests.fixtures.ledger import mixed, write
from tests.views.test_request import decided

HOUR_US = 3_600_000_000


async def test_a_listing_leads_to_a_request_and_its_decision(ops: Admin, database: Database) -> None:  # noqa: F811
    for name in ("search", "ads"):
        await people.add_team(database.engine, name, actor=COMMAND_LINE)
    now = time.time_ns() // 1000
    records = mixed(40, now - HOUR_US, now)
    await write(database.engine, records)
    secret = load_secrets(Settings(storage=database.storage))[0]
    search, _ = await people.add_key(database.engine, secret, people.NewKey(team="search", scopes=("team_admin",)), actor=COMMAND_LINE)
    status, told = await ops.call("GET", "/admin/requests?range=24h&outcome=completed")
    assert status == 200 and told["matching"]["requests"] == len(told["data"]) == sum(one.outcome == "completed" for one in records)
    status, mine = await ops.call("GET", "/admin/requests?range=24h", key=search)
    assert status == 200 and {row["team"] for row in mine["data"]} == {"search"}
    assert [value["value"] for value in mine["facets"][0]["values"]] == ["search"]
    chosen, foreign = mine["data"][0]["id"], next(str(one.id) for one in records if one.team_id != 2)
    async with database.engine.begin() as connection:
        for one in records:
            made = {"request_id": one.id, "made_at_us": now, "team_id": one.team_id, "record": encode(decided())}
            await connection.execute(insert(decisions).values(**made))
    for key in (ops.key, search):
        status, row = await ops.call("GET", f"/admin/requests/{chosen}", key=key)
        assert (status, row["id"], row["team"]) == (200, chosen, "search")
        status, why = await ops.call("GET", row["decision"], key=key)
        assert status == 200 and why["agrees"] and why["headline"]
    for path in ("requests", "decisions"):
        assert (await ops.call("GET", f"/admin/{path}/{foreign}"))[0] == 200
        hidden = await ops.call("GET", f"/admin/{path}/{foreign}", key=search)
        absent = await ops.call("GET", f"/admin/{path}/{foreign[:-4]}0000", key=search)
        assert hidden[0] == absent[0] == 404
        assert hidden[1]["error"]["message"].replace(foreign, "X") == absent[1]["error"]["message"].replace(f"{foreign[:-4]}0000", "X")
        assert (await ops.call("GET", f"/admin/{path}/nonsense"))[0] == 404
    for wrong, param in (("colour=red", "colour"), ("outcome=banana", "outcome"), ("cost_min=much", "cost_min"), ("after=x", "after")):
        status, told = await ops.call("GET", f"/admin/requests?{wrong}")
        assert status == 400 and told["error"]["param"] == param, told
