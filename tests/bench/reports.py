"""How long reports take over many ledger rows, on SQLite and on Postgres, and whether a rebuild makes the same figures.

    python tests/bench/reports.py [--rows 1000000] [--databases sqlite,postgres] [--repeat 5] [--rebuild sqlite,postgres]

Rows are made by the database itself: a month of 24 teams, 3 keys each, 10 models on 5 vendors, 3 tags, failures, failovers, cancelled,
cached and refused requests. Their roll-ups are added up by SQL of this file, and then made anew by the code of `tollway ledger rebuild`
(which takes minutes): every row must be the same. Prints a table in Markdown.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gateway.db.columns import CLASSES  # noqa: E402
from gateway.db.engine import make_engine  # noqa: E402
from gateway.errors import InvalidRequest  # noqa: E402
from gateway.money import latencies  # noqa: E402
from gateway.money.ledger import BUCKET_US, DAY_US, HOUR_US  # noqa: E402
from gateway.money.pricing import usd  # noqa: E402
from gateway.money.rebuild import rebuild  # noqa: E402
from gateway.money.reports import Asked, Report, spend  # noqa: E402
from gateway.money.settling import settle  # noqa: E402
from gateway.settings import Storage  # noqa: E402
from tests.bench.million import Told, arguments, compared  # noqa: E402

MONTH_US = 30 * DAY_US
START_US = time.time_ns() // 1000 // HOUR_US * HOUR_US - MONTH_US  # the thirty days before this hour
TABLES = ("rollups", "latency_rollups", "coarse_rollups", "coarse_latency_rollups")
TEAMS, KEYS, MODELS, CHUNK = 24, 3, 10, 100_000


def day(number: int) -> str:
    return datetime.fromtimestamp((START_US + number * DAY_US) / 1e6, UTC).date().isoformat()


REPORTS = (
    ("month by team", Asked(by=("month", "team"))),
    ("month by team, Europe/Berlin", Asked(by=("month", "team"), timezone="Europe/Berlin")),
    ("month by team, Asia/Kathmandu", Asked(by=("month", "team"), timezone="Asia/Kathmandu")),
    ("29 days of Europe/Berlin by team", Asked(since=day(0), until=day(29), timezone="Europe/Berlin")),
    ("day by team", Asked(by=("day", "team"))),
    ("day by team, Europe/Berlin", Asked(by=("day", "team"), timezone="Europe/Berlin")),
    ("one team by model and day", Asked(by=("model", "day"), team="team-7")),
    ("one day by team, model and tag", Asked(by=("team", "model", "tag"), since=day(9), until=day(10))),
    ("one team's month by route and model: a statement", Asked(by=("route", "model"), team="team-7", latencies=False)),
    ("month by model", Asked(by=("month", "model"))),
    ("month by team, key, model and tag", Asked(by=("month", "team", "key", "model", "tag"))),
)


async def budgets(engine: AsyncEngine) -> None:
    """One of the organisation and one of every team, with the windows that a worker opens."""
    async with engine.begin() as connection:
        for kind, ids in (("organisation", (1,)), ("team", range(1, TEAMS + 1))):
            for scope in ids:
                made = text(
                    "INSERT INTO budgets (scope_kind, scope_id, period, limit_nanousd, created_at_us)"
                    " VALUES (:kind, :scope, 'month', 1000000000000, 0)"
                )
                await connection.execute(made, {"kind": kind, "scope": scope})
        window = "INSERT INTO budget_windows (budget_id, starts_at_us, ends_at_us, spent) SELECT id, 0, 99999999999999999, 5 FROM budgets"
        await connection.execute(text(window))


def drawn(salt: int, below: int) -> str:
    """A number of a row, the same in both databases: the middle bits of its number times a large odd one."""
    return f"(((n * 2654435761 + {salt} * 40503) % 4294967296) / 65536 * {2 * salt + 69069} % 65536 % {below})"


def usage_rows(first: int, last: int, rows: int, dialect: str) -> str:
    numbers = (
        f"WITH RECURSIVE numbers(n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM numbers WHERE n < {last - 1})"
        if dialect == "sqlite"
        else f"WITH numbers AS (SELECT n::bigint AS n FROM generate_series({first}, {last - 1}) AS n)"
    )
    uid = "randomblob(16)" if dialect == "sqlite" else "gen_random_uuid()"
    no = "zeroblob(16)" if dialect == "sqlite" else "'00000000-0000-0000-0000-000000000000'::uuid"
    flag = ("(fate % 9 = 0)", "true") if dialect == "postgresql" else ("fate % 9 = 0", "1")
    started = f"{START_US} + n * {MONTH_US // rows} + {drawn(1, 60000)}"
    return f"""
    INSERT INTO usage (id, started_at_us, ended_at_us, org_id, team_id, key_id, route, backend, vendor, model, price_id, surface, tag,
        outcome, status, cost, saved, {", ".join(CLASSES[:2])}, output_tokens, estimated, streamed, ttft_ms, duration_ms, process_id)
    {numbers}
    SELECT {uid}, started, started + 1000 * (ttft + span), 1, team, team * 10 + {drawn(2, KEYS)},
        'route-' || (model % 4), 'backend-' || model,
        'vendor-' || (model % 5), 'model-number-' || model, 'p', 'openai_chat',
        CASE {drawn(3, 4)} WHEN 0 THEN 'nightly' WHEN 1 THEN 'evaluation' ELSE '' END, outcome, 200,
        CASE WHEN outcome IN ('cached', 'refused') THEN 0 WHEN fate = 50 THEN NULL ELSE cost END,
        CASE WHEN outcome = 'cached' THEN cost ELSE 0 END, 200 + {drawn(4, 4000)}, {drawn(5, 500)}, 20 + {drawn(6, 900)},
        {flag[0]}, {flag[1]}, CASE WHEN outcome IN ('refused', 'failed') THEN NULL ELSE ttft END,
        CASE WHEN outcome = 'refused' THEN 2 ELSE ttft + span END, {no}
    FROM (SELECT n, {started} AS started, 1 + {drawn(7, TEAMS)} AS team, {drawn(8, MODELS)} AS model, fate, cost, span, ttft,
            CASE WHEN fate < 3 THEN 'failed' WHEN fate < 5 THEN 'cancelled' WHEN fate < 9 THEN 'cached' WHEN fate < 10 THEN 'refused'
                ELSE 'completed' END AS outcome
          FROM (SELECT n, {drawn(9, 100)} AS fate, 10000 + {drawn(10, 60000)} * 100 AS cost,
                    (100 + {drawn(11, 100)}) << CAST({drawn(12, 7)} AS INTEGER) AS span,
                    (80 + {drawn(13, 80)}) << CAST({drawn(14, 4)} AS INTEGER) AS ttft FROM numbers) AS a) AS b
    """


def attempt_rows() -> str:
    """One attempt for each request that was sent anywhere; every 20th of the longer ones failed elsewhere first."""
    classes = ", ".join(CLASSES)
    columns = f"request_id, n, backend, vendor, model, price_id, outcome, cost, {classes}, estimated, ttft_ms, duration_ms"
    nothing = ", ".join("0" for _ in CLASSES)
    sent = "outcome NOT IN ('cached', 'refused')"
    return f"""
    INSERT INTO attempts ({columns})
    SELECT id, 2, backend, vendor, model, price_id, outcome, cost, {classes}, estimated, ttft_ms, duration_ms FROM usage WHERE {sent}
    UNION ALL
    SELECT id, 1, 'backend-down', 'vendor-0', 'model-number-0', 'p', 'failed', 0, {nothing}, estimated, NULL, 40
    FROM usage WHERE {sent} AND input_tokens % 20 = 0
    """


def rollup_rows() -> str:
    """The roll-ups by quarter, written down once more: what the program adds up row by row."""
    keys = ("org_id", "team_id", "key_id", "route")
    place = ("backend", "vendor", "model", "outcome")
    bucket = f"u.started_at_us - u.started_at_us % {BUCKET_US} AS bucket_us"
    sums = ("requests", "attempts", "cost", "saved", "unpriced", "estimated", "failovers", "ttft_count", "ttft_ms", "duration_ms", *CLASSES)
    own = (
        *("1 AS requests", "0 AS attempts", "0 AS cost", "u.saved AS saved", "CASE WHEN u.cost IS NULL THEN 1 ELSE 0 END AS unpriced"),
        "CASE WHEN u.estimated THEN 1 ELSE 0 END AS estimated",
        "CASE WHEN EXISTS (SELECT 1 FROM attempts f WHERE f.request_id = u.id AND f.outcome = 'failed' AND f.backend <> u.backend)"
        " THEN 1 ELSE 0 END AS failovers",
        *(
            "CASE WHEN u.ttft_ms IS NULL THEN 0 ELSE 1 END AS ttft_count",
            "coalesce(u.ttft_ms, 0) AS ttft_ms",
            "u.duration_ms AS duration_ms",
        ),
        *(f"CASE WHEN u.outcome IN ('cached', 'refused') THEN u.{name} ELSE 0 END AS {name}" for name in CLASSES),
    )
    tried = (
        "0",
        "1",
        "CASE WHEN u.cost IS NULL THEN 0 ELSE coalesce(a.cost, 0) END",
        *("0" for _ in range(7)),
        *(f"a.{n}" for n in CLASSES),
    )
    return f"""
    INSERT INTO rollups (bucket_us, {", ".join((*keys, *place, "tag", *sums))})
    SELECT bucket_us, {", ".join((*keys, *place, "tag", *(f"sum({name})" for name in sums)))} FROM (
        SELECT {bucket}, {", ".join(f"u.{name}" for name in (*keys, *place, "tag"))}, {", ".join(own)} FROM usage u
        UNION ALL
        SELECT {bucket}, {", ".join(f"u.{name}" for name in keys)}, {", ".join(f"a.{name}" for name in place)}, u.tag, {", ".join(tried)}
        FROM attempts a JOIN usage u ON u.id = a.request_id
    ) AS parts GROUP BY bucket_us, {", ".join((*keys, *place, "tag"))}
    """


def latency_rows(metric: str, column: str) -> str:
    """How many requests fell into which bin: its edges are looked for one by one."""
    lowest = [next(ms for ms in itertools.count(int(2 ** ((one - 1) / 4))) if latencies.bin_of(ms) >= one) for one in range(1, 90)]
    number = " ".join(f"WHEN {column} < {ms} THEN {place}" for place, ms in enumerate(lowest))
    keys = "org_id, team_id, key_id, route, backend, vendor, model, outcome, tag"
    counts = ", ".join(f"sum(CASE WHEN (bin + 3) % 4 = {place} THEN 1 ELSE 0 END)" for place in range(4))
    return f"""
    INSERT INTO latency_rollups (bucket_us, {keys}, metric, octave, n0, n1, n2, n3)
    SELECT bucket_us, {keys}, '{metric}', (bin + 3) / 4, {counts} FROM (
        SELECT started_at_us - started_at_us % {BUCKET_US} AS bucket_us, {keys}, CASE {number} END AS bin
        FROM usage WHERE {column} IS NOT NULL
    ) AS binned GROUP BY bucket_us, {keys}, (bin + 3) / 4
    """


async def add_up(engine: AsyncEngine) -> None:
    for statement in (rollup_rows(), latency_rows("ttft", "ttft_ms"), latency_rows("duration", "duration_ms")):
        async with engine.begin() as connection:
            await connection.execute(text(statement))
    await settle(engine)


async def keep(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        for table in TABLES:
            await connection.execute(text(f"CREATE TABLE kept_{table} AS SELECT * FROM {table}"))


async def compare(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        for table in TABLES:
            for one, other in ((table, f"kept_{table}"), (f"kept_{table}", table)):
                odd = await connection.execute(text(f"SELECT count(*) FROM (SELECT * FROM {one} EXCEPT SELECT * FROM {other}) AS odd"))
                assert odd.scalar_one() == 0, f"{one} has rows that {other} has not"


async def fill(engine: AsyncEngine, rows: int) -> None:
    """Rows and attempts, by the database; the engine must allow statements that take long."""
    async with engine.begin() as connection:
        await connection.execute(text("INSERT INTO organisations (id, name, created_at_us) VALUES (1, 'default', 0)"))
        for team in range(1, TEAMS + 1):
            await connection.execute(
                text("INSERT INTO teams (id, org_id, name, salt, created_at_us) VALUES (:id, 1, :name, '', 0)"),
                {"id": team, "name": f"team-{team}"},
            )
            for key in range(KEYS):
                await connection.execute(
                    text("INSERT INTO api_keys (id, team_id, public, digest, scopes, created_at_us) VALUES (:id, :team, :name, :d, '', 0)"),
                    {"id": team * 10 + key, "team": team, "name": f"key-{team}-{key}", "d": os.urandom(16)},
                )
    for first in range(0, rows, CHUNK):
        async with engine.begin() as connection:
            await connection.execute(text(usage_rows(first, min(rows, first + CHUNK), rows, engine.dialect.name)))
    async with engine.begin() as connection:
        await connection.execute(text(attempt_rows()))


async def prepare(url: str, rows: int) -> None:
    """The engine allows statements that take long."""
    long = create_async_engine(url)
    await fill(long, rows)
    await add_up(long)
    await long.dispose()


async def measure(name: str, url: str, repeat: int, again: bool) -> Told:
    told: Told = []
    long = create_async_engine(url)
    if again:
        await keep(long)
    if name == "Postgres":
        async with long.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            await connection.execute(text("VACUUM ANALYZE"))
    engine = make_engine(Storage(database_url=url))
    try:
        if again:
            told.append(("rebuild of all roll-ups", await rebuilt(engine)))
            await compare(long)
            print(f"{name}: rebuilt, every row the same: {told[-1][1]}", file=sys.stderr, flush=True)
        for what, asked in REPORTS:
            times, ours = [], []
            try:
                report = await spend(engine, asked)
            except InvalidRequest as error:  # Postgres ends a statement after five seconds
                told.append((what, f"refused: {error.message}"))
                continue
            await check(engine, asked, report)
            for _ in range(repeat):
                began, used = time.perf_counter(), time.process_time()
                report = await spend(engine, asked)
                times.append(1000 * (time.perf_counter() - began))
                ours.append(1000 * (time.process_time() - used))
            told.append((what, figures_of(times, ours)))
            print(f"{name}: {told[-1]}", file=sys.stderr, flush=True)
    finally:
        await long.dispose()
        await engine.dispose()
    return told


def figures_of(times: list[float], ours: list[float]) -> str:
    return f"{sorted(times)[len(times) // 2]:.0f} / {min(times):.0f} / {sorted(ours)[len(ours) // 2]:.0f}"


async def rebuilt(engine: AsyncEngine) -> str:
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    await rebuild(engine)
    used = resource.getrusage(resource.RUSAGE_SELF)
    took = time.perf_counter() - began
    if engine.dialect.name == "postgresql":
        async with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
            for table in TABLES:
                await connection.execute(text(f"VACUUM ANALYZE {table}"))
    return f"{took:.0f} s, {used.ru_utime - before.ru_utime:.0f} s of CPU here, at most {used.ru_maxrss // 1024} MiB"


async def check(engine: AsyncEngine, asked: Asked, report: Report) -> None:
    """The total beside the ledger's own sum, where the report is of all of it."""
    if asked.team is None and asked.since is None:
        async with engine.connect() as connection:
            count, cost = (await connection.execute(text("SELECT count(*), CAST(sum(cost) AS BIGINT) FROM usage"))).one()
        assert (report.total.requests, report.total.cost) == (count, cost), f"{usd(report.total.cost)} is not {usd(cost)}"


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--rebuild", default="sqlite,postgres", help="of which databases the roll-ups are made anew")
    given = parser.parse_args()
    return compared(
        given,
        "report",
        f"median / least of {given.repeat} / CPU of this process",
        lambda url: asyncio.run(prepare(url, given.rows)),
        lambda name, url: asyncio.run(measure(name, url, given.repeat, name.lower() in given.rebuild)),
    )


if __name__ == "__main__":
    sys.exit(main())
