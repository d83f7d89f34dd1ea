"""The console in a browser: one way through it, then every page that a link leads to, at two sizes, light and dark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")

from playwright.sync_api import Browser, Route

from tests.browser.browsing import CHROMIUM, DESKTOP, PHONE, SHAPES, WCAG, Browsing, chromium, reachable
from tests.browser.site import BACKENDS, HOSTILE, RIVAL, admin_key, ask, filled
from tests.e2e.harness import Gateway

BERLIN = ZoneInfo("Europe/Berlin")  # where the browsers of these tests are
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="chromium is not here: apt-get install chromium")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder: Path = tmp_path_factory.mktemp("console")
    with filled(folder) as made:
        yield made


@pytest.fixture(scope="module")
def browser(gateway: Gateway) -> Iterator[Browser]:  # after it: what is made of the past wants a loop of its own
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def browsing(browser: Browser, gateway: Gateway) -> Browsing:
    """An admin's window."""
    made = Browsing(browser, gateway.url)
    made.sign_in(admin_key(gateway))
    return made


def test_the_session_s_cookie_is_closed_to_scripts_and_to_other_sites(browsing: Browsing) -> None:
    (cookie,) = [one for one in browsing.context.cookies() if "session" in str(one.get("name"))]
    assert (cookie.get("httpOnly"), cookie.get("sameSite"), cookie.get("secure")) == (True, "Lax", False)
    assert browsing.page.evaluate("() => document.cookie").find(str(cookie.get("value"))) == -1


def test_a_team_a_key_a_budget_a_request_and_what_it_cost(browsing: Browsing) -> None:
    """One way through the console: what a new team does on its first day, to the end of its money."""
    page = browsing.page
    browsing.visit("/console/teams")
    page.get_by_role("button", name="New team").first.click()
    page.fill("dialog[open] input[name=name]", "flow")
    page.get_by_role("button", name="Make team").click()
    page.wait_for_url("**/console/teams/flow*")
    page.get_by_role("button", name="New key").first.click()
    page.fill("dialog[open] input[name=name]", "web")
    page.get_by_role("button", name="Make key").click()
    secret = page.locator("#secret").inner_text().strip()
    assert secret.startswith("tw-") and len(secret) > 40
    page.get_by_label("I have stored it").check()
    page.get_by_role("button", name="Close").first.click()
    page.wait_for_url("**/console/teams/flow/keys/*")
    assert secret not in page.content(), "it was shown once"

    would = f"/console/playground?route=assistant&key={urlsplit(page.url).path.rpartition('/')[2]}&message=hello"
    set_budget(browsing, "0.01")  # what begins before a worker knows of a budget is not charged to it
    until(lambda: browsing.visit(would) == 200 and "budgets of this key have" in page.locator("#would").inner_text(), "it is known")
    assert send(browsing, "Why is the sky blue?") == "done"
    assert "toll road" in page.locator("#answer").inner_text()
    request = page.locator("#a-link").get_attribute("href")
    assert request is not None and request.startswith("/console/requests/")
    main = page.locator("main")
    until(lambda: browsing.visit(request) == 200 and "same choice" in main.inner_text(), "the row of the request and its decision")
    shown = main.inner_text()
    assert "Completed" in shown and "flow" in shown and "predicted" in shown, shown
    answered = page.locator("table.dec tbody tr", has_text="Chosen")
    assert answered.count() == 1 and any(name in answered.inner_text() for name in BACKENDS)

    browsing.visit("/console/requests?team=flow")
    page.locator(f"a[href^='{request}']").first.click()
    page.wait_for_url(f"**{request}*")

    until(
        lambda: browsing.visit("/console/reports?team=flow&range=24h") == 200 and "flow" in page.locator("main").inner_text(), "the report"
    )
    with page.expect_download() as coming:
        page.locator("a[download]").first.click()
    rows = Path(coming.value.path()).read_text(encoding="utf-8").splitlines()
    assert len(rows) >= 2 and "nanousd" in rows[0] and any("flow" in row for row in rows[1:])
    assert coming.value.suggested_filename.endswith(".csv") and " in tollway-" in page.locator("#works").inner_text()
    slow_work_can_be_cancelled(browsing)

    set_budget(browsing, "0.0000001")
    until(lambda: send(browsing, "And at night?") == "refused", "a refusal, once the budget is known")
    assert "budget" in page.locator("#answer").inner_text().lower()
    browsing.visit("/console/budgets")
    assert "spent" in page.locator("tr", has_text="flow").first.inner_text().lower()
    assert browsing.said == []


