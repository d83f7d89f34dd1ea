"""The audit log as a page: filters, older rows, what changed marked, nothing of another team."""

from __future__ import annotations

from gateway import audit, people
from gateway.access import COMMAND_LINE
from gateway.console.audit_log import fields
from tests.console.checks import sound
from tests.console.conftest import Site
from tests.console.test_console import paths


def entry(before: dict[str, object] | None, after: dict[str, object] | None) -> audit.Entry:
    return audit.Entry(
        id=1, at_us=1, actor="a", role="admin", action="key.change", kind="key", ident="k", team=None, before=before, after=after
    )


def test_fields_that_changed_stand_first_and_are_written_for_people() -> None:
    told = fields(entry({"name": "a", "models": None, "tag": ""}, {"name": "a", "models": ["x", "y"], "tag": ""}), "UTC")
    assert [(one.name, one.before, one.after, one.changed) for one in told] == [("models", "none", "x, y", True), ("name", "a", "a", False)]
    made = {
        "expires_at_us": 1_800_000_000_000_000,
        "limit_nanousd": 1_500_000_000,
        "teams": {"search": "member"},
        "former": [{"public": "p"}],
        "rpm": 5,
        "blocked_at_us": None,
    }
    assert [(one.name, one.before, one.after) for one in fields(entry(None, made), "Europe/Berlin")] == [
        ("expires", None, "2027-01-15T09:00:00+01:00"),
        ("limit", None, "$1.500000000"),
        ("teams", None, "search: member"),
        ("former", None, '[{"public":"p"}]'),
        ("rpm", None, "5"),
    ]
    assert fields(entry(None, None), "UTC") == []


async def test_the_log_is_read_filtered_and_turned(site: Site) -> None:
    browser = await site.signed_in()
    for number in range(55):
        await people.add_team(site.parts.engine, f"team-{number}", actor=COMMAND_LINE)
    page = await browser.get("/console/audit")
    sound(page, paths(site))
    assert "team-54" in page.text and "team-0<" not in page.text and "Older" in page.text
    older = page.text.split('href="/console/audit?after=')[1].split('"')[0]
    assert "team-0<" in (await browser.get(f"/console/audit?after={older}")).text
    one = await browser.get("/console/audit?ident=team-7&kind=team")
    assert "team-7<" in one.text and "team-54" not in one.text
    none = await browser.get("/console/audit?actor=nobody")
    sound(none, paths(site))
    assert "No changes here" in none.text
    for wrong in ("after=x", "after=-1", "colour=red", "range=1y"):
        assert (await browser.get(f"/console/audit?{wrong}")).status_code == 400, wrong
