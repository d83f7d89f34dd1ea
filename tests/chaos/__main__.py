"""`make chaos`: the long forms of what the tests prove in short. Each scenario says what it did; the exit status is 1 if a promise broke.

python -m tests.chaos [--seed N] [--database sqlite|postgres|both] [--list] [SCENARIO …]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import make_url

import migrations
from gateway.db.engine import make_engine
from gateway.settings import Storage
from tests.chaos import cap, engine, flush, histories, kill, pause
from tests.conftest import Database, _administer
from tests.fixtures.services import Postgres

Scenario = Callable[..., Awaitable[None]]

# name -> what runs, on which databases, its limit in seconds
SCENARIOS: dict[str, tuple[Scenario, tuple[str, ...], float]] = {
    "kill": (kill.run, ("sqlite", "postgres"), 3600.0),
    "cap": (cap.run, ("sqlite", "postgres"), 1200.0),
    "pause": (pause.run, ("sqlite", "postgres"), 900.0),
    "histories": (histories.run, ("sqlite",), 1800.0),
    "flush": (flush.run, ("sqlite", "postgres"), 600.0),
    "engine": (engine.run, ("sqlite",), 1800.0),
}


def say(line: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')}   {line}\n")
    sys.stdout.flush()


async def attempt(name: str, kind: str, server: str, folder: Path, seed: int) -> bool:
    """Run one scenario on a database of its own; True when every promise held."""
    scenario, _, limit_s = SCENARIOS[name]
    storage = await migrated(kind, server, folder, f"chaos_{name}")
    engine = make_engine(storage)
    began = time.monotonic()
    say(f"{name} on {kind}, seed {seed}")
    try:
        await asyncio.wait_for(
            scenario(Database(engine.dialect.name, storage.database_url, storage, engine), folder, random.Random(seed), say), limit_s
        )
    except Exception:  # noqa: BLE001 - the others are run all the same
        say(f"{name} on {kind} BROKE after {time.monotonic() - began:.0f} s: --seed {seed}\n{traceback.format_exc()}")
        return False
    finally:
        await engine.dispose()
    say(f"{name} on {kind} held, {time.monotonic() - began:.0f} s")
    return True


async def migrated(kind: str, server: str, folder: Path, name: str) -> Storage:
    if kind == "sqlite":
        url: Any = f"sqlite+aiosqlite:///{folder}/tollway.db"
    else:
        await _administer(server, f"CREATE DATABASE {name}")
        url = make_url(server).set(database=name)
    await asyncio.to_thread(migrations.upgrade, url)
    return Storage(state_dir=str(folder), database_url=url if isinstance(url, str) else url.render_as_string(hide_password=False))


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="all of them unless named: " + ", ".join(SCENARIOS))
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--database", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--kills", type=int, help="of the scenario kill, 200 unless said")
    told = parser.parse_args()
    if told.kills is not None:
        SCENARIOS["kill"] = (partial(kill.run, kills=told.kills), *SCENARIOS["kill"][1:])
    unknown = set(told.scenarios) - set(SCENARIOS)
    if unknown:
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    logging.getLogger("tollway").setLevel(logging.ERROR)  # what happens is meant to; the processes' own logs say more
    server = None if told.database == "sqlite" else Postgres()
    broken = []
    try:
        for name in told.scenarios or SCENARIOS:
            for kind in SCENARIOS[name][1]:
                if told.database not in (kind, "both"):
                    continue
                with tempfile.TemporaryDirectory(prefix="tollway-chaos-") as folder:
                    if not asyncio.run(attempt(name, kind, server.url if server else "", Path(folder), told.seed)):
                        broken.append(f"{name} on {kind}")
    finally:
        if server is not None:
            server.stop()
    say(f"broken: {', '.join(broken)}" if broken else "every promise held")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