def slow_work_can_be_cancelled(browsing: Browsing) -> None:
    """On the report: an answer that does not come is waited for in a row of its own, and a click ends the waiting."""
    page = browsing.page
    held: list[Route] = []
    page.route("**/reports/csv*", lambda route: held.append(route))  # noqa: PLW0108 - asks for the parameters of what it is given
    page.locator("a[download]").first.click()
    row = page.locator(".work")
    assert row.get_by_role("progressbar").count() == 1 and "database" in row.inner_text()
    row.get_by_role("button", name="Cancel").click()
    row.get_by_text("Cancelled, nothing was saved.").wait_for()
    page.unroute("**/reports/csv*")
    assert len(held) == 1
    row.get_by_role("button", name="Close").click()
    assert row.count() == 0
    page.evaluate(  # the link that a report of more than 100,000 requests has in place of its sum
        """() => { const link = document.createElement("a"), place = document.getElementById("checked");
            link.dataset.long = "Adding up the ledger"; link.dataset.href = "/console/reports/check?team=flow&range=24h";
            link.href = "#"; link.textContent = "Check"; place.replaceChildren(link); }"""
    )
    page.locator("#checked a").click()
    page.locator("#checked", has_text="Rows sum to the ledger").wait_for()
    assert row.count() == 0, "its row goes when its result stands on the page"


def test_keys_do_what_the_help_says_until_they_are_switched_off(browsing: Browsing) -> None:
    page = browsing.page
    browsing.visit("/console/overview")
    dialogs, custom = page.locator("dialog[open]"), page.locator("dialog#custom[open]")

    def escape() -> None:
        page.keyboard.press("Escape")
        dialogs.wait_for(state="detached")

    page.keyboard.press("?")
    help_ = page.locator("dialog#help[open]")
    help_.wait_for()
    assert all(word in help_.inner_text() for word in ("Custom range", "Load the page again", "Send, in the playground"))
    page.keyboard.press("t")
    assert custom.count() == 0, "a dialog is open: the key is its own"
    escape()
    page.keyboard.press("t")  # at once, also where the focus has not left the closed dialog yet
    custom.wait_for()
    escape()
    page.evaluate("() => { window.before = 1; }")
    page.keyboard.press("r")
    page.wait_for_function("() => window.before === undefined && document.readyState === 'complete'")

    browsing.visit("/console/requests")
    page.fill("input#q", "")
    page.keyboard.type("tr?")
    assert page.input_value("input#q") == "tr?" and dialogs.count() == 0, "what is typed into a field is text"

    browsing.visit("/console/playground")
    page.select_option("select[name=key]", page.locator("select[name=key] option", has_text="growth").first.get_attribute("value"))
    page.fill("textarea[name=message]", "Why is the sky blue?")
    page.keyboard.press("Control+Enter")
    until(lambda: page.locator("#state").inner_text() == "done", "an answer")

    page.locator("h1").click()
    page.keyboard.press("?")
    help_.wait_for()
    page.get_by_label("Keys are on").uncheck()
    escape()
    page.keyboard.press("?")
    page.fill("textarea[name=message]", "And at night?")
    page.keyboard.press("Control+Enter")
    assert dialogs.count() == 0 and page.locator("#state").inner_text() == "done" and page.locator("#stop").is_hidden()
    page.evaluate("() => document.querySelector('dialog#help').showModal()")
    page.get_by_label("Keys are on").check()
    assert browsing.said == []


