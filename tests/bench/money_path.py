"""The request path of one worker inside this process, in turns with its money and without: for a machine on which nothing else holds still.

Everything from the ASGI call on is real (key, route, choice, attempt, metering, settlement, SQLite); the backend is scripted and there is
no network. CPU time of all threads, ledger rows included: a turn ends when its last row is in SQL.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

import migrations
from gateway import people
from gateway.access import COMMAND_LINE
from gateway.app import Application, build
from gateway.attempts import Attempts
from gateway.auth import ensure_secret
from gateway.db.engine import make_engine
from gateway.log import sink
from gateway.money.accounts import Accounts
from gateway.settings import load
from tests.bench.money_worker import take_money_out

TURN = 500  # requests: as many as one transaction writes
CONFIG = """
[storage]
state_dir = "{state}"
[logging]
level = "error"
[[backends]]
name = "fast"
vendor = "scripted"
model = "fast"
price = {{ input = "0.15", output = "0.60" }}
max_output_tokens = 4096
script = '''
text = "one two three four five six seven eight"
'''
[[routes]]
name = "fast"
backends = ["fast"]
cache = "never"
"""


async def prepared(folder: Path) -> tuple[Application, str]:
    file = folder / "tollway.toml"
    file.write_text(CONFIG.format(state=folder / "state"))
    settings = load(file, {})
    settings.state.mkdir()
    await asyncio.to_thread(migrations.upgrade, f"sqlite+aiosqlite:///{settings.state}/tollway.db")
    engine = make_engine(settings.storage)
    await people.add_team(engine, "bench", actor=COMMAND_LINE)
    key, _ = await people.add_key(engine, (await ensure_secret(settings, engine))[0], people.NewKey(team="bench"), actor=COMMAND_LINE)
    await people.set_budget(
        engine, people.NewBudget(scope_kind="team", scope="bench", limit_nanousd=10**15, period="month"), actor=COMMAND_LINE
    )
    await engine.dispose()
    sink.stream = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")  # lines are made and written, to nowhere
    application = await build(settings, "0")
    await application.start()
    return application, key


async def request(application: Application, key: str) -> None:
    """One whole answer through the ASGI application."""
    body = json.dumps({"model": "fast", "messages": [{"role": "user", "content": "one two three four five"}]}).encode()
    headers = [(b"authorization", b"Bearer " + key.encode()), (b"content-length", str(len(body)).encode())]
    path = "/v1/chat/completions"
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}
    scope |= {"query_string": b"", "root_path": "", "scheme": "http", "http_version": "1.1", "server": ("x", 1), "client": ("x", 2)}
    asked = False
    gone: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            return await gone
        asked = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] != 200:
            sys.exit(f"a request failed: {message}")

    await application.asgi(scope, receive, send)  # type: ignore[arg-type]
    gone.cancel()


async def turn(application: Application, key: str) -> float:
    """CPU microseconds per request of one turn."""
    began = time.process_time()
    for start in range(0, TURN, 25):  # others on the loop get their turn, as they do between requests from a network
        for _ in range(min(25, TURN - start)):
            await request(application, key)
        await asyncio.sleep(0)
    while application.parts.accounts.stats().queued:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return (time.process_time() - began) / TURN * 1e6


async def main(turns: int) -> int:
    names = ((Attempts, "_reserve"), (Accounts, "intend"), (Accounts, "attempt_ended"), (Accounts, "settle"), (Accounts, "budgeted"))
    real = {(owner, name): getattr(owner, name) for owner, name in names}
    with tempfile.TemporaryDirectory() as folder:
        application, key = await prepared(Path(folder))
        await asyncio.sleep(2.5)  # the budget is known, the tokenizer is loaded
        gc.collect()
        gc.freeze()  # as a worker does
        for _ in range(2):
            await turn(application, key)
        found: dict[bool, list[float]] = {True: [], False: []}
        for number in range(2 * turns):
            whole = number % 4 in (0, 3)
            if not whole:
                take_money_out()
            found[whole].append(await turn(application, key))
            for (owner, name), value in real.items():
                setattr(owner, name, value)
        await application.finish()
    pairs = sorted(a - b for a, b in zip(found[True], found[False], strict=True))
    quarter = len(pairs) // 4
    print(f"with {median(found[True]):.0f}, without {median(found[False]):.0f} CPU us per request in {turns} turns of {TURN} each")
    print(f"money costs {median(pairs):.0f} us; the middle half of the pairs {pairs[quarter]:.0f} to {pairs[-quarter - 1]:.0f}")
    return int(median(pairs) > 60)


if __name__ == "__main__":
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(main(turns)))
