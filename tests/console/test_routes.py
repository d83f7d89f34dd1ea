"""Routes: who may read and who may change them, errors beside their fields, and what would happen without calling anybody."""

from __future__ import annotations

from typing import Any

from tests.console.checks import sound
from tests.console.conftest import Site
from tests.console.test_console import paths

FORM = {"backends": "far", "ttft_ms": "900", "cache": "never", "max_attempts": "2", "labels": ""}


async def token(browser: Any) -> str:
    return str((await browser.get("/console/routes")).text.split('name="csrf" value="')[1].split('"')[0])


async def test_a_route_is_made_changed_and_deleted_by_plain_forms(site: Site) -> None:
    browser = await site.signed_in()
    sound(await browser.get("/console/routes/-"), paths(site))
    csrf = await token(browser)
    made = await browser.post("/console/routes/-", data={**FORM, "csrf": csrf, "name": "team/fast"})
    assert (made.status_code, made.headers["location"]) == (303, "/console/routes/team/fast"), made.text
    assert site.parts.catalog.routes["team/fast"].backends == ("far",) and site.parts.catalog.routes["team/fast"].ttft_ms == 900.0
    page = await browser.get("/console/routes/team/fast")
    assert "Change it" in page.text and "Made over the API" in page.text and 'value="900' in page.text
    changed = await browser.post("/console/routes/team/fast", data={**FORM, "csrf": csrf, "ttft_ms": "", "labels": ""})
    assert changed.status_code == 303 and site.parts.catalog.routes["team/fast"].ttft_ms is None
    again = await browser.post("/console/routes/-", data={**FORM, "csrf": csrf, "name": "team/fast"})
    assert again.status_code == 409 and "there is a route of this name" in again.text
    listed = await browser.get("/console/routes")
    sound(listed, [*paths(site), "/console/routes/{team}/{name}"])
    assert "made over the API" in listed.text and "tollway.toml" in listed.text
    gone = await browser.post("/console/routes/team/fast", data={"csrf": csrf, "do": "delete"})
    assert gone.status_code == 303 and "team/fast" not in site.parts.catalog.routes


async def test_what_is_wrong_stands_beside_its_field_and_nothing_is_lost(site: Site) -> None:
    browser = await site.signed_in()
    csrf = await token(browser)
    for fields, says in (
        ({"name": "x", "ttft_ms": "soon"}, "Write a number."),
        ({"name": "assistant"}, "stands in tollway.toml"),
        ({"name": "x", "backends": ""}, "is not a backend"),
        ({"name": "bad name?#", "ttft_ms": ""}, "letters, digits"),
    ):
        answer = await browser.post("/console/routes/-", data={**FORM, "csrf": csrf, **fields})
        page = sound(answer, paths(site))
        assert answer.status_code in (400, 409) and says in answer.text, (fields, answer.text)
        assert 'aria-invalid="true"' in answer.text or 'class="bad"' in answer.text
        assert page.wrong == [] and f'value="{fields["name"]}"' in answer.text
    assert set(site.parts.catalog.routes) == {"assistant"}


async def test_a_team_reads_routes_and_tries_prompts_but_changes_none(site: Site) -> None:
    team = await site.signed_in("team_admin")
    page = await team.get("/console/routes/assistant")
    sound(page, paths(site))
    assert "What would happen" in page.text and "Change it" not in page.text and "New route" not in (await team.get("/console/routes")).text
    csrf = await token(team)
    told = await team.post("/console/trial/assistant", data={"csrf": csrf, "prompt": "<script>alert(1)</script>", "max_tokens": "50"})
    sound(told, paths(site))
    assert told.status_code == 200 and "Chosen" in told.text and "near" in told.text and "<script>alert" not in told.text
    assert all(state.in_flight == 0 for state in site.parts.router.states(site.parts.catalog).values())
    wrong = await team.post("/console/trial/assistant", data={"csrf": csrf, "prompt": "x", "max_tokens": "-1"})
    assert wrong.status_code == 400 and 'aria-invalid="true"' in wrong.text
    assert (await team.post("/console/trial/nobody", data={"csrf": csrf, "prompt": "x"})).status_code == 404
    assert (await team.post("/console/routes/-", data={**FORM, "csrf": csrf, "name": "x"})).status_code == 403
    assert (await team.get("/console/routes/-")).status_code == 404
    assert (await (await site.signed_in("finance")).get("/console/routes")).status_code == 403


async def test_a_route_that_refuses_everything_says_so(site: Site) -> None:
    from gateway import operations
    from gateway.access import COMMAND_LINE

    for name in ("near", "far"):
        await operations.drain(site.parts.engine, COMMAND_LINE, site.parts.file, name, empty_routes=True)
    await site.parts.snapshot.load()
    browser = await site.signed_in()
    assert "Refuses every request" in (await browser.get("/console/routes")).text
    page = await browser.get("/console/routes/assistant")
    assert "Every request for this route is refused." in page.text
    told = await browser.post("/console/trial/assistant", data={"csrf": await token(browser), "prompt": "x"})
    assert "drained by an operator" in told.text and "Drained" in told.text
