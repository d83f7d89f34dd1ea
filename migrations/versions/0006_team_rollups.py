"""Roll-ups by team, four latency bins to a row, requests that failed over; on SQLite without a second tree beside the key."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

KEYS = ("bucket_us", "org_id", "team_id", "key_id")
DIMENSIONS = ("route", "backend", "vendor", "model", "outcome", "tag")
TEAM_KEYS = ("span_us", "bucket_us", "org_id", "team_id")
OLD_SUMS = (
    *("requests", "attempts", "cost", "saved", "unpriced", "estimated"),
    *("input_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens", "input_audio_tokens", "input_image_tokens"),
    *("output_tokens", "reasoning_tokens", "output_audio_tokens", "output_image_tokens", "ttft_count", "ttft_ms", "duration_ms"),
)
SUMS = (*OLD_SUMS, "failovers")
OCTAVE = ("n0", "n1", "n2", "n3")
BUCKET_US, HOUR_US, DAY_US = 900_000_000, 3_600_000_000, 86_400_000_000


def keyed(name: str, *, integers: tuple[str, ...], texts: tuple[str, ...], latency: bool, **options: Any) -> None:
    columns: list[sa.Column[Any]] = [sa.Column(column, sa.BigInteger(), nullable=False) for column in integers]
    columns += [sa.Column(column, sa.Text(), nullable=False) for column in (*texts, *(("metric",) if latency else ()))]
    columns += [sa.Column("octave", sa.SmallInteger(), nullable=False)] if latency else []
    keys = [column.name for column in columns]
    sums = [sa.Column(column, sa.BigInteger(), nullable=False, server_default=sa.text("0")) for column in (OCTAVE if latency else SUMS)]
    op.create_table(name, *columns, *sums, sa.PrimaryKeyConstraint(*keys, name=f"pk_{name}"), sqlite_with_rowid=False, **options)


def copy_rollups() -> None:
    """Every roll-up as it was, with its requests that had failed at another backend first: counted from the ledger."""
    bucket = f"u.started_at_us - u.started_at_us % {BUCKET_US}"
    by = [*KEYS[1:], *DIMENSIONS]
    same = " AND ".join(f"f.{name} = r.{name}" for name in (*KEYS, *DIMENSIONS))
    op.execute(
        f"INSERT INTO rollups ({', '.join((*KEYS, *DIMENSIONS, *SUMS))})"  # noqa: S608
        f" SELECT {', '.join(f'r.{name}' for name in (*KEYS, *DIMENSIONS, *OLD_SUMS))}, coalesce(f.failovers, 0) FROM old_rollups r"
        f" LEFT JOIN (SELECT {bucket} AS bucket_us, {', '.join(f'u.{name}' for name in by)}, count(*) AS failovers FROM usage u"
        " WHERE EXISTS (SELECT 1 FROM attempts a WHERE a.request_id = u.id AND a.outcome = 'failed' AND a.backend <> u.backend)"
        f" GROUP BY {bucket}, {', '.join(f'u.{name}' for name in by)}) f ON {same}"
    )


def copy_latencies() -> None:
    """Bin b is the (b + 3) % 4-th of octave (b + 3) / 4."""
    keys = ", ".join((*KEYS, *DIMENSIONS, "metric"))
    counts = ", ".join(f"CAST(sum(CASE WHEN (bin + 3) % 4 = {place} THEN count ELSE 0 END) AS BIGINT)" for place in range(4))
    op.execute(
        f"INSERT INTO latency_rollups ({keys}, octave, {', '.join(OCTAVE)})"  # noqa: S608
        f" SELECT {keys}, (bin + 3) / 4, {counts} FROM old_latency_rollups GROUP BY {keys}, (bin + 3) / 4"
    )


def fill_teams() -> None:
    for span in (HOUR_US, DAY_US):
        for table, more, sums in (("rollups", (), SUMS), ("latency_rollups", ("metric", "octave"), OCTAVE)):
            by = ", ".join((f"bucket_us - bucket_us % {span}", "org_id", "team_id", "outcome", *more))
            op.execute(
                f"INSERT INTO team_{table} (span_us, bucket_us, org_id, team_id, outcome, {', '.join((*more, *sums))})"  # noqa: S608
                f" SELECT {span}, {by}, {', '.join(f'CAST(sum({name}) AS BIGINT)' for name in sums)} FROM {table} GROUP BY {by}"
            )


def upgrade() -> None:
    for name in ("rollups", "latency_rollups"):
        op.execute(f"CREATE TABLE old_{name} AS SELECT * FROM {name}")  # noqa: S608
        op.drop_table(name)
    keyed("rollups", integers=KEYS, texts=DIMENSIONS, latency=False)
    op.create_index("ix_rollups_team_id_bucket_us", "rollups", ["team_id", "bucket_us"])
    keyed("latency_rollups", integers=KEYS, texts=DIMENSIONS, latency=True)
    for name, latency in (("team_rollups", False), ("team_latency_rollups", True)):
        keyed(name, integers=TEAM_KEYS, texts=("outcome",), latency=latency, postgresql_with={"fillfactor": 50})
    copy_rollups()
    copy_latencies()
    for name in ("rollups", "latency_rollups"):
        op.drop_table(f"old_{name}")
    fill_teams()
