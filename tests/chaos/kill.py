"""kill -9 of gateway workers at random points under load: streams, failovers, clients that leave; against backends that keep their own log.

The workers are the gateway's own processes, started here without their supervisor, which would wait longer after each quick death.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from sqlalchemy import text

from gateway import people
from gateway.access import COMMAND_LINE
from gateway.auth import load_secrets
from gateway.child import environment
from gateway.money.audit import audit
from gateway.published import publish
from gateway.settings import load
from tests.chaos.fleet import ANSWER_S
from tests.conftest import Database
from tests.e2e.harness import BASIC, Gateway, backend, prepared, route
from tests.fakes.upstream import FakeUpstream, Received, Step, chat_answer, chat_chunks, json_reply, reset, sse_reply
from tests.fixtures.money import books

INPUT, OUTPUT = 1_000, 2_000  # nano-USD a token: m-basic
PROMPT = 12  # tokens, as the backends bill
KINDS = ("stream", "stream", "whole", "leave", "broken", "refused", "reset")
MONEY = "[money]\nadopt_scan_s = 0.5\nsegment_bytes = 1048576\n[cache]\nenabled = false\n[routing]\neject_after = 1000000\n"


class Seen(Struct):
    """What a client saw of one request. complete: to its end, with the cost it was told."""

    kind: str
    tokens: int = 0
    complete: bool = False
    told: int | None = None


class Call(Struct):
    """One line of a backend's log. billed: tokens of a whole answer or stream that went out to its end; None = it did not."""

    backend: str
    failed: bool
    received: Received
    tokens: int
    first_step: int

    @property
    def sent(self) -> int:
        return max(0, min(self.tokens, self.received.sent - self.first_step))


class Backends:
    """Two backends in this process and their logs, by the mark that every request carries."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.calls: dict[str, list[Call]] = {}
        self.first = FakeUpstream(lambda received: self._reply("one", received))
        self.second = FakeUpstream(lambda received: self._reply("two", received))

    def _reply(self, name: str, received: Received) -> list[Step]:
        asked = received.json()
        mark, kind = asked["messages"][0]["content"].split()[:2]
        tokens = self.rng.randint(1, 40)
        failed = name == "one" and kind in ("refused", "reset")
        self.calls.setdefault(mark, []).append(Call(name, failed, received, tokens, 2))
        if failed:
            return [reset()] if kind == "reset" else json_reply({"error": {"message": "no"}}, 500)
        if not asked.get("stream"):
            return json_reply(chat_answer("x", usage=(PROMPT, tokens)), delay_s=self.rng.random() * 0.2)
        cut = kind == "broken"
        chunks = chat_chunks(["x"] * tokens, usage=None if cut else (PROMPT, tokens), finish=None if cut else "stop")
        return sse_reply(chunks, delay_s=0.01, done=not cut, end=reset() if cut else None) if cut else sse_reply(chunks, delay_s=0.01)


class Worker:
    """A gateway worker, as the supervisor would start it."""

    def __init__(self, number: int, settings: Path, log: Path) -> None:
        self.command = [sys.executable, "-P", "-m", "gateway.worker", str(number), "--settings", str(settings)]
        self.log = log
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, env=environment()
            )
        assert self.process.stdout is not None
        while (line := await asyncio.wait_for(self.process.stdout.readline(), ANSWER_S)) != b"ready\n":
            assert line, "a worker did not start: " + self.log.read_text()[-2000:]

    async def kill(self) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), ANSWER_S)


async def run(
    database: Database,
    folder: Path,
    rng: random.Random,
    say: Callable[[str], None],
    *,
    kills: int = 200,
    workers: int = 3,
    clients: int = 12,
) -> None:
    backends = Backends(rng)
    async with backends.first, backends.second:
        gateway, settings = await prepare(database, folder, backends)
        fleet = [Worker(number, settings, folder / "log") for number in range(workers)]
        await asyncio.gather(*(worker.start() for worker in fleet))
        try:
            seen: dict[str, Seen] = {}
            loading = [asyncio.create_task(client(gateway, f"c{number}", rng, seen)) for number in range(clients)]
            await killing(fleet, kills, rng, say, seen)
            for task in loading:
                task.cancel()
            await asyncio.wait(loading)
            await adopted(folder / "state" / "journal", workers)
            assert [await worker.stop() for worker in fleet] == [0] * workers
        finally:
            for worker in fleet:
                await worker.kill()
        await check(database, backends, seen, say)
    assert os.listdir(folder / "state" / "journal") == []  # noqa: PTH208


async def prepare(database: Database, folder: Path, backends: Backends) -> tuple[Gateway, Path]:
    """A gateway's files, a team with a budget and a key; and the settings that its workers read."""
    more = "max_output_tokens = 100\nfirst_byte_s = 5.0\n"
    config = (
        MONEY
        + backend("one", backends.first.url, price=BASIC, more=more)
        + backend("two", backends.second.url, price=BASIC, more=more)
        + route("assistant", "one", "two")
    )
    (folder / "secret").write_text("c0ffee" * 11)
    server = f'secret = ["file:{folder}/secret"]'
    gateway = prepared(folder, config, server=server, database_url=database.url, state=str(folder / "state"))
    settings = load(folder / "tollway.toml", gateway.environ)
    settings.state.mkdir(mode=0o700, exist_ok=True)
    await people.add_team(database.engine, "alpha", actor=COMMAND_LINE)
    gateway.keys["alpha"], _ = await people.add_key(
        database.engine, load_secrets(settings)[0], people.NewKey(team="alpha"), actor=COMMAND_LINE
    )
    await people.set_budget(
        database.engine, people.NewBudget(scope_kind="team", scope="alpha", limit_nanousd=10**12, period="total"), actor=COMMAND_LINE
    )
    return gateway, publish(settings, settings.state)