def test_what_cannot_be_loaded_is_said_and_what_stands_is_kept(browsing: Browsing) -> None:
    page, tick = browsing.page, "() => document.body.dispatchEvent(new CustomEvent('tollway:tick'))"
    browsing.visit("/console/overview")
    live, figures = page.locator(".live"), page.locator("#main .kpi")
    shown = figures.count()
    page.route("**/overview/-/**", lambda route: route.abort())
    page.evaluate(tick)
    page.locator(".live.stale", has_text="from ").wait_for()
    assert figures.count() == shown > 0
    page.unroute("**/overview/-/**")
    page.evaluate(tick)
    page.locator(".live:not(.stale)", has_text="Live, 10 s").wait_for()

    page.route("**/overview?*", lambda route: route.abort())
    page.get_by_role("link", name="7 d").click()
    alert = page.locator("#works [role=alert]")
    alert.wait_for()
    assert "What is shown is from" in alert.inner_text() and page.locator("#main[aria-busy]").count() == 0 and live.count() == 1
    page.unroute("**/overview?*")
    alert.get_by_role("button", name="Try again").click()
    page.wait_for_url("**/overview?range=7d*")
    page.locator("nav [aria-current]", has_text="7 d").wait_for()
    assert browsing.said and all("ERR_FAILED" in one or ": htmx:" in one for one in browsing.said), browsing.said
    browsing.said.clear()


def set_budget(browsing: Browsing, usd: str) -> None:
    """The team's, by the form."""
    page = browsing.page
    browsing.visit("/console/budgets")
    page.get_by_role("button", name="Set a budget").first.click()
    page.select_option("dialog[open] select[name=scope_kind]", "team")
    page.fill("dialog[open] input[name=scope]", "flow")
    page.fill("dialog[open] input[name=usd]", usd)
    page.fill("dialog[open] input[name=timezone]", "UTC")
    page.get_by_role("button", name="Set budget").click()
    page.wait_for_url("**/console/budgets/*")
    assert "flow" in page.locator("body").inner_text()


def send(browsing: Browsing, message: str) -> str:
    """From the playground, with the team's key; how it ended."""
    page = browsing.page
    browsing.visit("/console/playground")
    page.select_option("select[name=route]", "assistant")
    named = page.locator("select[name=key] option", has_text="flow, web").get_attribute("value")
    page.select_option("select[name=key]", named)
    page.fill("textarea[name=message]", message)
    page.fill("input[name=max_tokens]", "60")
    page.get_by_role("button", name="Send").click()
    state = page.locator("#state")
    until(lambda: state.inner_text() in ("done", "refused"), "an end of the answer")
    return state.inner_text()


