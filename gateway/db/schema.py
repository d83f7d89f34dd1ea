"""Which schema a database has, beside the one this program is made for. Runs no migration and loads no alembic."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.engine import reading
from gateway.db.revisions import scripts
from gateway.db.tables import HEAD

State = Literal["empty", "older", "current", "newer"]


async def state(engine: AsyncEngine) -> State:
    """empty: no table of ours. newer: a revision that this program has no script for. Raises SQLAlchemyError or OSError when it is away."""
    async with reading(engine).connect() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
        if "alembic_version" not in names:
            return "empty"
        row = (await connection.execute(text("SELECT version_num FROM alembic_version"))).first()
    if row is None:
        return "empty"
    if row[0] == HEAD:
        return "current"
    return "older" if row[0] in scripts() else "newer"


def problem(found: State) -> str:
    """What to do about it; empty when nothing."""
    if found == "current":
        return ""
    if found == "newer":
        return "The database was made by a newer Tollway: run that version, or restore the database from before its upgrade."
    return f"The database's schema is {'missing' if found == 'empty' else 'of an older Tollway'}: run `tollway migrate`."
