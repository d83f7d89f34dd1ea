"""Up to which instant the ledger's rows were pruned."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    retention = op.create_table(
        "retention",
        sa.Column("id", sa.SmallInteger(), nullable=False),
        sa.Column("pruned_until_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_retention"),
    )
    op.bulk_insert(retention, [{"id": 1, "pruned_until_us": 0}])
