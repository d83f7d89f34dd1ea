"""Members, their sessions and failed sign-ins; blocked and rotated keys, whose they are; the audit log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    people()
    keys()
    signing_in()
    audit()


def people() -> None:
    op.create_table(
        "members",
        sa.Column("id", ID, nullable=False),
        sa.Column("email", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False, server_default=""),
        sa.Column("role", sa.Text(), nullable=False, server_default=""),
        sa.Column("password", sa.Text()),
        sa.Column("link_digest", sa.LargeBinary()),
        sa.Column("link_expires_at_us", sa.BigInteger()),
        sa.Column("created_at_us", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at_us", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_members"),
        sa.UniqueConstraint("email", name="uq_members_email"),
        sa.UniqueConstraint("link_digest", name="uq_members_link_digest"),
    )
    op.create_table(
        "memberships",
        sa.Column("member_id", sa.BigInteger(), nullable=False),
        sa.Column("team_id", sa.BigInteger(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("member_id", "team_id", name="pk_memberships"),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name="fk_memberships_member_id"),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name="fk_memberships_team_id"),
    )
    op.create_index("ix_memberships_team_id", "memberships", ["team_id"])


def keys() -> None:
    for name in ("blocked_at_us", "member_id"):
        op.add_column("api_keys", sa.Column(name, sa.BigInteger()))
    op.create_index("ix_api_keys_member_id", "api_keys", ["member_id"])
    op.create_table(
        "former_secrets",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("public", sa.Text(), nullable=False),
        sa.Column("key_id", sa.BigInteger(), nullable=False),
        sa.Column("until_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_former_secrets"),
        sa.UniqueConstraint("public", name="uq_former_secrets_public"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_former_secrets_key_id"),
    )
    op.create_index("ix_former_secrets_key_id", "former_secrets", ["key_id"])


def signing_in() -> None:
    op.create_table(
        "sessions",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("member_id", sa.BigInteger()),
        sa.Column("key_id", sa.BigInteger()),
        sa.Column("created_at_us", sa.BigInteger(), nullable=False),
        sa.Column("seen_at_us", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_sessions"),
        sa.ForeignKeyConstraint(["member_id"], ["members.id"], name="fk_sessions_member_id"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_sessions_key_id"),
    )
    op.create_index("ix_sessions_member_id", "sessions", ["member_id"])
    op.create_index("ix_sessions_expires_at_us", "sessions", ["expires_at_us"])
    op.create_table(
        "login_failures",
        sa.Column("subject", sa.LargeBinary(), nullable=False),
        sa.Column("since_us", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("subject", name="pk_login_failures"),
    )
    op.create_index("ix_login_failures_since_us", "login_failures", ["since_us"])


def audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", ID, nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("member_id", sa.BigInteger()),
        sa.Column("key_id", sa.BigInteger()),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("ident", sa.Text(), nullable=False),
        sa.Column("team_id", sa.BigInteger()),
        sa.Column("before", sa.Text()),
        sa.Column("after", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_team_id_id", "audit", ["team_id", "id"])
    op.create_index("ix_audit_at_us", "audit", ["at_us"])
