"""`tollway migrate`: bring the database to this program's schema."""

from __future__ import annotations

from gateway.cli import settings
from gateway.cli.database import migrate as run
from gateway.db.engine import database_url, redacted


def migrate() -> None:
    """Bring the database to this program's schema. Harmless when it is; several at once wait for each other."""
    chosen = settings()
    revision = run(chosen)
    print(f"{redacted(database_url(chosen.storage))}: schema {revision}")
