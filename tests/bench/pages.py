"""How long every page of the console takes over a million ledger rows, HTML and all, on SQLite and Postgres.

    python tests/bench/pages.py [--rows 1000000] [--databases sqlite,postgres] [--repeat 5]

The rows are those of reports.py, with the marks of explorer.py, and 25 budgets. One worker's whole application is asked in this process, by
an admin and by a team's admin, each page `repeat` times after a first time that compiles its template. Prints a table in Markdown: median
and least.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sqlalchemy import select

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.app import build
from gateway.auth import ensure_secret
from gateway.db.engine import make_engine, reading
from gateway.db.tables import usage
from gateway.settings import BackendSettings, PriceSettings, RouteSettings, Server, Settings, Storage
from tests.bench.explorer import prepare
from tests.bench.million import Told, arguments, compared
from tests.bench.reports import MODELS, budgets
from tests.console.conftest import Site

SECRET = "TOLLWAY_BENCH_SECRET"
MONTH = datetime.now(UTC).date().isoformat()[:7]
RANGES = ("range=1h", "range=24h", "range=7d", "range=30d", "range=month")
EVERYBODY = (
    *(f"overview?{one}" for one in RANGES),
    "overview?range=24h&split=backend",
    "overview?range=30d&split=route",
    *(f"requests?{one}" for one in RANGES),
    "requests?range=30d&outcome=failed",
    "requests?range=30d&only=hedged",
    "requests?range=30d&sort=-cost",
    "requests?range=30d&route=route-1&backend=backend-5",
    "requests/{request}",
    *(f"reports?by={by}&range=30d" for by in ("team", "model", "backend", "route", "key", "tag", "day")),
    "reports?by=team&then=model&range=30d",
    "reports?by=key&then=tag&range=30d",
    "reports?by=key&then=model&range=30d",
    "reports?by=team&range=month",
    f"reports/statement?team=team-7&month={MONTH}",
    "teams",
    "teams/team-7",
    "teams/team-7?range=30d",
    "teams/team-7/limits",
    "teams/team-7/members",
    "budgets",
    "backends",
    "routes",
    "playground",
    "audit",
    "account",
)
ADMINS_ALONE = ("budgets/1", "budgets/9", "settings")


def settings_of(url: str, folder: str) -> Settings:
    price = PriceSettings(input="1", output="2")
    names = [f"backend-{number}" for number in range(MODELS)]
    backends = tuple(BackendSettings(name=name, vendor="scripted", model="m", price=price) for name in names)
    routes = tuple(RouteSettings(name=f"route-{number}", backends=tuple(names[number::4])) for number in range(4))
    server = Server(secret=(f"env:{SECRET}",))
    return Settings(server=server, storage=Storage(state_dir=folder, database_url=url), backends=backends, routes=routes)


@asynccontextmanager
async def worker(url: str) -> AsyncIterator[Site]:
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_of(url, folder)
        engine = make_engine(settings.storage)
        secret = (await ensure_secret(settings, engine))[0]
        await engine.dispose()
        application = await build(settings, "0")
        gc.collect()
        gc.freeze()  # as a worker does
        site = Site(application, secret)
        yield site
        await site.close()
        application.begin_drain()
        await application.finish()


async def some_request(site: Site) -> str:
    async with reading(site.parts.engine).connect() as connection:
        found = select(usage.c.id).where(usage.c.team_id == 7).order_by(usage.c.started_at_us.desc()).limit(1)
        return str((await connection.execute(found)).scalar_one())


async def measure(name: str, url: str, repeat: int) -> Told:
    told: Told = []
    async with worker(url) as site:
        request = await some_request(site)
        admin = await site.signed_in("admin", "team-1")
        leader = await site.signed_in("team_admin", "team-7")
        for who, browser, pages in (("", admin, (*EVERYBODY, *ADMINS_ALONE)), ("team's admin: ", leader, EVERYBODY)):
            for page in pages:
                times = []
                for turn in range(repeat + 1):
                    began = time.perf_counter()
                    answer = await browser.get(f"/console/{page.format(request=request)}")
                    if turn:
                        times.append(1000 * (time.perf_counter() - began))
                if answer.status_code == 403:
                    continue
                assert answer.status_code == 200, (page, answer.status_code, answer.text[-400:])
                told.append((f"{who}{page.format(request='…')}", f"{sorted(times)[len(times) // 2]:.0f} / {min(times):.0f}"))
                print(f"{name}: {told[-1]}", file=sys.stderr, flush=True)
    return told


async def filled(url: str, rows: int) -> None:
    await prepare(url, rows)
    engine = make_engine(Storage(database_url=url))
    await budgets(engine)
    await people.add_key(engine, b"s" * 32, people.NewKey(team="team-7", name="bench"), actor=COMMAND_LINE)
    await engine.dispose()


def main() -> int:
    given = arguments(__doc__).parse_args()
    os.environ.setdefault(SECRET, "b" * 43)
    return compared(
        given,
        "page",
        f"median / least of {given.repeat}",
        lambda url: asyncio.run(filled(url, given.rows)),
        lambda name, url: asyncio.run(measure(name, url, given.repeat)),
    )


if __name__ == "__main__":
    sys.exit(main())
