"""What is remarkable about a ledger row stands in the row, with an index of the few such rows; when each attempt began."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# what rows that were written before tell of themselves; whether they met their objectives is not known
OLD = (
    "UPDATE usage SET marks = marks + 8 WHERE cost IS NULL",
    "UPDATE usage SET marks = marks + 16 WHERE outcome NOT IN ('completed', 'cached', 'idle', 'warm_up')",
    "UPDATE usage SET marks = marks + 1 WHERE id IN (SELECT a.request_id FROM attempts a JOIN usage u ON u.id = a.request_id"
    " WHERE a.outcome = 'failed' AND a.backend <> u.backend)",
    "UPDATE usage SET marks = marks + 2 WHERE id IN (SELECT request_id FROM attempts WHERE error = 'lost_race')",
)


def upgrade() -> None:
    op.add_column("usage", sa.Column("marks", sa.SmallInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("attempts", sa.Column("began_ms", sa.Integer()))
    for statement in OLD:
        op.execute(statement)
    rare = sa.text("marks <> 0")
    op.create_index("ix_usage_marked", "usage", ["started_at_us", "team_id", "marks"], sqlite_where=rare, postgresql_where=rare)
