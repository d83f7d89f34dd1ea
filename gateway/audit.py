"""The audit log: who changed what, with what it was before and is after. Written in the transaction of the change, never changed itself.

Secrets, password hashes and prompts are not written here: callers pass what people may see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

import msgspec
from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.access import Actor
from gateway.db.engine import clock_us
from gateway.db.tables import audit


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


def _json(fields: Mapping[str, Any] | None) -> str | None:
    return None if fields is None else msgspec.json.encode(fields).decode()