async def killing(fleet: list[Worker], kills: int, rng: random.Random, say: Callable[[str], None], seen: dict[str, Seen]) -> None:
    """Kill one of them at a random moment while the others serve, and start it again."""
    began = time.monotonic()
    for number in range(1, kills + 1):
        await asyncio.sleep(rng.random() * 0.5)
        worker = rng.choice(fleet)
        await worker.kill()
        await worker.start()
        if number % 10 == 0 or number == kills:
            done = sum(one.complete for one in seen.values())
            say(f"{number} kills in {time.monotonic() - began:.0f} s; {len(seen)} requests so far, {done} of them answered to the end")


async def adopted(journals: Path, workers: int) -> None:
    for _ in range(int(ANSWER_S / 0.1)):
        if len([name for name in os.listdir(journals) if not name.startswith(".")]) == workers:  # noqa: PTH208
            return
        await asyncio.sleep(0.1)
    raise AssertionError("journals of the dead were not adopted")


async def client(gateway: Gateway, name: str, rng: random.Random, seen: dict[str, Seen]) -> None:
    number = 0
    while True:
        number += 1
        mark = f"{name}-{number}"
        seen[mark] = Seen(rng.choice(KINDS))
        try:
            await asyncio.wait_for(request(gateway, mark, seen[mark], rng.randint(1, 15)), 30)
        except (OSError, asyncio.IncompleteReadError):  # its worker was killed, or is not there yet
            await asyncio.sleep(0.05)


