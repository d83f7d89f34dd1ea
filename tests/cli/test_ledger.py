"""`tollway ledger`."""

from __future__ import annotations

import csv
import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from msgspec import structs
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.money.quarantine import Quarantine, SetAside
from gateway.settings import Storage
from providers.types import Usage
from tests.cli.conftest import Tollway
from tests.fixtures.ledger import record, write
from tests.fixtures.money import record_of
from tests.money.test_audit import START, filled

OnDatabase = Callable[[Callable[[AsyncEngine], Awaitable[Any]]], Any]


def test_verify_holds_and_breaks(tollway: Tollway, on_database: OnDatabase) -> None:
    rows = on_database(filled)
    sound = tollway("ledger", "verify")
    assert sound.status == 0 and sound.out.startswith(f"{len(rows) + 1} rows, 2 budget windows") and "every invariant holds" in sound.out

    async def damage(engine: AsyncEngine) -> None:
        async with engine.begin() as connection:
            await connection.execute(text("UPDATE budget_windows SET spent = spent + 1 WHERE id = 1"))
            await connection.execute(text("UPDATE rollups SET cost = cost + 1 WHERE outcome = 'cached'"))

    on_database(damage)
    broken = tollway("ledger", "verify")
    assert broken.status == 1 and "window 1 of team 1" in broken.out and " broken" in broken.err
    assert tollway("ledger", "rebuild").out.startswith("roll-ups of ")
    assert len(tollway("ledger", "verify").lines) == 2, "the roll-ups are right again, the window is not"


def test_unknowns_are_listed_and_resolved(tollway: Tollway, on_database: OnDatabase) -> None:
    rows = on_database(filled)
    listed = tollway("ledger", "unknowns").lines
    assert len(listed) == 1 + sum(one.outcome == "unknown" for one in rows)
    request = listed[1].split()[0]
    done = tollway("ledger", "resolve", request, "--usd", "0.5")
    assert done.status == 0 and f"request {request} cost 0.500000000 USD" in done.out
    assert len(tollway("ledger", "unknowns").lines) == len(listed) - 1
    assert tollway("ledger", "verify").status == 0


def test_what_the_database_refused_is_listed_and_brought_back(tollway: Tollway, on_database: OnDatabase, storage: Storage) -> None:
    on_database(filled)
    assert tollway("ledger", "quarantine").lines == ["request  started  route  backend  cost_usd  why"]
    record = record_of(uuid4(), 1_790_000_000_000_000, None, 5_000_000)
    Quarantine(Path(storage.state_dir) / "journal").add([SetAside(at_us=1, process=uuid4(), why="out of range", record=record)])
    listed = tollway("ledger", "quarantine").lines
    assert len(listed) == 2 and str(record.id) in listed[1] and "0.005000000" in listed[1] and "out of range" in listed[1]
    assert tollway("ledger", "verify").out.startswith("1 rows are set aside")
    assert tollway("ledger", "quarantine", "--retry").out == "1 rows are in the ledger now, 0 are still refused\n"
    assert len(tollway("ledger", "quarantine").lines) == 1
    assert tollway("ledger", "verify").status == 0


