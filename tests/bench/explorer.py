"""What the request explorer's answers take with a million ledger rows, on SQLite and Postgres.

    python tests/bench/explorer.py [--rows 1000000] [--databases sqlite,postgres] [--keep FILE]

The rows are those of reports.py, with marks. A page is one `listing`: its rows, all counts, the histogram and the facets.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.access import ADMIN, MEMBER, TEAM_ADMIN, Actor
from gateway.db.engine import make_engine
from gateway.settings import Storage
from gateway.views.explorer import listing
from gateway.views.explorer_filter import NAMES
from gateway.views.query import read
from tests.bench.million import Told, arguments, compared
from tests.bench.reports import MONTH_US, START_US, add_up, fill

NOW = START_US + MONTH_US
BOSS = Actor(name="bench", role=ADMIN)
TEAM = Actor(name="bench", role=TEAM_ADMIN, teams={7: TEAM_ADMIN})
OWN = Actor(name="bench", role=MEMBER, teams={7: MEMBER, 8: MEMBER}, member_id=5)
QUESTIONS = (
    ("last hour", BOSS, "range=1h"),
    ("24 h", BOSS, "range=24h"),
    ("7 d", BOSS, "range=7d"),
    ("30 d", BOSS, "range=30d"),
    ("30 d, two teams", BOSS, "range=30d&team=team-3&team=team-7"),
    ("30 d, a route and a backend", BOSS, "range=30d&route=route-1&backend=backend-5"),
    ("30 d, a backend that is not there", BOSS, "range=30d&backend=nothing"),
    ("30 d, failed", BOSS, "range=30d&outcome=failed"),
    ("30 d, hedged", BOSS, "range=30d&only=hedged"),
    ("30 d, hedged of one team", BOSS, "range=30d&only=hedged&team=team-7"),
    ("30 d, dear", BOSS, "range=30d&cost_min=0.005"),
    ("30 d, slow, the slowest first", BOSS, "range=30d&ttft_min=900&sort=-ttft"),
    ("30 d, the dearest first", BOSS, "range=30d&sort=-cost"),
    ("30 d, text", BOSS, "range=30d&q=nightly"),
    ("30 d, text that is nowhere", BOSS, "range=30d&q=unheard"),
    ("30 d, the tag of a key", BOSS, "range=30d&tag=nightly&key=key-7-1"),
    ("30 d, as a team's admin", TEAM, "range=30d"),
    ("7 d, failed over, as a team's admin", TEAM, "range=7d&only=failed_over"),
    ("30 d, as a member", OWN, "range=30d"),
)
MARKS = (
    "UPDATE usage SET marks = marks + 8 WHERE cost IS NULL",
    "UPDATE usage SET marks = marks + 16 WHERE outcome NOT IN ('completed', 'cached')",
    "UPDATE usage SET marks = marks + 1 WHERE input_tokens % 20 = 0 AND outcome NOT IN ('cached', 'refused')",
    "UPDATE usage SET marks = marks + 2 WHERE output_tokens % 100 = 7",
    "UPDATE usage SET marks = marks + 4 WHERE output_tokens % 60 = 11",
    "UPDATE api_keys SET member_id = 5 WHERE id IN (71, 82)",
)


async def prepare(url: str, rows: int) -> None:
    long = create_async_engine(url)
    await fill(long, rows)
    await add_up(long)
    for statement in MARKS:
        async with long.begin() as connection:
            await connection.execute(text(statement))
    if url.startswith("postgresql"):
        async with long.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            await connection.execute(text("VACUUM ANALYZE"))
    await long.dispose()


async def measure(name: str, url: str, repeat: int) -> Told:
    told: Told = []
    engine = make_engine(Storage(database_url=url))
    for what, actor, asked in QUESTIONS:
        times, ours = [], []
        for _ in range(repeat):
            query = read([(part.split("=")[0], part.split("=")[1]) for part in asked.split("&")], NOW, NAMES)
            began, used = time.perf_counter(), time.process_time()
            found = await listing(engine, actor, query)
            times.append(1000 * (time.perf_counter() - began))
            ours.append(1000 * (time.process_time() - used))
        days = (NOW - found.counts.matching_since_us) / 86_400_000_000
        took = f"{sorted(times)[repeat // 2]:.0f} / {min(times):.0f} / {min(ours):.0f}"
        told.append((what, f"{took} ({found.counts.matching} in {days:.1f} d)"))
        print(f"{name}: {told[-1]}", file=sys.stderr, flush=True)
    await engine.dispose()
    return told


def main() -> int:
    given = arguments(__doc__).parse_args()
    return compared(
        given,
        "page",
        "median / least / least CPU of this process (counted in so many days)",
        lambda url: asyncio.run(prepare(url, given.rows)),
        lambda name, url: asyncio.run(measure(name, url, given.repeat)),
    )


if __name__ == "__main__":
    sys.exit(main())
