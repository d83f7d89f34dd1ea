"""Which schema a database has, whether this program can use it, and how it is brought up to date. Runs no migration itself."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.engine import database_url, reading, redacted
from gateway.db.tables import HEAD
from gateway.settings import ConfigError, Storage

UPGRADE_S = 600.0  # a migration that takes longer is stopped and changes nothing


async def found(engine: AsyncEngine) -> str | None:
    """The revision in the database; None = empty, never migrated. Raises SQLAlchemyError or OSError when it cannot be asked."""
    try:
        async with reading(engine).connect() as connection:
            return (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one_or_none()
    except DBAPIError as error:
        if _no_such_table(error):
            return None
        raise


def _no_such_table(error: DBAPIError) -> bool:
    return getattr(error.orig, "sqlstate", None) == "42P01" or "no such table" in str(error.orig)


def problem(revision: str | None) -> str:
    """Why this program cannot use a database of that revision, and what to do; empty = it can."""
    if revision == HEAD:
        return ""
    if revision is None:
        return "the database is empty: run `tollway migrate`"
    if newer(revision):
        return f"the database has schema {revision}, newer than this program's {HEAD}: run a newer Tollway"
    return f"the database has schema {revision}, this program needs {HEAD}: run `tollway migrate`"


def newer(revision: str | None) -> bool:
    """Made by a later program: this one must not touch it. Revisions are numbers of four digits."""
    return revision is not None and revision > HEAD


async def upgrade(storage: Storage) -> str:
    """Bring the database of the settings up to date in a child process; the revision reached. ConfigError says why not.

    Several at once are harmless: one works, the others wait for it. A database newer than the program is refused.
    """
    url = database_url(storage)
    if url.drivername.startswith("sqlite") and url.database is not None:
        Path(url.database).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "migrations",
        env={**os.environ, "DATABASE_URL": url.render_as_string(hide_password=False)},  # not argv, which everybody may read
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(UPGRADE_S):
            out, err = await child.communicate()
    except BaseException:
        child.kill()
        await child.wait()
        raise
    if child.returncode != 0:
        raise ConfigError(f"{redacted(url)}: migration failed: {err.decode(errors='replace').strip()[-500:]}")
    return out.decode().strip()
