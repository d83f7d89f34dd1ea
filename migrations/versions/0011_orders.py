"""Backends and routes made over the API, and what operators ask of backends while they run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "made_entries",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("made_at_us", sa.BigInteger(), nullable=False),
        sa.Column("changed_at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name="pk_made_entries"),
    )
    op.create_table(
        "backend_orders",
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("drained_at_us", sa.BigInteger()),
        sa.Column("drained_by", sa.Text(), nullable=False, server_default=""),
        sa.Column("note", sa.Text(), nullable=False, server_default=""),
        sa.Column("probe_at_us", sa.BigInteger()),
        sa.PrimaryKeyConstraint("backend", name="pk_backend_orders"),
    )
