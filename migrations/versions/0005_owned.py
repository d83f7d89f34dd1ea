"""Hardware that is paid for by the hour: when it was there, and what its hours came to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

UID = sa.LargeBinary(16).with_variant(sa.UUID(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "owned_spans",
        sa.Column("process_id", UID, nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("from_us", sa.BigInteger(), nullable=False),
        sa.Column("until_us", sa.BigInteger(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("rate", sa.BigInteger(), nullable=False),
        sa.Column("load", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("process_id", "backend", "kind", "from_us", name="pk_owned_spans"),
    )
    op.create_index("ix_owned_spans_backend_until_us", "owned_spans", ["backend", "until_us"])
    op.create_table(
        "owned_hours",
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("hour_us", sa.BigInteger(), nullable=False),
        sa.Column("vendor", sa.Text(), nullable=False, server_default=""),
        sa.Column("model", sa.Text(), nullable=False, server_default=""),
        sa.Column("owed", sa.BigInteger()),
        sa.Column("covered_us", sa.BigInteger()),
        sa.Column("written", sa.SmallInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("check_at_us", sa.BigInteger()),
        sa.PrimaryKeyConstraint("backend", "hour_us", name="pk_owned_hours"),
    )
    op.create_index("ix_owned_hours_check_at_us", "owned_hours", ["check_at_us"])
