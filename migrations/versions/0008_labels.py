"""Labels that requests of a team or key ask of their backend, as name=value texts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("teams", "api_keys"):
        op.add_column(table, sa.Column("labels", sa.Text(), nullable=False, server_default=""))
