"""The scripts make exactly the tables that the program is written for, names of constraints and defaults included."""

from __future__ import annotations

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from gateway.db import rollup_tables, tables  # noqa: F401 - they fill the metadata
from gateway.db.columns import metadata
from tests.conftest import Database


def differences(connection: Connection) -> list[Any]:
    context = MigrationContext.configure(connection, opts={"compare_type": True, "target_metadata": metadata})
    return list(compare_metadata(context, metadata))


def plain(index: Any) -> dict[str, Any]:
    """An index with the condition of a partial one as text."""
    return {**index, "dialect_options": {name: str(value) for name, value in index.get("dialect_options", {}).items()}}


def described(connection: Connection) -> dict[str, Any]:
    """Everything the database says about each table."""
    found = inspect(connection)
    return {
        name: {
            "columns": {
                column["name"]: {**column, "type": str(column["type"])} for column in found.get_columns(name)
            },  # added ones come last
            "primary": found.get_pk_constraint(name),
            "foreign": sorted(found.get_foreign_keys(name), key=str),
            "unique": sorted(found.get_unique_constraints(name), key=str),
            "indexes": sorted(map(plain, found.get_indexes(name)), key=str),
        }
        for name in sorted(found.get_table_names())
        if name != "alembic_version"
    }


async def test_the_schema_is_the_one_of_the_tables(database: Database) -> None:
    async with database.engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_it_differs_in_nothing_from_tables_made_directly(database: Database) -> None:
    async with database.engine.begin() as connection:
        migrated = await connection.run_sync(described)
        await connection.run_sync(metadata.drop_all)
        await connection.run_sync(metadata.create_all)
        direct = await connection.run_sync(described)
        assert set(migrated) == set(metadata.tables)
        assert migrated == direct


async def test_budget_windows_leave_room_for_updates_in_place(database: Database) -> None:
    if database.name != "postgresql":
        pytest.skip("only Postgres has a fill factor")
    async with database.engine.connect() as connection:
        options = await connection.execute(text("SELECT reloptions FROM pg_class WHERE relname = 'budget_windows'"))
        assert options.scalar_one() == ["fillfactor=50"]
