"""What holds of every page of the console, whatever stands on it: asked of rendered HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import httpx

from gateway.console import shell

SCRIPTS = "/console/static/"
CHANGING = ("post", "put", "delete", "patch")


class Seen(HTMLParser):
    """Everything of a page that a test asks about."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []  # targets of links, forms and htmx
        self.icons: set[str] = set()
        self.ids: list[str] = []
        self.wrong: list[str] = []
        self.forms: list[dict[str, str | None]] = []
        self.fields: list[set[str | None]] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self._forbidden(tag, named)
        if tag == "form":
            self.forms.append(named)
            self.fields.append(set())
        elif tag == "input" and self.fields:
            self.fields[-1].add(named.get("name"))
        elif tag in ("h1", "h2"):
            self.headings.append(tag)
        if named.get("id"):
            self.ids.append(str(named["id"]))
        if tag == "use":
            self.icons.add(str(named.get("href")).removeprefix("#i-"))
        else:
            self.links += [str(named[name]) for name in ("href", "action", "hx-get", "hx-post") if named.get(name)]

    def _forbidden(self, tag: str, named: dict[str, str | None]) -> None:
        """What the policy would block, or what would run."""
        self.wrong += [f"<{tag} {name}>" for name in named if name == "style" or name.startswith("on")]
        if tag == "style":
            self.wrong.append("<style>")
        if tag == "script" and named.get("type") != "application/json" and not str(named.get("src")).startswith(SCRIPTS):
            self.wrong.append(f"script {named}")

    handle_startendtag = handle_starttag


def seen(html: str) -> Seen:
    found = Seen()
    found.feed(html)
    return found


def sound(answer: httpx.Response, routes: Any) -> Seen:
    """A page or part that keeps every rule; routes: of the app, one of which each link must meet. Gives what was seen on it."""
    assert answer.headers["content-security-policy"] == shell.CSP
    assert answer.headers["cache-control"] == "no-store"
    page = seen(answer.text)
    assert page.wrong == []
    assert len(page.ids) == len(set(page.ids)), sorted(one for one in page.ids if page.ids.count(one) > 1)
    for link in page.links:
        assert link.startswith(("/console/", "#", "?")), link
        if link.startswith("/console/"):
            path = link.partition("?")[0].partition("#")[0]
            assert any(meets(path, route) for route in routes), f"no route for {link}"
    for form, fields in zip(page.forms, page.fields, strict=True):
        if form.get("method", "get") in CHANGING and form.get("action") not in ("/console/login", "/console/welcome"):
            assert "csrf" in fields, form
    return page


def meets(path: str, route: str) -> bool:
    """Whether a path meets a route such as /console/requests/{id}; the catch-all of missing pages does not count."""
    wanted, given = route.strip("/").split("/"), path.strip("/").split("/")
    if "{rest}" in route:
        return False
    if wanted[-1] == "{name}" and wanted[1:2] == ["static"]:
        return given[:2] == wanted[:2]
    return len(wanted) == len(given) and all(a.startswith("{") or a == b for a, b in zip(wanted, given, strict=True))