async def request(gateway: Gateway, mark: str, seen: Seen, leave_after: int) -> None:
    """One request over a connection of its own; what came of the answer is noted as it comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    try:
        asked: dict[str, Any] = {"model": "assistant", "messages": [{"role": "user", "content": f"{mark} {seen.kind}"}], "max_tokens": 50}
        body = json.dumps(asked | ({} if seen.kind == "whole" else {"stream": True})).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.keys['alpha']}\r\nconnection: close\r\n"
        writer.write(f"{head}x-tollway-tag: {mark}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        while line := await reader.readline():
            if b'"content":"x"' in line.replace(b" ", b""):
                seen.tokens += 1
            if line.lower().startswith((b"x-tollway-cost-usd: ", b": tollway-cost-usd ")):
                seen.told = nanousd(line.split()[-1].decode())
            if b"[DONE]" in line or (seen.kind == "whole" and b'"usage"' in line):
                seen.complete = True
            if seen.kind == "leave" and seen.tokens >= leave_after:
                return
    finally:
        writer.transport.abort()


def nanousd(printed: str) -> int:
    whole, _, parts = printed.partition(".")
    return int(whole) * 1_000_000_000 + int(parts)


async def check(database: Database, backends: Backends, seen: dict[str, Seen], say: Callable[[str], None]) -> None:
    """The ledger against the backends' logs and what the clients saw."""
    async with database.engine.connect() as connection:
        found = (await connection.execute(text("SELECT * FROM usage"))).mappings().all()
        tried = (await connection.execute(text("SELECT * FROM attempts"))).mappings().all()
    rows = {row["tag"]: row for row in found}
    assert len(rows) == len(found), "a request stands twice in the ledger"
    ends: dict[Any, list[Any]] = {}
    for end in tried:
        ends.setdefault(end["request_id"], []).append(end)
    for mark, calls in backends.calls.items():
        assert mark in rows, f"{mark} reached a backend and has no row"
        compare(mark, rows[mark], ends.get(rows[mark]["id"], []), calls)
    for mark, one in seen.items():
        if one.complete and one.told is not None:
            assert rows[mark]["cost"] == one.told, f"{mark}: told {one.told}, booked {rows[mark]['cost']}"
            assert rows[mark]["outcome"] in ("completed", "failed")
    for mark, row in rows.items():
        if mark not in backends.calls and row["outcome"] != "unknown":  # who leaves while the request is being written pays its prompt
            most = PROMPT * INPUT if row["outcome"] == "cancelled" else 0
            assert row["cost"] <= most, f"{mark} reached no backend and costs {row['cost']}"
    sound = await books(database.engine)
    sound.assert_sound()
    assert (sound.leased, sound.states) == (0, {"closed"})
    assert sum(sound.spent.values()) == sound.cost
    assert (await audit(database.engine)).broken == []
    say(f"{len(rows)} rows for {len(backends.calls)} requests that reached a backend, {sound.outcomes}")


def compare(mark: str, row: Any, ends: list[Any], calls: list[Call]) -> None:
    """One request: every call has its attempt; what was settled is what the backend billed, what is unknown is at least that."""
    for name in ("one", "two"):
        attempts, called = [end for end in ends if end["backend"] == name], [call for call in calls if call.backend == name]
        assert len(attempts) >= len(called), f"{mark}: {len(called)} calls of {name}, {len(attempts)} attempts"
    true = sum(0 if call.failed else PROMPT * INPUT + call.sent * OUTPUT for call in calls)
    if row["outcome"] == "unknown":
        assert row["cost"] >= true, f"{mark}: unknown at {row['cost']}, generated {true}"
        return
    good = [call for call in calls if not call.failed]
    if row["outcome"] == "completed":
        assert [end["outcome"] for end in ends].count("completed") == 1
        assert row["cost"] == sum(end["cost"] for end in ends)
        billed = PROMPT * INPUT + good[-1].tokens * OUTPUT
        assert ends[-1]["cost"] == billed, f"{mark}: booked {ends[-1]['cost']}, billed {billed}"
        return
    for end in ends:  # cut, left or failed: no more than was sent, counted by us
        sent = max((call.sent for call in good if call.backend == end["backend"]), default=0)
        assert end["output_tokens"] <= sent, f"{mark}: {end['output_tokens']} tokens booked, {sent} sent"
