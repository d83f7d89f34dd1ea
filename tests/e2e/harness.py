"""Runs `tollway serve` as a user does, in a process of its own, and reads what it left in the database."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

ROOT = Path(__file__).resolve().parents[2]
READY_S = 120.0  # a bound for a busy machine; it is a condition that is waited for
BASIC = 'price = { input = "1.00", output = "2.00", cache_read = "0.10" }'  # m-basic
FLAT = 'price = { input = "0", output = "10.00" }'  # m-flat


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def backend(name: str, url: str, *, model: str = "m-basic", price: str = BASIC, more: str = "") -> str:
    return f'[[backends]]\nname = "{name}"\nvendor = "openai-compatible"\nmodel = "{model}"\nbase_url = "{url}/v1"\n{price}\n{more}\n'


def route(name: str, *backends: str, more: str = "") -> str:
    names = ", ".join(f'"{one}"' for one in backends)
    return f'[[routes]]\nname = "{name}"\nbackends = [{names}]\n{more}\n'


@dataclass
class Gateway:
    folder: Path
    port: int
    database_url: str
    environ: dict[str, str]
    workers: int = 1
    process: subprocess.Popen[bytes] | None = None
    keys: dict[str, str] = field(default_factory=dict)
    clients: dict[str, openai.OpenAI] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def cli(self, *args: str, check: bool = True) -> str:
        """A `tollway` command with this gateway's configuration; its standard output."""
        done = subprocess.run(
            [sys.executable, "-m", "gateway", "--config", str(self.folder / "tollway.toml"), *args],
            cwd=ROOT,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"tollway {' '.join(args)} exited {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def admin(self, method: str, path: str, body: Any) -> Any:
        """A call of the admin API with the first admin key, which the first start printed."""
        found = re.search(r"First admin key, shown this once: (\S+)", self.log)
        assert found is not None, "no first admin key was printed"
        status, answer, _ = self.call(method, path, json.dumps(body).encode(), found[1])
        assert status < 300, answer
        return json.loads(answer)

    def key(self, team: str = "alpha", *more: str) -> str:
        """A new key of a team, which is made when it is not there. more: options of `tollway keys add`."""
        if team not in self.keys:
            self.admin("POST", "/admin/teams", {"name": team})
        if more:
            self.keys[team] = self.cli("keys", "add", "--team", team, "--quiet", *more).strip()
        else:
            self.keys[team] = self.admin("POST", "/admin/keys", {"team": team})["secret"]
        return self.keys[team]

    def budget(self, usd: str, per: str = "month", team: str = "alpha", **more: str) -> None:
        self.admin("PUT", "/admin/budgets", {"scope_kind": "team", "scope": team, "usd": usd, "per": per, **more})

    def client(self, key: str | None = None) -> openai.OpenAI:
        """The official client, one per key; `close` closes them."""
        key = key or self.keys["alpha"]
        if key not in self.clients:
            self.clients[key] = openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=30)
        return self.clients[key]

    def close(self) -> None:
        for client in self.clients.values():
            client.close()
        self.clients.clear()

    def get(self, path: str, key: str | None = None) -> tuple[int, bytes, Mapping[str, str]]:
        return self.call("GET", path, None, key)

    def call(
        self, method: str, path: str, body: bytes | None, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Status, body and headers (lower case) of one request, errors included."""
        request = urllib.request.Request(
            self.url + path, data=body, method=method, headers={"content-type": "application/json", **(headers or {})}
        )
        if key is not None:
            request.add_header("authorization", f"Bearer {key}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read(), {name.lower(): value for name, value in answer.headers.items()}
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), {name.lower(): value for name, value in error.headers.items()}

    def rows(self, query: str, **values: Any) -> list[dict[str, Any]]:
        """Rows of the gateway's database."""
        return asyncio.run(self._rows(query, values))

    async def _rows(self, query: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        engine = create_async_engine(self.database_url)
        try:
            async with engine.connect() as connection:
                return [dict(row) for row in (await connection.execute(text(query), values)).mappings()]
        finally:
            await engine.dispose()

    def settled(self, count: int, within_s: float = 8.0) -> list[dict[str, Any]]:
        """All usage rows, once there are `count` of them; AssertionError when there are more or they don't come."""
        end = time.monotonic() + within_s
        while True:
            found = self.rows("SELECT * FROM usage ORDER BY started_at_us, id")
            if len(found) >= count or time.monotonic() > end:
                assert len(found) == count, f"{len(found)} usage rows, {count} expected"
                return found
            time.sleep(0.1)

    def wait_ready(self, within_s: float = READY_S, since: int = 0) -> None:
        """Until every worker serves, by what the log says after its first `since` characters."""
        end = time.monotonic() + within_s
        while time.monotonic() < end:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"the gateway ended with {self.process.returncode}:\n{self.log[-3000:]}")
            with contextlib.suppress(OSError):
                all_started = self.workers == 1 or self.log[since:].count('"event": "ready"') >= self.workers
                if all_started and self.get("/health/ready")[0] == 200:
                    return
            time.sleep(0.05)
        raise AssertionError(f"not ready within {within_s} s:\n{self.log[-3000:]}")

    def start(self) -> None:
        since = len(self.log) if (self.folder / "log").exists() else 0
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gateway", "--config", str(self.folder / "tollway.toml"), "serve"],
                cwd=ROOT,
                env=self.environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait_ready(since=since)

    def stop(self, within_s: float = 20.0) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"did not stop within {within_s} s:\n{self.log[-3000:]}") from None


def prepared(
    folder: Path, config: str, *, server: str = "", database_url: str = "", redis_url: str = "", state: str = "", **environ: str
) -> Gateway:
    """A gateway that has its files but does not run. config: backends and routes; server: lines of [server]."""
    port = free_port()
    state = state or str(folder / "state")
    storage = f'state_dir = "{state}"\ndatabase_url = "{database_url}"\nredis_url = "{redis_url}"\n'
    (folder / "tollway.toml").write_text(f"[server]\nport = {port}\n{server}\n[storage]\n{storage}\n{config}")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TOLLWAY_")}
    database_url = database_url or f"sqlite+aiosqlite:///{state}/tollway.db"
    workers = re.search(r"^workers = (\d+)", server, re.MULTILINE)
    return Gateway(folder, port, database_url, {**clean, **environ}, workers=int(workers[1]) if workers else 1)


@contextlib.contextmanager
def running(folder: Path, config: str, **options: Any) -> Iterator[Gateway]:
    gateway = prepared(folder, config, **options)
    if gateway.database_url.startswith("postgresql"):
        gateway.cli("migrate")
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.close()
        if gateway.process is not None and gateway.process.poll() is None:
            gateway.stop()
