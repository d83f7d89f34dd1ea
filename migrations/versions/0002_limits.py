"""Rate limits of scopes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "limits",
        sa.Column("id", ID, nullable=False),
        sa.Column("scope_kind", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.BigInteger(), nullable=False),
        sa.Column("model", sa.Text()),
        sa.Column("rpm", sa.BigInteger()),
        sa.Column("tpm", sa.BigInteger()),
        sa.Column("parallel", sa.BigInteger()),
        sa.Column("created_at_us", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at_us", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_limits"),
    )
    op.create_index("ix_limits_scope_kind_scope_id", "limits", ["scope_kind", "scope_id"])
