"""`/admin/audit`: who changed what. Checks, decodes, calls."""

from __future__ import annotations

from typing import Any, Protocol

from litestar import Request, get
from litestar.di import NamedDependency, Provide
from litestar.handlers import BaseRouteHandler
from litestar.params import FromQuery
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import audit
from gateway.access import TEAM_EDIT, actor
from gateway.api.parameters import known
from gateway.instants import date_us


class Audited(Protocol):
    """What this call needs of a worker's parts."""

    engine: AsyncEngine


class Page(Struct, frozen=True, kw_only=True):
    """Newest first. next: what `after` asks for the rows before these; null = there are none."""

    data: list[audit.Entry]
    next: int | None


Word = FromQuery[str]
NAMES = ("actor", "action", "kind", "ident", "team", "since", "until", "after", "limit")


async def words(actor: Word = "", action: Word = "", kind: Word = "", ident: Word = "", team: Word = "") -> audit.Asked:
    """The filters on words; all that are given must hold."""
    return audit.Asked(actor=actor, action=action, kind=kind, ident=ident, team=team)


def handler(parts: Audited) -> BaseRouteHandler:
    """For a guarded router."""

    @get(
        "/audit",
        summary="Every change: who, when, what, before and after; a team admin sees those of its teams",
        access=TEAM_EDIT,
        dependencies={"asked": Provide(words)},
    )
    async def entries(
        request: Request[Any, Any, Any],
        asked: NamedDependency[audit.Asked],
        since: FromQuery[str | None] = None,
        until: FromQuery[str | None] = None,
        after: FromQuery[int | None] = None,
        limit: FromQuery[int] = audit.ROWS,
    ) -> Page:
        known(request, NAMES)
        bounds = {
            "since_us": None if since is None else date_us(since, "since"),
            "until_us": None if until is None else date_us(until, "until"),
        }
        found, cursor = await audit.read(parts.engine, replace(asked, before_id=after, limit=limit, **bounds), actor(request).whole)
        return Page(data=found, next=cursor)

    return entries
