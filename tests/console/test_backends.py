"""The pages of backends: what each role sees, orders by plain forms, live parts that stand by themselves."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import insert

from gateway.backend_watch import Event, Minute
from gateway.db.rollup_tables import rollups
from gateway.db.tables import owned_hours
from gateway.money.ledger import HOUR_US
from gateway.settings import BackendSettings
from providers.figures import Figures
from tests.console.checks import seen, sound
from tests.console.conftest import Site
from tests.console.test_console import paths


async def csrf(browser: Any, path: str = "/console/backends") -> str:
    return str((await browser.get(path)).text.split('name="csrf" value="')[1].split('"')[0])


async def post(browser: Any, path: str, **fields: str) -> Any:
    return await browser.post(path, data={"csrf": await csrf(browser), **fields})


async def test_an_admin_sees_everything_and_a_team_state_and_latency(site: Site) -> None:
    browser = await site.signed_in()
    page = await browser.get("/console/backends")
    sound(page, paths(site))
    for word in ("near", "far", "Healthy", "In flight", "USD/M tok", "Availability", "Drain"):
        assert word in page.text, word
    one = await browser.get("/console/backends/near")
    sound(one, paths(site))
    assert "When it was not up" in one.text and "Worker" in one.text and "assistant" in one.text
    team = await site.signed_in("team_admin")
    for path in ("/console/backends", "/console/backends/near", "/console/backends/-/live"):
        told = await team.get(path)
        sound(told, paths(site)) if "/-/" not in path else None
        assert told.status_code == 200 and "Healthy" in told.text
        for word in ("In flight", "USD/M", "Drain", "Availability", "Workers"):
            assert word not in told.text, (path, word)
    assert (await team.post("/console/backends/near/drain", data={"csrf": await csrf(team, "/console/overview")})).status_code == 403
    assert (await browser.get("/console/backends/nobody")).status_code == 404


async def test_a_backend_is_drained_and_back_by_plain_forms(site: Site) -> None:
    browser = await site.signed_in()
    answer = await post(browser, "/console/backends/near/drain", note="new <b>kernel</b>")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/backends")
    page = await browser.get("/console/backends")
    assert "Drained" in page.text and "new &lt;b&gt;kernel&lt;/b&gt;" in page.text and "Undrain" in page.text
    assert "It is the last one of assistant" in page.text, "the dialog of the other one says what would happen"
    refused = await post(browser, "/console/backends/far/drain")
    sound(refused, paths(site))
    assert refused.status_code == 409 and "the route assistant would have no backend" in refused.text
    assert (await post(browser, "/console/backends/far/drain", empty_routes="yes")).status_code == 303
    assert site.parts.standing.made.drained == {"near", "far"}
    for name in ("near", "far"):
        assert (await post(browser, f"/console/backends/{name}/undrain")).status_code == 303
    assert site.parts.standing.made.drained == frozenset()
    probed = await post(browser, "/console/backends/near/probe")
    assert probed.status_code == 200 and "near answers." in probed.text
    assert (await post(browser, "/console/backends/near/explode")).status_code == 404


async def test_what_was_seen_is_drawn(site: Site) -> None:
    parts, now = site.parts, time.time()
    parts.watch.look(parts.router.snapshot(time.monotonic()), now)
    mine = parts.watch.backends["near"]
    minute = Minute(
        int(now) // 60, 40, 4, 900, 4000, 2_000_000, 0, 30, 27, {"upstream_timeout": 4}, {180: 30}, {190: 30}, {"up": 30.0, "ejected": 10.0}
    )
    mine.minutes.clear()
    mine.minutes.append(minute)
    mine.events.append(Event("ejected", now - 40, None, "upstream_timeout"))
    parts.router.states(parts.catalog)["near"].health.ejections = 1
    parts.router.states(parts.catalog)["near"].health.ejected_until = time.monotonic() + 100
    browser = await site.signed_in()
    page = await browser.get("/console/backends")
    sound(page, paths(site))
    assert re.search(r"Ejected [4-9]\d s, probe in 1 min (40|[0-3]\d) s", page.text), "it may be a busy machine that asks"
    assert 'class="db dbw"' in page.text and 'class="ov"' in page.text, "seen is far over what was predicted"
    assert (
        'class="dn"' in page.text
        and "inside prediction <b>90\u00a0%</b>" in page.text
        and "Probe now" in page.text
        and "$0.500" in page.text
    )
    assert 'class="cnt bad">1<' in page.text, "the side bar says that it needs a hand"
    one = await browser.get("/console/backends/near?span=15")
    assert "upstream timeout" in one.text and "still" in one.text
    assert (await browser.get("/console/backends?span=7")).status_code == 400


@pytest.mark.parametrize("part", ["live", "engines"])
async def test_live_parts_stand_alone(site: Site, part: str) -> None:
    browser = await site.signed_in()
    answer = await browser.get(f"/console/backends/-/{part}")
    assert answer.status_code == 200 and "<html" not in answer.text and seen(answer.text).wrong == []
    assert (await browser.get("/console/backends/-/nothing")).status_code == 404


async def _closed_hours(site: Site, backend: str) -> None:
    """Alike whatever the hour is: 400,000 micro-USD owed, 300,000 of them shares of 450,000 tokens."""
    now_us = time.time_ns() // 1000
    async with site.parts.engine.begin() as connection:
        for hour_us in (now_us - now_us % HOUR_US - HOUR_US, now_us - now_us % HOUR_US):
            hour = {"backend": backend, "hour_us": hour_us, "owed": 400_000_000, "covered_us": HOUR_US, "written": 1}
            await connection.execute(insert(owned_hours).values(hour))
            row = {"bucket_us": hour_us, "org_id": 1, "team_id": 1, "key_id": 1, "backend": backend, "vendor": "v", "model": "m", "tag": ""}
            spent = {"route": "assistant", "outcome": "completed", "cost": 300_000_000, "input_tokens": 300_000, "output_tokens": 150_000}
            await connection.execute(insert(rollups).values(row | spent))
            idle = {"route": "", "outcome": "idle", "cost": 100_000_000, "input_tokens": 0, "output_tokens": 0}
            await connection.execute(insert(rollups).values(row | idle))


async def test_an_engine_has_a_card_and_the_api_says_the_same(site: Site) -> None:
    mine = BackendSettings(name="mine", vendor="vllm", model="m", base_url="http://127.0.0.1:9/v1", hourly_usd="2.49")
    file = site.parts.file
    await site.application.reload(replace(file, backends=(*file.backends, mine)))
    load, now = site.parts.router.states(site.parts.catalog)["mine"].engine, time.monotonic()
    said = Figures(running=41, waiting=3, batch=40, kv_blocks_used=3870, kv_blocks_free=1250, kv_blocks_shared=1790, preemptions=7)
    load.said(now, now + 600.0, said, (0, 0))
    await _closed_hours(site, "mine")
    browser = await site.signed_in()
    page = await browser.get("/console/backends")
    sound(page, paths(site))
    for words in (
        "shared prefix, 1,790",
        "3,870 of 5,120 in use, 1,790 of them shared",
        "7 in all",
        "$2.49 an hour",
        "Idle booked",
        "$0.889 / M tok",
        "$0.667 / M tok",
        "It was busy 75\u00a0% of the last",
    ):
        assert words in page.text, words
    assert page.text.count('class="s"') == 56 and "GPU</dt><dd>not told" in page.text
    headers = {"authorization": f"Bearer {await site.key('ops', 'admin')}"}
    rows = (await site.browser().get("/admin/backends", headers=headers)).json()["data"]
    row = next(one for one in rows if one["backend"] == "mine")
    assert (row["engine"]["figures"]["kv_blocks_shared"], row["engine"]["figures"]["batch"]) == (1790, 40)
    costs = [row["owned"][f"{name}_usd_per_million"] for name in ("last_hour", "full", "busy")]
    assert costs == ["0.888888889", "0.888888889", "0.666666667"] and row["owned"]["utilisation"] == "0.7500"
    assert row["engine"]["lately"] is None, "it was not read for a minute"


async def test_a_page_of_no_backends_says_what_to_do(site: Site) -> None:
    from gateway.settings import Settings

    await site.application.reload(Settings(storage=site.parts.file.storage))
    page = await (await site.signed_in()).get("/console/backends")
    sound(page, paths(site))
    assert "No backend yet" in page.text