def until(condition: Callable[[], object], what: str, within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def test_every_page_is_quiet_fits_and_can_be_read_by_everybody(browsing: Browsing) -> None:
    """Hostile names and prompts are in the data. axe sees every other page on a desktop in light, the others on a phone in dark: `make
    screenshots` shows it all of them in both sizes and both schemes."""
    found, wide = [], []
    for number, (kind, path) in enumerate(reachable(browsing)):
        assert not browsing.ran(), f"{path}: a hostile text ran"
        both = [(DESKTOP, "light"), (PHONE, "dark")]
        for (width, height), scheme in both if number % 2 else reversed(both):
            browsing.size(width, height, scheme)
            if not browsing.fits():
                wide.append(f"{kind} at {width}")
        found += [f"{kind} at {width}, {scheme}: {one}" for one in browsing.violations(WCAG)]
    assert found == []
    assert wide == []
    assert browsing.said == []


PASSWORD = "a bridge that asks for no toll"
OWN = ("overview", "requests", "requests/{}", "backends", "backends/{}", "routes", "routes/{}", "teams", "teams/{}", "playground")
MANAGED = ("reports", "reports/statement", "budgets", "budgets/{}", "audit", "teams/{}/members", "teams/{}/keys/{}")
SPEND = ("overview", "reports", "reports/statement", "teams", "teams/{}", "budgets", "budgets/{}", "settings", "account")


def test_somebody_who_is_invited_signs_in_and_sees_the_own_team_alone(browser: Browser, browsing: Browsing, gateway: Gateway) -> None:
    """By a link that works once; then every page as a member, and out again."""
    browsing.visit("/console/teams/growth/members")
    browsing.page.get_by_role("button", name="Invite").first.click()
    browsing.page.fill("dialog[open] input[name=email]", "Maria@Example.org")
    browsing.page.fill("dialog[open] input[name=name]", HOSTILE)
    browsing.page.locator("dialog[open] button[type=submit]").click()
    link = browsing.page.locator("#secret").inner_text().strip()
    assert link.startswith(f"{gateway.url}/console/welcome?link=")
    browsing.visit("/console/teams/growth/members")
    row = browsing.page.locator("tr", has_text="maria@example.org")
    assert "not set yet" in row.inner_text() and HOSTILE in row.inner_text() and not browsing.ran()

    maria = Browsing(browser, gateway.url)
    maria.visit(link)
    assert maria.violations(WCAG) == []
    for name in ("password", "again"):
        maria.page.fill(f"input[name={name}]", PASSWORD)
    maria.page.click("main button[type=submit]")
    maria.page.wait_for_url("**/console/overview*")
    assert "maria@example.org" in maria.page.locator(".who").inner_text() and "growth" in maria.page.locator("main").inner_text()
    made = gateway.admin("POST", "/admin/keys", {"team": "growth", "name": HOSTILE, "member": "maria@example.org"})["secret"]
    until(lambda: ask(gateway, made, HOSTILE, HOSTILE, tag=HOSTILE) == 200, "her key is known")
    until(lambda: any(path.startswith("/console/requests/") for path in asked_for(maria)), "her own request")
    kinds, standing = walked(maria, (RIVAL, gateway.keys[RIVAL][3:15]), axe=True)
    assert {*OWN, "account", "teams/{}/keys/{}"} <= kinds and not standing, (kinds, standing)

    maria.size(*DESKTOP, "light")
    maria.visit("/console/overview")
    maria.page.locator(".foot button[type=submit]").click()
    maria.page.wait_for_url("**/console/login*")
    assert maria.visit("/console/overview") == 200 and "/console/login" in maria.page.url
    maria.visit(link)
    for name in ("password", "again"):
        maria.page.fill(f"input[name={name}]", "another that somebody else would set")
    maria.page.click("main button[type=submit]")
    assert "used already" in maria.page.get_by_role("alert").inner_text()
    maria.visit("/console/login")
    maria.page.fill("input[name=email]", "maria@example.org")
    maria.page.fill("input[name=password]", PASSWORD)
    maria.page.click("main button[type=submit]")
    maria.page.wait_for_url("**/console/overview*")
    assert maria.said == []
    maria.context.close()


def asked_for(browsing: Browsing) -> list[str]:
    """The links of the request explorer."""
    browsing.visit("/console/requests")
    return browsing.links()


def walked(browsing: Browsing, words: tuple[str, ...], *, axe: bool) -> tuple[set[str], set[str]]:
    """Every page that links lead to, each kind once: nothing ran, nothing broke, and axe is content where it is
    asked. (the kinds, those where a word stands)"""
    kinds, standing, found = set(), set(), []
    browsing.size(*PHONE, "light")  # a third of the work of painting it
    for kind, path in reachable(browsing):
        kinds.add(kind)
        if browsing.standing(words):
            standing.add(kind)
        found += [f"{path}: a hostile text ran"] * browsing.ran()
        found += [f"{path}: {one}" for one in (browsing.violations(SHAPES) if axe else ())]
    assert found + browsing.said == []
    return kinds, standing


def test_every_page_as_the_admin_of_a_team_and_as_finance(browser: Browser, gateway: Gateway) -> None:
    made = {scope: gateway.admin("POST", "/admin/keys", {"team": "growth", "scopes": [scope]}) for scope in ("team_admin", "finance")}
    windows = {scope: Browsing(browser, gateway.url) for scope in made}
    for scope, window in windows.items():
        window.sign_in(made[scope]["secret"])
    of_rival = (RIVAL, gateway.keys[RIVAL][3:15])
    kinds, standing = walked(windows["team_admin"], of_rival, axe=True)
    assert {*OWN, *MANAGED, "account"} <= kinds and not standing, (kinds, standing)
    kinds, standing = walked(windows["finance"], of_rival, axe=False)  # pages that others have as well
    assert {*SPEND, "teams/{}/keys/{}"} <= kinds, kinds
    assert {"overview", "reports", "teams", "budgets"} <= standing, "who sees all meets the words: they are there to be found"
    for window in windows.values():
        window.context.close()


def test_a_chart_that_is_dragged_over_sets_the_range(browsing: Browsing) -> None:
    page = browsing.page
    browsing.size(*DESKTOP, "light")
    for path in ("/console/overview?range=24h", "/console/reports?range=24h"):
        browsing.visit(path)
        figure = page.locator("figure[data-chart]", has=page.locator(".u-over")).first
        figure.scroll_into_view_if_needed()
        box = figure.locator(".u-over").bounding_box()
        assert box is not None
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + box["width"] * 0.25, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.4, middle, steps=3)
        page.mouse.move(box["x"] + box["width"] * 0.75, middle, steps=3)
        page.mouse.up()
        page.wait_for_url("**from=*")
        asked = {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}
        assert set(asked) == {"from", "to"}, "in the place of the range"
        took_s = (datetime.fromisoformat(asked["to"]) - datetime.fromisoformat(asked["from"])).total_seconds()
        assert took_s % 900 == 0 and 0.4 <= took_s / 86_400 <= 0.6, asked
        told = page.locator("main .sub").first.inner_text()
        assert "24 h" not in told and datetime.fromisoformat(asked["from"]).astimezone(BERLIN).strftime("%H:%M") in told, told
    assert browsing.said == []


