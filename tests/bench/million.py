"""What the benches over a million rows end with: their arguments, each database in turn, a table in Markdown."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import migrations
from tests.fixtures.services import Postgres

Told = list[tuple[str, str]]  # (what, how long)


@contextmanager
def databases(names: list[str]) -> Iterator[dict[str, str]]:
    """Addresses of empty databases with this program's schema."""
    found: dict[str, str] = {}
    server = None
    with tempfile.TemporaryDirectory() as folder:
        if "sqlite" in names:
            found["SQLite"] = f"sqlite+aiosqlite:///{Path(folder) / 'bench.db'}"
        if "postgres" in names:
            server = Postgres()
            found["Postgres"] = server.url
        try:
            for url in found.values():
                migrations.upgrade(url)
            yield found
        finally:
            if server is not None:
                server.stop()


def arguments(doc: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--databases", default="sqlite,postgres")
    parser.add_argument("--repeat", type=int, default=5)
    return parser


def compared(given: argparse.Namespace, what: str, told: str, fill: Callable[[str], None], measure: Callable[[str, str], Told]) -> int:
    """Fill each database and measure it. what: heads the first column; told: what the figures are. fill: of an address; measure: of a
    database's name and address."""
    results: dict[str, dict[str, str]] = {}
    with databases(given.databases.split(",")) as found:
        for name, url in found.items():
            began = time.perf_counter()
            fill(url)
            print(f"{name}: {given.rows} rows made in {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
            for one, took in measure(name, url):
                results.setdefault(one, {})[name] = took
    print(f"{given.rows} rows; Python {platform.python_version()}, {os.cpu_count()} cores\nms: {told}\n")
    print(f"| {what} | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
    for one, by_name in results.items():
        print(f"| {one} | {' | '.join(by_name.get(name, '') for name in found)} |")
    return 0
