"""Image tokens in the ledger and its roll-ups, of which kind a request was, and prices that were withdrawn."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("usage", "attempts", "rollups"):
        for name in ("input_image_tokens", "output_image_tokens"):
            op.add_column(table, sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("price_book", sa.Column("withdrawn_at_us", sa.BigInteger()))
    op.add_column("usage", sa.Column("kind", sa.Text(), nullable=False, server_default=""))
