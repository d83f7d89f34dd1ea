"""Coarse roll-ups by several choices of names, added up when an hour is over, in place of those by team that every row was added to."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

HOUR_US, DAY_US = 3_600_000_000, 86_400_000_000
SETTLE_AFTER_US = HOUR_US
NUMBERS, TEXTS = ("team_id", "key_id"), ("route", "backend", "vendor", "model", "tag")
KEYS = ("cut", "span_us", "bucket_us", "org_id", *NUMBERS, *TEXTS, "outcome")
SUMS = (
    *("requests", "attempts", "cost", "saved", "unpriced", "estimated"),
    *("input_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens", "input_audio_tokens", "input_image_tokens"),
    *("output_tokens", "reasoning_tokens", "output_audio_tokens", "output_image_tokens", "ttft_count", "ttft_ms", "duration_ms"),
    "failovers",
)
OCTAVE = ("n0", "n1", "n2", "n3")
HOURLY = {"all": (), "team": ("team_id",), "place": ("route", "backend", "vendor", "model")}
DAILY = {"who": ("team_id", "key_id", "tag"), "both": ("team_id", "route", "backend", "vendor", "model")}
CLOCK = {
    "postgresql": "(extract(epoch from clock_timestamp()) * 1000000)::bigint",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000",
}


def upgrade() -> None:
    coarse("coarse_rollups", (), SUMS)
    coarse("coarse_latency_rollups", ("metric", "octave"), OCTAVE)
    op.create_table(
        "settled",
        sa.Column("id", sa.SmallInteger(), nullable=False),
        sa.Column("until_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_settled"),
    )
    op.create_table(
        "stale_hours",
        sa.Column("hour_us", sa.BigInteger(), nullable=False),
        sa.Column("mark", sa.LargeBinary(16).with_variant(sa.UUID(), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("hour_us", "mark", name="pk_stale_hours"),
    )
    until_us = lost_until()
    op.execute(f"INSERT INTO settled (id, until_us) VALUES (1, {until_us})")  # noqa: S608
    if until_us:
        copy(until_us)
    op.drop_table("team_rollups")
    op.drop_table("team_latency_rollups")


def coarse(name: str, more: Sequence[str], sums: Sequence[str]) -> None:
    numbers = {"span_us", "bucket_us", "org_id", *NUMBERS}
    keys = (*KEYS, *more)
    columns: list[sa.Column[object]] = []
    for key in keys:
        kind: sa.types.TypeEngine[object] = sa.BigInteger() if key in numbers else sa.SmallInteger() if key == "octave" else sa.Text()  # type: ignore[assignment]
        columns.append(sa.Column(key, kind, nullable=False))
    columns += [sa.Column(one, sa.BigInteger(), nullable=False, server_default=sa.text("0")) for one in sums]
    op.create_table(name, *columns, sa.PrimaryKeyConstraint(*keys, name=f"pk_{name}"), sqlite_with_rowid=False)


def lost_until() -> int:
    """Up to where latencies by quarter are gone, so that those by team are all there is, in whole hours; everything later is added up from
    its quarters by the running program. 0: nothing is gone."""
    connection = op.get_bind()
    pruned_us = int(connection.execute(sa.text("SELECT coalesce(max(pruned_until_us), 0) FROM retention")).scalar_one())
    now_us = int(connection.execute(sa.text(f"SELECT {CLOCK[connection.dialect.name]}")).scalar_one())
    return max(0, min(pruned_us + -pruned_us % HOUR_US, (now_us - SETTLE_AFTER_US) // HOUR_US * HOUR_US))


def copy(until_us: int) -> None:
    for span_us in (HOUR_US, DAY_US):
        last_us = until_us - until_us % span_us
        for cut, kept in (HOURLY | DAILY if span_us == DAY_US else HOURLY).items():
            add_up(cut, kept, span_us, f"rollups WHERE bucket_us < {last_us}", latency=False)
        for cut in ("all", "team"):  # latencies by backend of that time are gone
            inside = f"team_latency_rollups WHERE span_us = {span_us} AND bucket_us < {last_us}"
            add_up(cut, HOURLY[cut], span_us, inside, latency=True)


def add_up(cut: str, kept: Sequence[str], span_us: int, source: str, *, latency: bool) -> None:
    more, sums = (("metric", "octave"), OCTAVE) if latency else ((), SUMS)
    at = f"bucket_us - bucket_us % {span_us}"
    groups = (at, "org_id", *kept, "outcome", *more)
    named = dict.fromkeys(NUMBERS, "0") | dict.fromkeys(TEXTS, "''") | {name: name for name in groups[1:]}
    named |= {"cut": f"'{cut}'", "span_us": str(span_us), "bucket_us": at}
    keys = (*KEYS, *more)
    values = [*(named[key] for key in keys), *(f"CAST(sum({name}) AS BIGINT)" for name in sums)]
    op.execute(
        f"INSERT INTO coarse_{'latency_' if latency else ''}rollups ({', '.join((*keys, *sums))})"  # noqa: S608
        f" SELECT {', '.join(values)} FROM {source} GROUP BY {', '.join(groups)}"
    )
