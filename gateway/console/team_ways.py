"""Ways to spend less, on a team's page: a part that the page asks for by itself, and a page where there are no scripts."""

from __future__ import annotations

from typing import Any, Protocol

from litestar import Response, get
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import access
from gateway.access import EVERYONE, TEAM_EDIT
from gateway.console import shell
from gateway.console.shell import Asked
from gateway.views import team as views
from gateway.views.ways import MONTH_DAYS, RECORDS_MIN, Finder


class Choosing(Protocol):
    """What these pages need of a worker's parts."""

    engine: AsyncEngine


def handlers(parts: Choosing) -> list[BaseRouteHandler]:
    finder = Finder(parts.engine)

    async def values(request: Asked, name: str) -> dict[str, Any]:
        team = await views.one_team(parts.engine, access.actor(request), name)
        return {"team": team, "ways": await finder.of(team.id, shell.now_us()), "least": RECORDS_MIN, "days": MONTH_DAYS}

    @get("/teams/{team:str}/-/ways", access=EVERYONE)
    async def part(request: Asked, team: FromPath[str]) -> Response[str]:
        return await shell.fragment(request, "team_ways.html", "ways", **await values(request, team))

    @get("/teams/{team:str}/ways", access=EVERYONE)
    async def whole(request: Asked, team: FromPath[str]) -> Response[str]:
        who = access.actor(request)
        found = await values(request, team)
        return await shell.page(request, who, "team_ways.html", title="Ways to spend less", reads_members=who.role in TEAM_EDIT, **found)

    return [part, whole]