def test_export_and_prune(tollway: Tollway, on_database: OnDatabase) -> None:
    rows = on_database(filled)
    table = list(csv.DictReader(io.StringIO(tollway("ledger", "export").out)))
    assert len(table) == len(rows) + 1
    lines = tollway("ledger", "export", "--format", "jsonl", "--since", "2026-11-01", "--until", "2026-11-01T12:00:00Z").lines
    assert 0 < len(lines) < len(table) and all(msgspec.json.decode(line)["charges"] is not None for line in lines)
    assert tollway("ledger", "prune", "--older-than", "9999w").out == "0 rows are deleted\n"
    assert len(tollway("ledger", "export").lines) == len(table) + 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("prune", "--older-than", "29d"), "at least 30d"),
        (("prune", "--older-than", "soon"), "write 400d or 60w"),
        (("resolve", "banana", "--usd", "1"), "'banana' is no id"),
        (("resolve", "00000000-0000-0000-0000-000000000001", "--usd", "1"), "no row"),
        (("resolve", "00000000-0000-0000-0000-000000000001", "--usd", "much"), "not a decimal number"),
        (("export", "--since", "yesterday"), "--since: 'yesterday' is no time: write 2027-01-31"),
        (("export", "--since", "2026-12-01", "--until", "2026-11-01"), "--since: 2026-12-01 is not before --until 2026-11-01"),
        (("reprice", "--since", "30d"), "--since: '30d' is no time"),  # it once meant the 31st of January 1970: all of the ledger
        (("rebuild", "--until", "9999-12-31T23:59:59-23:59"), "is no time"),
    ],
)
def test_what_cannot_be_meant_is_one_line(tollway: Tollway, words: tuple[str, ...], told: str) -> None:
    refused = tollway("ledger", *words)
    assert refused.status == 1 and told in refused.err and refused.err.count("\n") == 1


def test_late_prices_are_booked_and_others_tried_out(tollway: Tollway, on_database: OnDatabase, tmp_path: Path) -> None:
    attempt = record(START, [("a", "completed", 8)])
    plain = structs.replace(attempt.attempts[0], vendor="openai", model="mini", price_id="api:x", usage=Usage(input=1_000_000))
    on_database(lambda engine: write(engine, [structs.replace(attempt, vendor="openai", model="mini", attempts=(plain,))]))
    price = ("prices", "set", "--vendor", "openai", "--model", "mini", "--output", "1", "--from", "2026-01-01")
    assert tollway(*price, "--input", "0.5").lines[1].endswith("until `tollway ledger reprice --since 2026-01-01T00:00:00Z`.")
    period = ("ledger", "reprice", "--since", "2026-11-01", "--until", "2026-12-01")
    tried = tollway(*period, "--dry-run")
    assert tried.lines[1].split() == ["1", "mini", "1", "0.000000008", "0.500000000", "0.499999992", "0", "0"]
    assert tried.lines[-1] == "1 rows, 1 of them cost something else; nothing was written"
    assert tollway(*period).lines[-1] == "1 rows, 1 of them cost something else; the differences are booked"
    assert tollway(*period).lines[-1] == "1 rows, 0 of them cost something else; the differences are booked"
    book = tmp_path / "book.toml"
    book.write_text(
        '[[prices]]\nvendor = "openai"\nmodel = "mini"\ninput = "2"\noutput = "0"\ntiers = [{ above = 1000, input = "3", output = "0" }]\n'
    )
    assert tollway(*period, "--book", str(book)).lines[1].split()[3:6] == ["0.500000000", "3.000000000", "2.500000000"]
    assert tollway(*period, "--dry-run").lines[-2].split()[:4] == ["all", "1", "0.500000000", "0.500000000"], "nothing was written"
    assert tollway("ledger", "verify").status == 0


@pytest.mark.parametrize(
    ("book", "told"),
    [
        (None, "No such file"),
        ("prices = 3", "prices"),
        ('[[prices]]\nvendor = "openai"\nmodel = "m"\ninput = "1"', "output"),
        ('[[prices]]\nvendor = "openai"\nmodel = "m"\ninput = "x"\noutput = "1"', "prices[0].input: 'x' is not a decimal"),
        ('[[prices]]\nvendor = "acme"\nmodel = "m"\ninput = "1"\noutput = "1"', "no vendor 'acme'"),
        ('[[prices]]\nvendor = "openai"\nmodel = "m"\ninput = "1"\noutput = "1"\nstarts = "soon"', "'soon' is no time"),
    ],
)
def test_a_book_that_cannot_be_read_is_one_line(bare: Tollway, tmp_path: Path, book: str | None, told: str) -> None:
    path = tmp_path / "book.toml"
    if book is not None:
        path.write_text(book)
    refused = bare("ledger", "reprice", "--since", "2026-11-01", "--book", str(path))
    assert refused.status == 1 and told in refused.err and refused.err.count("\n") == 1
