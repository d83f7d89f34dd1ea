"""A database that a test takes over is as good as a new one."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from tests.fixtures.used_databases import UsedDatabases

PARTS = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'",
    "SELECT relname, last_value, is_called FROM pg_class JOIN LATERAL pg_sequence_last_value(oid) AS v ON true"
    " CROSS JOIN LATERAL (SELECT v AS last_value, v IS NOT NULL AS is_called) AS s WHERE relkind = 'S'",
)


async def contents(used: UsedDatabases, name: str) -> dict[str, Any]:
    """Every row of every table, and what the next number of each sequence follows."""
    connection = await asyncpg.connect(used._address(name))
    try:
        tables = [row[0] for row in await connection.fetch(PARTS[0])]
        rows = {table: [tuple(row) for row in await connection.fetch(f'SELECT * FROM "{table}"')] for table in sorted(tables)}
        return {**rows, "sequences": [tuple(row) for row in await connection.fetch(PARTS[1])]}
    finally:
        await connection.close()


async def run(used: UsedDatabases, name: str, *statements: str) -> None:
    connection = await asyncpg.connect(used._address(name))
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
def used(postgres_url: str, postgres_template: str) -> UsedDatabases:
    return UsedDatabases(postgres_url.replace("+asyncpg", ""), postgres_template)


def test_what_a_test_left_is_gone(used: UsedDatabases) -> None:
    name = used.take()
    fresh = asyncio.run(contents(used, name))
    asyncio.run(
        run(
            used,
            name,
            "INSERT INTO organisations (name, created_at_us) VALUES ('o', 1)",
            "INSERT INTO teams (org_id, name, salt, created_at_us) VALUES (1, 't', 's', 1)",
            "UPDATE catalog_version SET version = version + 5",
        )
    )
    assert asyncio.run(contents(used, name)) != fresh
    used.give(name)
    assert used.take() == name
    assert asyncio.run(contents(used, name)) == fresh
    used.give(name)


def test_one_whose_tables_were_changed_is_not_used_again(used: UsedDatabases) -> None:
    name = used.take()
    asyncio.run(run(used, name, "ALTER TABLE teams ADD COLUMN more INTEGER"))
    used.give(name)
    assert used.free == []


async def _held(used: UsedDatabases, name: str) -> None:
    """Somebody in the middle of a transaction when the test is over."""
    connection = await asyncpg.connect(used._address(name))
    await connection.execute("BEGIN; LOCK TABLE teams")
    await asyncio.to_thread(used.give, name)
    assert used.free == [name]
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError)):
        await connection.execute("SELECT 1")
    connection.terminate()


def test_who_still_holds_on_is_sent_away(used: UsedDatabases) -> None:
    asyncio.run(_held(used, used.take()))
