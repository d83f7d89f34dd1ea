"""Renders a page or a part of one: templates, filters, headers. Knows who looks and what they may see in the bars; knows no page.

Templates are loaded on first use: a worker that nobody looks at pays nothing for them. Rendering runs in a thread, beside the loop that
streams answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

from litestar import Request, Response
from litestar.params import FromPath

from gateway.access import Actor
from gateway.console import cookies, nav
from gateway.errors import GatewayError, NotFound, NotReady
from gateway.views import figures
from gateway.views import query as queries
from gateway.views.query import Query

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
COUNTS = "tollway.counts"  # of a scope: actor -> path of a page -> how many things there need a hand, for the side bar
ROLE_WORDS = {"admin": "Admin", "finance": "Finance", "team_admin": "Team admin", "member": "Member"}
Asked = Request[Any, Any, Any]
PathPart = FromPath[str]


def now_us() -> int:
    return time.time_ns() // 1000


async def page(request: Asked, actor: Actor | None, template: str, *, title: str, **values: Any) -> Response[str]:
    """A whole page. values: what the template needs; `query` (a Query or None) sets the zone and the range control, `status` the status.

    tick: milliseconds between looks of live parts, when the usual ten seconds are too long.
    """
    return await asyncio.to_thread(page_at_once, request, actor, template, title=title, **values)


def page_at_once(request: Asked, actor: Actor | None, template: str, *, title: str, **values: Any) -> Response[str]:
    """`page` without a thread, for what cannot wait and is small."""
    status = int(values.pop("status", 200))
    from gateway.console import templates

    content = templates.page(template, _shared(request, actor, values.get("query")) | {"title": title} | values)
    return Response(content, status_code=status, media_type="text/html", headers=HEADERS)


async def fragment(request: Asked, template: str, block: str, **values: Any) -> Response[str]:
    """One block of a page's template, for a live part or the answer to a form. `status` and `query` as for a page."""
    status = int(values.pop("status", 200))
    from gateway.console import templates

    content = await asyncio.to_thread(templates.block, template, block, _shared(request, None, values.get("query")) | values)
    return Response(content, status_code=status, media_type="text/html", headers=HEADERS)


def query(request: Asked, *names: str, more: Mapping[str, Collection[str]] | None = None, default: str = "24h") -> Query:
    """The common query of a page that applies these filters; see query.read."""
    pairs = [(name, str(value)) for name, value in request.query_params.multi_items()]
    return queries.read(pairs, now_us(), names, more=more or {}, default=default, tz=cookies.zone_of(request))


def part_of(name: str, known: Collection[str]) -> str:
    """The block of a live part. NotFound for another."""
    if name not in known:
        raise NotFound(f"There is no part {name[:80]} of this page.")
    return name


def spelled(query: Query) -> str:
    """The stretch of a page in words: 17 Nov 14:30 to 18 Nov 14:30, Europe/Berlin."""
    where, until_us = query.zone, min(query.until_us, max(query.now_us, query.from_us))
    ends = (f"{figures.day(at_us, where, query.now_us)} {figures.clock(at_us, where)}" for at_us in (query.from_us, until_us))
    return f"{' to '.join(ends)}, {query.tz}"


def of_form(error: GatewayError) -> GatewayError:
    """What is told beside the form that was sent. A gateway that is not ready has no form to show: that is raised on, to be a page."""
    if isinstance(error, NotReady):
        raise error
    return error


def redirect(path: str, request: Asked | None = None) -> Response[str]:
    """To another page after a form: for htmx a header, which replaces the page, else 303."""
    if request is not None and request.headers.get("hx-request"):
        return Response("", status_code=200, media_type="text/html", headers=HEADERS | {"hx-redirect": path})
    return Response("", status_code=303, media_type="text/html", headers=HEADERS | {"location": path})


def _shared(request: Asked, actor: Actor | None, asked: Query | None) -> dict[str, Any]:
    """What every template may use."""
    known = cookies.zone_of(request)
    tz = known if asked is None else asked.tz
    return {
        "actor": actor,
        "role": None if actor is None else ROLE_WORDS[actor.role],
        "here": request.url.path.removeprefix("/console/").split("/")[0],
        "path": request.url.path,
        "nav": [] if actor is None else _nav(actor),
        "pages": frozenset() if actor is None else frozenset(entry.path for entry in nav.ENTRIES if actor.role in entry.open_to),
        "phone": [] if actor is None else [entry for entry in nav.ENTRIES if entry.path in nav.PHONE and actor.role in entry.open_to],
        "attention": {} if actor is None else _counts(request, actor),
        "tick": 0,
        "theme": cookies.theme_of(request),
        "csrf": cookies.csrf_of(request),
        "tz": tz,
        "zones": sorted({tz, known, "UTC"}),
        "query": None,
        "range_words": queries.RANGE_WORDS,
        "now_us": now_us(),
    }


def _counts(request: Asked, actor: Actor) -> dict[str, int]:
    count: Callable[[Actor], dict[str, int]] | None = cast(dict[str, Any], request.scope).get(COUNTS)
    return {} if count is None else count(actor)


def _nav(actor: Actor) -> list[tuple[str, list[nav.Entry]]]:
    groups = ((name, [entry for entry in group if actor.role in entry.open_to]) for name, group in nav.GROUPS)
    return [(name, entries) for name, entries in groups if entries]
