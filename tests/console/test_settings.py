"""The settings page: what is in force and why newer settings are not, to admins; prices to finance too; no secret to anybody."""

from __future__ import annotations

import time

from msgspec.structs import replace

from gateway import reloads
from gateway.settings import BackendSettings, Settings
from tests.console.checks import sound
from tests.console.conftest import Site
from tests.console.test_console import paths


async def test_an_admin_sees_the_state_of_the_file_and_finance_prices_alone(site: Site) -> None:
    file = site.parts.file.state / "tollway.toml"
    file.write_text("[server]\n")
    source = reloads.source_of(file)
    reloads.write(site.parts.file.state, reloads.Outcome(source=source, settings=site.parts.standing.settings, since=time.time()))
    browser = await site.signed_in()
    page = await browser.get("/console/settings")
    sound(page, paths(site))
    for word in (source.sha256, str(file), "In force", "none since the start", "Single sign-on", "$1.000", "config:near"):
        assert word in page.text, word
    assert "reads otherwise by now" not in page.text
    file.write_text("[server]\nprt = 1\n")
    assert "reads otherwise by now" in (await browser.get("/console/settings")).text
    finance = await (await site.signed_in("finance")).get("/console/settings")
    sound(finance, paths(site))
    assert "Prices" in finance.text and source.sha256 not in finance.text and "Reload" not in finance.text
    assert (await (await site.signed_in("team_admin")).get("/console/settings")).status_code == 403


async def test_a_refused_reload_is_told_with_its_reason(site: Site) -> None:
    state = site.parts.file.state
    before = reloads.Outcome(source=reloads.Source(), settings=site.parts.standing.settings, since=time.time())

    def refuse(request: str) -> None:
        why = 'server.<b>prt</b>: unknown setting. Did you mean "port"?'
        reloads.write(state, replace(before, refused=why, tried=time.time(), ids=(request,)))

    site.parts.standing.ask_reload = refuse
    browser = await site.signed_in()
    csrf = (await browser.get("/console/settings")).text.split('name="csrf" value="')[1].split('"')[0]
    answer = await browser.post("/console/settings/reload", data={"csrf": csrf})
    sound(answer, paths(site))
    assert answer.status_code == 422 and "server.&lt;b&gt;prt&lt;/b&gt;: unknown setting." in answer.text
    site.parts.standing.ask_reload = None
    answer = await browser.post("/console/settings/reload", data={"csrf": csrf})
    assert answer.status_code == 503 and "Not reloaded." in answer.text


async def test_missing_prices_are_named(site: Site) -> None:
    file = site.parts.file
    unpriced = BackendSettings(name="odd", vendor="vllm", model="m", base_url="http://127.0.0.1:9/v1")
    await site.application.reload(Settings(storage=file.storage, backends=(*file.backends, unpriced), routes=file.routes))
    page = await (await site.signed_in()).get("/console/settings")
    assert "No price: odd." in page.text and "unpriced" in page.text
