"""Thresholds of budgets and the alerts that crossing them made. Budgets that were there get the thresholds that new ones have."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

UID = sa.LargeBinary(16).with_variant(sa.UUID(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "budget_thresholds",
        sa.Column("budget_id", sa.BigInteger(), nullable=False),
        sa.Column("percent", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("budget_id", "percent", name="pk_budget_thresholds"),
        sa.ForeignKeyConstraint(["budget_id"], ["budgets.id"], name="fk_budget_thresholds_budget_id"),
    )
    op.create_table(
        "budget_alerts",
        sa.Column("window_id", sa.BigInteger(), nullable=False),
        sa.Column("percent", sa.SmallInteger(), nullable=False),
        sa.Column("id", UID, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("spent", sa.BigInteger(), nullable=False),
        sa.Column("cap", sa.BigInteger(), nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("due_at_us", sa.BigInteger()),
        sa.Column("delivered_at_us", sa.BigInteger()),
        sa.PrimaryKeyConstraint("window_id", "percent", name="pk_budget_alerts"),
    )
    op.create_index("ix_budget_alerts_due_at_us", "budget_alerts", ["due_at_us"])
    op.execute("INSERT INTO budget_thresholds (budget_id, percent) SELECT id, 80 FROM budgets UNION ALL SELECT id, 100 FROM budgets")
