"""Which schema a database has, on SQLite and Postgres."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from gateway.db import schema


async def state_with(engine: AsyncEngine, version: str) -> schema.State:
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = :version"), {"version": version})
    return await schema.state(engine)


async def test_states(database, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    assert await schema.state(database.engine) == "current"
    assert await state_with(database.engine, "9999") == "newer"
    monkeypatch.setattr(schema, "scripts", lambda: ("0000", "0001"))
    assert await state_with(database.engine, "0000") == "older"
    async with database.engine.begin() as connection:
        await connection.execute(text("DELETE FROM alembic_version"))
    assert await schema.state(database.engine) == "empty"


async def test_a_database_without_tables_is_empty() -> None:
    engine = create_async_engine("sqlite+aiosqlite://")
    assert await schema.state(engine) == "empty"
    await engine.dispose()


def test_what_to_do() -> None:
    assert schema.problem("current") == ""
    assert "newer Tollway" in schema.problem("newer")
    assert schema.problem("older") == "The database's schema is of an older Tollway: run `tollway migrate`."
    assert schema.problem("empty") == "The database's schema is missing: run `tollway migrate`."
