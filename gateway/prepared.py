"""Whether this program has prepared this state folder for these settings, so that a start may skip the preparing process.

Standard library and msgspec only: the supervisor asks. Only for the SQLite database of the state folder: on Postgres others change it too.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from gateway.db.revisions import scripts
from gateway.settings import Settings

STAMP = "prepared"
WHY_NOT = "not-prepared"  # what the preparing process says before it gives up
READ_TIMEOUT_S = 1.0


def is_prepared(settings: Settings) -> bool:
    """The stamp is of these settings and this program, and the database has the newest schema."""
    try:
        known = (settings.state / STAMP).read_text()
    except OSError:
        return False
    return (
        known == _fingerprint(settings) and not settings.storage.database_url and _revision(settings.state / "tollway.db") == scripts()[-1]
    )


def mark(settings: Settings) -> None:
    """After a preparation that succeeded."""
    (settings.state / STAMP).write_text(_fingerprint(settings))


def give_up(state: Path, why: str) -> None:
    """Say why a preparation failed, for whoever asked for it."""
    (state / WHY_NOT).write_text(why)


def why_not(state: Path) -> str:
    """Why the last preparation failed, said once; empty where it did not say."""
    try:
        why = (state / WHY_NOT).read_text()
        (state / WHY_NOT).unlink()
    except OSError:
        return ""
    return why


def _fingerprint(settings: Settings) -> str:
    prices = importlib.util.find_spec("genai_prices")
    places = prices.submodule_search_locations if prices is not None else None
    price_data = [Path(place).stat().st_mtime_ns for place in places or ()]  # an upgraded price list is seeded anew
    return hashlib.sha256(msgspec.json.encode([settings.hash, scripts(), price_data])).hexdigest()


def _revision(database: Path) -> str:
    try:
        with closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True, timeout=READ_TIMEOUT_S)) as connection:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error:
        return ""
    return str(row[0]) if row is not None else ""
