"""The audit log: who changed what, with what it was before and is after. Written in the transaction of the change, never changed itself.

Secrets, password hashes and prompts are not written here: callers pass what people may see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.access import Actor
from gateway.db.engine import clock_us, reading
from gateway.db.session import Dialect, Do, Transaction
from gateway.db.tables import audit, teams
from gateway.errors import InvalidRequest

ROWS = 50  # of one page, where no other number is asked for
ROWS_MAX = 500
TEXT_MAX = 254  # of a filter


class Change(TypedDict, total=False):
    """action: noun and verb, "key.block". kind: the noun. ident: the thing's name as people call it, a key's public part.

    team_id: whose admins see the row; None = admins alone. before, after: the fields that say what changed; None = it was or is not there.
    """

    action: str
    kind: str
    ident: str
    team_id: int | None
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


async def write(connection: AsyncConnection, actor: Actor, **change: Unpack[Change]) -> None:
    """One row, in the transaction of the change that it tells."""
    await connection.execute(
        insert(audit).values(
            at_us=clock_us(connection.dialect.name),
            actor=actor.name,
            role=actor.role,
            member_id=actor.member_id,
            key_id=actor.key_id,
            action=change["action"],
            kind=change["kind"],
            ident=change["ident"],
            team_id=change.get("team_id"),
            before=_json(change.get("before")),
            after=_json(change.get("after")),
        )
    )


def step(sql: Dialect, actor: Actor, **change: Unpack[Change]) -> Transaction[None]:
    """The same in a transaction that is written as steps."""
    values = (
        *(actor.name, actor.role, actor.member_id, actor.key_id, change["action"], change["kind"], change["ident"]),
        *(change.get("team_id"), _json(change.get("before")), _json(change.get("after"))),
    )
    places = ", ".join(f"${number}" for number in range(1, len(values) + 1))
    yield Do(
        "INSERT INTO audit (at_us, actor, role, member_id, key_id, action, kind, ident, team_id, before, after)"  # noqa: S608 - names of our own
        f" VALUES ({sql.clock}, {places})",
        values,
    )


def _json(fields: Mapping[str, Any] | None) -> str | None:
    return None if fields is None else msgspec.json.encode(fields).decode()


class Entry(Struct, frozen=True, kw_only=True):
    """One row. role: in which role it was done. before, after: the fields that say what changed; null where there was or is nothing."""

    id: int
    at_us: int
    actor: str
    role: str
    action: str
    kind: str
    ident: str
    team: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Asked(Struct, frozen=True, kw_only=True):
    """Filters, all of which must hold; "" or None = any. before_id: the cursor, rows older than that one. limit: of ROWS_MAX."""

    actor: str = ""
    action: str = ""
    kind: str = ""
    ident: str = ""
    team: str = ""
    since_us: int | None = None
    until_us: int | None = None
    before_id: int | None = None
    limit: int = ROWS


async def read(engine: AsyncEngine, asked: Asked, scope: frozenset[int] | None = None) -> tuple[list[Entry], int | None]:
    """(rows, newest first; the cursor of the next older ones, None = there are none). With a scope rows of its teams alone."""
    if not 0 < asked.limit <= ROWS_MAX:
        raise InvalidRequest(f"limit: 1 to {ROWS_MAX}.", param="limit")
    which: list[ColumnElement[bool]] = [] if scope is None else [audit.c.team_id.in_(scope)]
    for name in ("actor", "action", "kind", "ident"):
        text = getattr(asked, name)
        if len(text) > TEXT_MAX or not text.isprintable():
            raise InvalidRequest(f"{name}: at most {TEXT_MAX} printable characters.", param=name)
        if text:
            which.append(audit.c[name] == text)
    if asked.team:
        if not asked.team.isprintable():
            raise InvalidRequest(f"team: at most {TEXT_MAX} printable characters.", param="team")
        which.append(audit.c.team_id.in_(select(teams.c.id).where(teams.c.name == asked.team)))
    for name, bound in (("since", asked.since_us), ("until", asked.until_us), ("after", asked.before_id)):
        if bound is not None and not 0 <= bound < 1 << 63:
            raise InvalidRequest(f"{name}: no row can have this number.", param=name)
    which += [] if asked.since_us is None else [audit.c.at_us >= asked.since_us]
    which += [] if asked.until_us is None else [audit.c.at_us < asked.until_us]
    which += [] if asked.before_id is None else [audit.c.id < asked.before_id]
    named = select(audit, teams.c.name.label("team")).join(teams, teams.c.id == audit.c.team_id, isouter=True)
    async with reading(engine).connect() as connection:
        rows = (await connection.execute(named.where(*which).order_by(audit.c.id.desc()).limit(asked.limit + 1))).all()
    found = [_entry(row) for row in rows[: asked.limit]]
    return found, found[-1].id if len(rows) > asked.limit else None


def _entry(row: Any) -> Entry:
    return Entry(
        id=row.id,
        at_us=row.at_us,
        actor=row.actor,
        role=row.role,
        action=row.action,
        kind=row.kind,
        ident=row.ident,
        team=row.team,
        before=None if row.before is None else msgspec.json.decode(row.before),
        after=None if row.after is None else msgspec.json.decode(row.after),
    )
