"""What the commands that work on the database share: opening it, telling errors in one line, printing tables. Knows no noun."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn, TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.child import environment, python
from gateway.cli import settings
from gateway.db import schema
from gateway.db.engine import database_url, make_engine, redacted
from gateway.db.session import Away
from gateway.errors import GatewayError
from gateway.money.windows import to_datetime
from gateway.settings import ConfigError, Settings

MIGRATE_TIMEOUT_S = 600.0

T = TypeVar("T")


def fail(message: str) -> NoReturn:
    """One line on stderr and exit status 1."""
    print(f"tollway: {message}", file=sys.stderr)
    sys.exit(1)


def run(work: Callable[[AsyncEngine, Settings], Awaitable[T]]) -> T:
    """Do something on the database of the settings, which must have this program's schema. An error ends the command, told in one line."""
    chosen = settings()
    try:
        return asyncio.run(_run(work, chosen))
    except GatewayError as error:
        fail(error.message)
    except (SQLAlchemyError, OSError, TimeoutError, Away) as error:
        fail(f"{_address(chosen)}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")


async def _run(work: Callable[[AsyncEngine, Settings], Awaitable[T]], chosen: Settings) -> T:
    embedded = _url(chosen).get_backend_name() == "sqlite"
    if embedded:
        chosen.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    engine = make_engine(chosen.storage, power=chosen.money.fsync == "power")
    try:
        state = await schema.state(engine)
        if state == "empty" and embedded:  # a command may come before the first `tollway serve`
            migrate(chosen)
        elif state != "current":
            raise ConfigError(schema.problem(state))
        return await work(engine, chosen)
    finally:
        await engine.dispose()


def migrate(chosen: Settings) -> str:
    """Bring the database of the settings to this program's schema, in a child process; the revision reached. ConfigError says why not."""
    url = _url(chosen)
    if url.get_backend_name() == "sqlite":
        chosen.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    done = subprocess.run(
        python("migrations"),
        env=environment() | {"DATABASE_URL": url.render_as_string(hide_password=False)},  # not argv, which everybody may read
        capture_output=True,
        text=True,
        timeout=MIGRATE_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise ConfigError(f"{redacted(url)}: the schema could not be made: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


def _url(chosen: Settings) -> Any:
    try:
        return database_url(chosen.storage)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _address(chosen: Settings) -> str:
    return redacted(_url(chosen))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Aligned columns, numbers to the right, never cut: it may be piped."""
    texts = [[*head], *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[place]) for line in texts) for place in range(len(head))]
    right = [all(isinstance(row[place], int) or _number(str(row[place])) for row in rows) and bool(rows) for place in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width) for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in texts
    )


def _number(text: str) -> bool:
    return text in ("unknown", "-") or text.removeprefix("-").replace(".", "", 1).isdigit()


def instant(at_us: int | None, missing: str = "-") -> str:
    """An instant for people: ISO, UTC, whole seconds."""
    return missing if at_us is None else to_datetime(at_us).strftime("%Y-%m-%dT%H:%M:%SZ")
