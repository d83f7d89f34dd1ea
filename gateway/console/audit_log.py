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
from gateway.money.windows import zone
from gateway.views import figures

FIELDS = ("actor", "action", "kind", "ident")
KINDS = ("", "key", "team", "member", "budget", "limit", "price", "backend", "route", "config", "session")


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
        found, cursor = await audit.read(parts.engine, asked, who.whole)
        return await shell.page(
            request,
            who,
            "audit.html",
            title="Audit log",
            query=query,
            subtitle=shell.spelled(query),
            entries=[(one, fields(one, query.tz)) for one in found],
            chosen=[(name, query.more[name]) for name in FIELDS if query.more[name]]
            + ([("team", query.one("team"))] if query.one("team") else []),
            older=None if cursor is None else query.url("/console/audit", after=cursor),
            kinds=[(kind, kind or "everything") for kind in KINDS],
        )

    return [log]


def fields(entry: audit.Entry, tz: str) -> list[Field]:
    """What was written before and after, field by field: those that changed first. Of a thing that came or went what it had."""
    before, after = entry.before or {}, entry.after or {}
    names = [name for name in dict.fromkeys((*before, *after)) if not (_is_nothing(before.get(name)) and _is_nothing(after.get(name)))]
    found = [Field(_called(name), _text(before, name, tz), _text(after, name, tz)) for name in names]
    return sorted(found, key=lambda field: not field.changed)


def _is_nothing(value: Any) -> bool:
    return value is None or value in ("", [], {})


def _called(name: str) -> str:
    """limit_nanousd is the limit, expires_at_us when it expires."""
    return name.removesuffix("_nanousd").removesuffix("_us").removesuffix("_at").replace("_", " ")


def _text(values: dict[str, Any], name: str, tz: str) -> str | None:
    """A value for people; None where the field is not there."""
    if name not in values:
        return None
    value = values[name]
    if _is_nothing(value):
        return "none"
    if isinstance(value, int) and name.endswith("_us"):
        return figures.rfc3339(value, zone(tz))
    if isinstance(value, int) and name.endswith("_nanousd"):
        return figures.exact(value)
    if isinstance(value, list) and all(isinstance(one, str | int) for one in value):
        return ", ".join(map(str, value))
    if isinstance(value, dict) and all(isinstance(one, str | int | None) for one in value.values()):
        return ", ".join(f"{key}: {'none' if one is None else one}" for key, one in value.items())
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _cursor(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidRequest("after: this is no place in the log; leave it out to begin with the newest.", param="after")
    return int(text)
