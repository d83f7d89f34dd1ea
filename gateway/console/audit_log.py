"""The audit log: who changed what, before and after as two columns, the changed fields marked."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
from litestar import Response, get
from litestar.handlers import BaseRouteHandler
from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import audit
from gateway.access import TEAM_EDIT, actor
from gateway.console import shell
from gateway.console.shell import Asked
from gateway.errors import InvalidRequest

FIELDS = ("actor", "action", "kind", "ident")
KINDS = ("", "key", "team", "member", "budget", "limit", "price", "backend", "route", "session")


class Audited(Protocol):
    """What this page needs of a worker's parts."""

    engine: AsyncEngine


class Field(Struct, frozen=True):
    """One field of a change, as text; None = it was or is not there."""

    name: str
    before: str | None
    after: str | None

    @property
    def changed(self) -> bool:
        return self.before != self.after


def handlers(parts: Audited) -> list[BaseRouteHandler]:
    @get("/audit", access=TEAM_EDIT)
    async def log(request: Asked) -> Response[str]:
        query = shell.query(request, "team", "after", more=dict.fromkeys(FIELDS, ()), default="30d")
        who = actor(request)
        asked = audit.Asked(
            actor=query.more["actor"],
            action=query.more["action"],
            kind=query.more["kind"],
            ident=query.more["ident"],
            team=query.one("team"),
            since_us=query.from_us,
            until_us=query.until_us,
            before_id=_cursor(query.after),
        )
        found, cursor = await audit.read(parts.engine, asked, who.scope)
        return await shell.page(
            request,
            who,
            "audit.html",
            title="Audit log",
            query=query,
            subtitle=shell.spelled(query),
            entries=[(one, fields(one)) for one in found],
            chosen=[(name, query.more[name]) for name in FIELDS if query.more[name]]
            + ([("team", query.one("team"))] if query.one("team") else []),
            older=None if cursor is None else query.url("/console/audit", after=cursor),
            kinds=[(kind, kind or "everything") for kind in KINDS],
        )

    return [log]


def fields(entry: audit.Entry) -> list[Field]:
    """What was written before and after, field by field: those that changed first."""
    before, after = entry.before or {}, entry.after or {}
    found = [Field(name, _text(before, name), _text(after, name)) for name in dict.fromkeys((*before, *after))]
    return sorted(found, key=lambda field: not field.changed)


def _text(values: dict[str, Any], name: str) -> str | None:
    if name not in values:
        return None
    value = values[name]
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _cursor(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidRequest("after: this is no place in the log; leave it out to begin with the newest.", param="after")
    return int(text)
