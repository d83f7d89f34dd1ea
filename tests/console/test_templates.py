"""Templates: every one compiles, escapes what it is given, and refuses a name that nobody gave."""

from __future__ import annotations

from typing import Any

import jinja2
import pytest

from gateway.console import assets, templates

AT = 1_795_008_667_000_000
NAMES = sorted(path.name for path in (assets.folder() / "templates").iterdir())
HOSTILE = ["<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "\u202eevil", "مرحبا", "{{ 7 * 7 }}", "a" * 300]
CALLS = [
    "c.ent(x, 1, '/console/teams')",
    "c.st('bad', x)",
    "c.tag(x)",
    "c.measured(x)",
    "c.meter(x, 0.5)",
    "c.note_box('warn', x, x)",
    "c.empty('inbox', x, x, (x, '/console/overview'))",
    "c.chip(x, '?team=a')",
    "c.field('name', x, x, {'name': x})",
    "c.choose('name', x, [(x, x)])",
    "c.legend([{'label': x, 'slot': 1, 'value': x}])",
    "c.astable(x, [x, x], [[x, x]])",
    "c.chart('one', 'stack', 'h1', {'x': [1], 'series': [{'label': x}]}, x)",
    "c.seg(x, [(x, '?a=b', true)])",
    "x | initials",
]


def values(**more: Any) -> dict[str, Any]:
    return {"tz": "Europe/Berlin", "now_us": AT, "query": None, "csrf": "token", "path": "/console/x", "range_words": {}} | more


def render(text: str, **more: Any) -> str:
    template = templates.environment().from_string("{{ " + text + " }}")
    return template.render(templates._with_macros(values(**more)))


@pytest.mark.parametrize("name", NAMES)
def test_every_template_compiles(name: str) -> None:
    assert templates.environment().get_template(name).name == name


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("text", HOSTILE)
def test_what_people_name_stays_text(call: str, text: str) -> None:
    out = render(call, x=text)
    assert (
        "<script>alert" not in out
        and "<img" not in out
        and "onerror=alert(1)>" not in out
        and "49" not in out.replace("&#39;", "").replace("&#34;", "")
    )


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render("missing")


def test_figures_are_there_with_all_they_know() -> None:
    assert 'value="611250"' in render("x | money", x=611_250) and 'title="$0.000611250"' in render("x | money", x=611_250)
    assert render("x | money", x=None) == '<span class="warn">unpriced</span>'
    assert 'title="45,234"' in render("x | tokens", x=45_234)
    assert render("x | when", x=AT) == '<time datetime="2026-11-18T14:31:07+01:00">14:31:07</time>'
    assert render("x | when", x=None) == "never" and "just now" in render("x | ago", x=AT)
    assert render("x | day", x=AT) == "18 Nov"
    assert render("x | local_input", x=AT) == "2026-11-18T14:31"
    assert render("'Asia/Kolkata' | offset") == "UTC+5:30"


def test_a_block_is_told_alone() -> None:
    out = templates.block("problem.html", "main", values(roles=["Admin"], role="Member", title="x", actor={"name": "key x"}, error=None))
    assert "This page is for admin" in out and "<html" not in out