def test_a_rate_limit_is_set_refused_and_lifted_with_scripts_and_without(browser: Browser, browsing: Browsing, gateway: Gateway) -> None:
    plain = Browsing(browser, gateway.url, scripts=False)
    plain.sign_in(admin_key(gateway))
    browsing.size(*DESKTOP, "light")
    for window, route in ((browsing, "code"), (plain, "classify")):
        page = window.page
        assert window.visit("/console/teams/search/limits") == 200
        page.get_by_role("button", name="Set a limit").click()
        page.select_option("#set select[name=route]", route)
        page.fill("#set input[name=rpm]", "many")
        page.get_by_role("button", name="Set limit").click()
        page.get_by_text("write a whole number").wait_for()
        assert page.locator("#set input[name=rpm]").get_attribute("aria-invalid") == "true"
        page.fill("#set input[name=rpm]", "60")
        page.get_by_role("button", name="Set limit").click()
        row = page.locator("main tr", has_text=route)
        assert "60" in row.inner_text() and "The team" in row.inner_text()
        row.get_by_role("link", name="Change").click()
        assert page.locator("#set input[name=rpm]").input_value() == "60"
        assert page.locator("#set select[name=route]").input_value() == route
        page.locator("#set").get_by_text("Cancel").click()
        page.locator("main tr", has_text=route).get_by_role("button", name="Lift").click()
        page.get_by_role("button", name="Lift", exact=True).click()
        page.wait_for_url("**/console/teams/search/limits")
        page.locator("main tr", has_text=route).wait_for(state="detached")
    assert plain.visit("/console/teams/search") == 200
    plain.page.get_by_role("link", name="Ways to spend less").click()
    assert "Too few choices yet" in plain.page.locator("main").inner_text()
    plain.context.close()
    assert browsing.said == []
