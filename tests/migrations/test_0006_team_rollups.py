"""Roll-ups of the fifth version become those that this program would have written."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime
from typing import Any

from alembic import command, op
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import BigInteger, Column, Connection, MetaData, Table, insert, select, text

import migrations
from gateway.db.rollup_tables import coarse_latency_rollups, coarse_rollups, latency_rollups, rollups
from gateway.money.ledger import BUCKET_US
from gateway.money.settling import settle
from gateway.money.windows import to_us
from tests.conftest import Database
from tests.fixtures.ledger import mixed, record, write

START = to_us(datetime(2026, 11, 1, tzinfo=UTC))
TABLES = (rollups, latency_rollups)
COARSE = {"team_rollups": coarse_rollups, "team_latency_rollups": coarse_latency_rollups}
NOT_OF_TEAMS = ("cut", "key_id", "route", "backend", "vendor", "model", "tag")


def contents(connection: Connection, table: Table) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns)).mappings()]


def back(connection: Connection) -> None:
    """Put the tables of the fifth version in the place of these, with what they would have held."""
    sums = [{name: value for name, value in row.items() if name != "failovers"} for row in contents(connection, rollups)]
    bins = []
    for row in contents(connection, latency_rollups):
        counts = [row.pop(name) for name in ("n0", "n1", "n2", "n3")]
        octave = row.pop("octave")
        bins += [{**row, "bin": octave * 4 + place - 3, "count": times} for place, times in enumerate(counts) if times]
    for table in TABLES:
        table.drop(connection)
    with Operations.context(MigrationContext.configure(connection)):  # type: ignore[no-untyped-call]
        importlib.import_module("migrations.versions.0001_first").rollups()
        for name in ("input_image_tokens", "output_image_tokens"):
            op.add_column("rollups", Column(name, BigInteger, nullable=False, server_default="0"))
    for name, rows in (("rollups", sums), ("latency_rollups", bins)):
        old = Table(name, MetaData(), autoload_with=connection)
        connection.execute(insert(old), rows)
    connection.execute(text("UPDATE alembic_version SET version_num = '0005'"))


def upgrade(connection: Connection) -> None:
    configuration = migrations.configuration()
    configuration.attributes["connection"] = connection
    command.upgrade(configuration, "0006")


def by_team(connection: Connection, name: str) -> list[dict[str, Any]]:
    """What the sixth version's roll-ups by team should hold: those of this version by team."""
    rows = [row for row in contents(connection, COARSE[name]) if row["cut"] == "team"]
    return [{key: value for key, value in row.items() if key not in NOT_OF_TEAMS} for row in rows]


def of_version_six(connection: Connection, name: str) -> list[dict[str, Any]]:
    return contents(connection, Table(name, MetaData(), autoload_with=connection))


async def test_nothing_is_lost_and_what_is_new_is_counted(database: Database) -> None:
    await write(database.engine, [*mixed(120, START, START + 40 * BUCKET_US), record(START, [], ttft_ms=0, duration_ms=0)])
    await settle(database.engine)
    async with database.engine.begin() as connection:
        before = [await connection.run_sync(contents, table) for table in TABLES]
        await connection.run_sync(back)
        await connection.run_sync(upgrade)
    async with database.engine.begin() as connection:
        assert [await connection.run_sync(contents, table) for table in TABLES] == before
        teams = [await connection.run_sync(of_version_six, name) for name in COARSE]
        assert teams == [await connection.run_sync(by_team, name) for name in COARSE]
        assert sum(row["failovers"] for row in before[0]) > 5
        assert sum(row["failovers"] for row in teams[0]) == 2 * sum(row["failovers"] for row in before[0])
