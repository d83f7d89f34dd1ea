"""The first schema: people, budgets, ledger, choices."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
UID = sa.LargeBinary(16).with_variant(sa.UUID(), "postgresql")
CLASSES = (
    "input_tokens",
    "cache_read_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "input_audio_tokens",
    "output_tokens",
    "reasoning_tokens",
    "output_audio_tokens",
)
DIMENSIONS = ("route", "backend", "vendor", "model", "outcome", "tag")


def needed(name: str, kind: sa.types.TypeEngine[Any]) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0"))


def word(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False, server_default="")


def flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false())


def status() -> sa.Column[int]:
    return sa.Column("status", sa.SmallInteger(), nullable=False, server_default=sa.text("0"))


def index(table: str, *columns: str) -> None:
    op.create_index(f"ix_{table}_{'_'.join(columns)}", table, list(columns))


def people() -> None:
    op.create_table(
        "organisations",
        needed("id", ID),
        needed("name", sa.Text()),
        needed("created_at_us", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_organisations"),
        sa.UniqueConstraint("name", name="uq_organisations_name"),
    )
    op.create_table(
        "teams",
        needed("id", ID),
        needed("org_id", sa.BigInteger()),
        needed("name", sa.Text()),
        needed("salt", sa.Text()),
        needed("created_at_us", sa.BigInteger()),
        sa.Column("deleted_at_us", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_teams"),
        sa.UniqueConstraint("name", name="uq_teams_name"),
        sa.ForeignKeyConstraint(["org_id"], ["organisations.id"], name="fk_teams_org_id"),
    )
    op.create_table(
        "api_keys",
        needed("id", ID),
        needed("team_id", sa.BigInteger()),
        needed("public", sa.Text()),
        needed("digest", sa.LargeBinary()),
        word("name"),
        needed("scopes", sa.Text()),
        sa.Column("models", sa.Text()),
        word("tag"),
        needed("created_at_us", sa.BigInteger()),
        sa.Column("expires_at_us", sa.BigInteger()),
        sa.Column("revoked_at_us", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("public", name="uq_api_keys_public"),
        sa.UniqueConstraint("digest", name="uq_api_keys_digest"),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name="fk_api_keys_team_id"),
    )
    index("api_keys", "team_id")


def money() -> None:
    op.create_table(
        "budgets",
        needed("id", ID),
        needed("scope_kind", sa.Text()),
        needed("scope_id", sa.BigInteger()),
        sa.Column("model", sa.Text()),
        needed("period", sa.Text()),
        sa.Column("timezone", sa.Text(), nullable=False, server_default="UTC"),
        needed("limit_nanousd", sa.BigInteger()),
        sa.Column("override_nanousd", sa.BigInteger()),
        sa.Column("override_until_us", sa.BigInteger()),
        needed("created_at_us", sa.BigInteger()),
        sa.Column("deleted_at_us", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_budgets"),
    )
    index("budgets", "scope_kind", "scope_id")
    op.create_table(
        "budget_windows",
        needed("id", ID),
        needed("budget_id", sa.BigInteger()),
        needed("starts_at_us", sa.BigInteger()),
        sa.Column("ends_at_us", sa.BigInteger()),
        count("spent"),
        count("leased"),
        sa.Column("wanted_at_us", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_budget_windows"),
        sa.UniqueConstraint("budget_id", "starts_at_us", name="uq_budget_windows_budget_id_starts_at_us"),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name="fk_budget_windows_budget_id"),
        postgresql_with={"fillfactor": 50},
    )


def processes() -> None:
    op.create_table(
        "gateway_processes",
        needed("id", UID),
        needed("host", sa.Text()),
        needed("boot_id", sa.Text()),
        needed("journal_dir", sa.Text()),
        needed("started_at_us", sa.BigInteger()),
        needed("heartbeat_at_us", sa.BigInteger()),
        count("sync_seq"),
        needed("state", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_gateway_processes"),
    )
    op.create_table(
        "budget_leases",
        needed("process_id", UID),
        needed("window_id", sa.BigInteger()),
        needed("amount", sa.BigInteger()),
        count("idle"),
        sa.PrimaryKeyConstraint("process_id", "window_id", name="pk_budget_leases"),
    )
    index("budget_leases", "window_id")


def ledger() -> None:
    op.create_table(
        "usage",
        needed("id", UID),
        needed("started_at_us", sa.BigInteger()),
        needed("ended_at_us", sa.BigInteger()),
        *(needed(name, sa.BigInteger()) for name in ("org_id", "team_id", "key_id")),
        *(word(name) for name in ("route", "backend", "vendor", "model", "price_id", "surface", "tag", "provider_id", "error")),
        needed("outcome", sa.Text()),
        status(),
        sa.Column("cost", sa.BigInteger()),
        count("saved"),
        *(count(name) for name in CLASSES),
        sa.Column("stated", sa.BigInteger()),
        flag("estimated"),
        flag("streamed"),
        sa.Column("ttft_ms", sa.Integer()),
        count("duration_ms"),
        sa.Column("charges", sa.Text(), nullable=False, server_default="[]"),
        needed("process_id", UID),
        sa.PrimaryKeyConstraint("id", name="pk_usage"),
    )
    index("usage", "started_at_us")
    index("usage", "team_id", "started_at_us")
    op.create_table(
        "attempts",
        needed("request_id", UID),
        needed("n", sa.SmallInteger()),
        *(word(name) for name in ("backend", "vendor", "model", "price_id", "error", "provider_id")),
        needed("outcome", sa.Text()),
        status(),
        sa.Column("cost", sa.BigInteger()),
        sa.Column("worst", sa.BigInteger()),
        *(count(name) for name in CLASSES),
        flag("estimated"),
        sa.Column("ttft_ms", sa.Integer()),
        count("duration_ms"),
        sa.PrimaryKeyConstraint("request_id", "n", name="pk_attempts"),
    )
    op.create_table(
        "adjustments",
        needed("id", UID),
        sa.Column("window_id", sa.BigInteger()),
        sa.Column("usage_id", UID),
        needed("delta", sa.BigInteger()),
        needed("reason", sa.Text()),
        needed("created_at_us", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_adjustments"),
    )
    index("adjustments", "window_id")
    index("adjustments", "usage_id")


def rollups() -> None:
    keys = ("bucket_us", "org_id", "team_id", "key_id")
    op.create_table(
        "rollups",
        *(needed(name, sa.BigInteger()) for name in keys),
        *(needed(name, sa.Text()) for name in DIMENSIONS),
        *(count(name) for name in ("requests", "attempts", "cost", "saved", "unpriced", "estimated")),
        *(count(name) for name in CLASSES),
        *(count(name) for name in ("ttft_count", "ttft_ms", "duration_ms")),
        sa.PrimaryKeyConstraint(*keys, *DIMENSIONS, name="pk_rollups"),
    )
    index("rollups", "team_id", "bucket_us")
    op.create_table(
        "latency_rollups",
        *(needed(name, sa.BigInteger()) for name in keys),
        *(needed(name, sa.Text()) for name in (*DIMENSIONS, "metric")),
        needed("bin", sa.SmallInteger()),
        count("count"),
        sa.PrimaryKeyConstraint(*keys, *DIMENSIONS, "metric", "bin", name="pk_latency_rollups"),
    )
    index("latency_rollups", "team_id", "bucket_us")


def choices() -> None:
    op.create_table(
        "decisions",
        needed("request_id", UID),
        needed("made_at_us", sa.BigInteger()),
        needed("team_id", sa.BigInteger()),
        needed("record", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("request_id", name="pk_decisions"),
    )
    index("decisions", "made_at_us")
    op.create_table(
        "price_book",
        needed("id", sa.Text()),
        needed("vendor", sa.Text()),
        needed("model", sa.Text()),
        needed("source", sa.Text()),
        needed("record", sa.Text()),
        needed("from_us", sa.BigInteger()),
        needed("created_at_us", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_price_book"),
    )
    index("price_book", "vendor", "model")
    version = op.create_table(
        "catalog_version",
        needed("id", sa.SmallInteger()),
        needed("version", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_catalog_version"),
    )
    op.bulk_insert(version, [{"id": 1, "version": 1}])


def upgrade() -> None:
    people()
    money()
    processes()
    ledger()
    rollups()
    choices()
