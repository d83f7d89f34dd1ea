"""The audit log as a page: filters, older rows, what changed marked, nothing of another team."""

from __future__ import annotations

from gateway import audit, people
from gateway.console.audit_log import fields
from tests.console.checks import sound
from tests.console.conftest import Site
from tests.console.test_console import paths


def entry(before: dict[str, object] | None, after: dict[str, object] | None) -> audit.Entry:
    return audit.Entry(
        id=1, at_us=1, actor="a", role="admin", action="key.change", kind="key", ident="k", team=None, before=before, after=after
    )


def test_fields_that_changed_stand_first() -> None:
    told = fields(entry({"name": "a", "models": None, "tag": "t"}, {"name": "a", "models": ["x"], "tag": "u"}))
    assert [(one.name, one.before, one.after, one.changed) for one in told] == [
        ("models", "null", '["x"]', True),
        ("tag", "t", "u", True),
        ("name", "a", "a", False),
    ]
    assert [(one.name, one.before, one.after) for one in fields(entry(None, {"n": 1}))] == [("n", None, "1")]
    assert fields(entry(None, None)) == []


async def test_the_log_is_read_filtered_and_turned(site: Site) -> None:
    browser = await site.signed_in()
    for number in range(55):
        await people.add_team(site.parts.engine, f"team-{number}")
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
