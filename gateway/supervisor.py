"""`tollway serve`: prepares once, then keeps N workers and one engine per local backend alive; signals, drain, reload.

    claim port, lock state folder -> publish settings -> engines + prepare -> workers -> (SIGHUP or a worker's word: reload)*
    -> SIGTERM: drain -> exit

Knows no request. Standard library and msgspec only, so that it starts at once and stays small.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from gateway import listen, reloads
from gateway.child import Child, Log, python, run_once
from gateway.prepared import is_prepared, mark, why_not
from gateway.published import point_current, publish, write_settings
from gateway.settings import EXIT_CONFIG, EXIT_NOT_YET, ConfigError, Settings, has_local_libraries

FETCHABLE = frozenset({"smollm2-135m", "all-minilm-l6-v2"})  # what `local_engine fetch` knows; a test compares
DRAIN_MARGIN_S = 25.0  # beyond drain_s, for cancelled requests, flush and close, before SIGKILL
ENGINE_STOP_S = 10.0
PREPARE_AGAIN_S = 3.0
EXIT_FAILED = 1
KEPT_ON_RELOAD = ("host", "port", "workers", "server")


def run(read: Callable[[], Settings], file: Callable[[], Path | None] = lambda: None) -> int:
    """Serve until told to stop; the exit status. `read` gives the checked settings and raises ConfigError; a reload calls it again. `file`
    names the file that it reads, if any."""
    settings = read()
    log = make_log(settings.logging.format)
    try:
        with lock(make_state(settings.state, log)), claimed(settings) as (settings, claim):
            return asyncio.run(Supervisor(settings, read, log, file).run(claim))
    except StartError as error:
        log(str(error), level="error")
        return EXIT_FAILED


class StartError(Exception):
    """Something outside the configuration is in the way; the message says what and what to do."""


class Supervisor:
    """Holds the children; all its decisions are taken on its one loop."""

    def __init__(self, settings: Settings, read: Callable[[], Settings], log: Log, file: Callable[[], Path | None] = lambda: None) -> None:
        self.settings = settings
        self.read = read
        self.file = file
        self.log = log
        self.path = publish(settings, settings.state)
        self.stopping = asyncio.Event()
        self.status = 0
        self.signals = 0
        self.terminal = has_terminal()
        self.workers: dict[str, Child] = {}
        self.engines: dict[str, Child] = {}
        self.tasks: dict[str, asyncio.Task[int]] = {}
        self._reload_wanted = asyncio.Event()
        self._asked: list[str] = []  # ids of reloads that workers asked for and that are not answered
        self.outcome = reloads.Outcome(source=reloads.source_of(file()), settings=settings.hash, since=time.time())
        reloads.write(settings.state, self.outcome)

    async def run(self, claim: socket.socket) -> int:
        """The whole life. `claim` holds the port until the workers take it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        self._start_engines()
        status = await self._prepare(self.path, self.settings)
        claim.close()
        if status in (0, EXIT_NOT_YET) and not self.stopping.is_set():
            self._start_workers()
            chores = [asyncio.create_task(self._reloads())]
            chores += [asyncio.create_task(self._prepare_later())] if status else []
            await self.stopping.wait()
            for chore in chores:
                chore.cancel()
        else:
            self.status = status
        self.stopping.set()
        await self._stop_all()
        self.log("stopped", status=self.status)
        return self.status

    def _on_stop(self) -> None:
        """First signal: drain. Second: the workers hurry. Third: SIGKILL."""
        self.signals += 1
        self.stopping.set()
        if self.signals == 2:
            for worker in self.workers.values():
                worker.stop()
        elif self.signals > 2:
            for child in (*self.workers.values(), *self.engines.values()):
                child.kill()

    def _on_hangup(self) -> None:
        """SIGHUP asks for a reload, unless the kernel sends it because the terminal we were started in is closed."""
        if self.terminal and not has_terminal():
            self._on_stop()
        else:
            self._reload_wanted.set()

    async def _prepare(self, path: Path, settings: Settings) -> int:
        """Schema, secret, prices: in a child, whose imports this process never needs. Its exit status; 0 when told to stop meanwhile."""
        if is_prepared(settings):
            return 0
        status = await run_once(python("gateway.prepare", "--settings", str(path)), self.stopping)
        if self.stopping.is_set():
            return 0
        if status == 0:
            mark(settings)
        else:
            self.log("not prepared", level="error", status=status)
        return status

    async def _prepare_later(self) -> None:
        """Ask again until the database can be used; workers that wait for it see that by themselves."""
        while True:
            await asyncio.sleep(PREPARE_AGAIN_S)
            status = await self._prepare(self.path, self.settings)
            if status == EXIT_CONFIG:
                self._end(status)
            if status != EXIT_NOT_YET:
                return

    def _end(self, status: int) -> None:
        self.status = status
        self.stopping.set()

    def _start_workers(self) -> None:
        for old in (self.settings.state / "metrics").glob("worker-*"):  # of workers that are no more
            old.unlink(missing_ok=True)
        for number in range(self.settings.server.workers):
            name = str(number)
            worker = Child(f"worker {name}", lambda name=name: self._worker_command(name), self.log, self.settings.server.silent_worker_s)  # type: ignore[misc]
            worker.on_ready = lambda worker=worker: self._on_ready(worker)  # type: ignore[misc]
            worker.on_line = self._on_line
            self.workers[name] = worker
            self._keep(worker)

    def _worker_command(self, name: str) -> list[str]:
        return python("gateway.worker", name, "--settings", str(self.path))

    def _on_ready(self, worker: Child) -> None:
        self.log("ready", child=worker.name)
        if worker.restarts == 0 and all(one.ready for one in self.workers.values()):
            server = self.settings.server
            host = f"[{server.host}]" if ":" in server.host else server.host
            self.log("serving", address=f"http://{host}:{server.port}", workers=server.workers, server=server.server)

    def _keep(self, child: Child) -> None:
        task = asyncio.create_task(child.keep())
        self.tasks[child.name] = task
        task.add_done_callback(lambda done: self._on_end(child, done))

    def _on_end(self, child: Child, done: asyncio.Task[int]) -> None:
        """A child that will not come back: told to stop, or its configuration cannot work, which ends us all."""
        if self.tasks.get(child.name) is done:
            del self.tasks[child.name]
        if self.stopping.is_set() or done.cancelled():
            return
        error = done.exception()
        status = EXIT_FAILED if error is not None else done.result()
        if status:
            self.log("cannot go on", level="error", child=child.name, status=status, error=repr(error) if error is not None else "")
            self._end(status)

    def _start_engines(self) -> None:
        """Engines of the settings that do not run yet, and the end of those that the settings no longer name."""
        wanted = {backend.name: backend for backend in self.settings.backends if backend.vendor == "local"}
        for name in [name for name in self.engines if name not in wanted]:
            self.engines.pop(name).stop()
        if wanted and not has_local_libraries():
            self.log(
                "a local backend needs the libraries of its extra: pip install 'tollway[local]'", level="error", backends=sorted(wanted)
            )
            return
        for model in {backend.model for backend in wanted.values()}:
            self._fetch(model)
        for name in wanted:
            if name not in self.engines:
                silent_s = self.settings.local_engine.silent_s
                self.engines[name] = Child(f"engine {name}", lambda name=name: self._engine_command(name), self.log, silent_s)  # type: ignore[misc]
                self._keep(self.engines[name])
            elif self.engines[name].running != self._engine_command(name):
                self.engines[name].signal(signal.SIGTERM)  # it comes back with its new command

    def _engine_command(self, name: str) -> list[str]:
        engine, storage = self.settings.local_engine, self.settings.storage
        backend = next(backend for backend in self.settings.backends if backend.name == name)
        arguments = ["--socket", str(self.settings.socket(name)), "--model-dir", str(storage.models_path / backend.model)]
        arguments += ["--threads", str(engine.threads), "--precision", engine.precision]
        arguments += ["--max-sequences", str(engine.max_sequences), "--max-waiting", str(engine.max_waiting)]
        arguments += ["--max-step-tokens", str(engine.max_step_tokens), "--kv-bytes", str(engine.kv_bytes)]
        arguments += ["--kv-fraction", str(engine.kv_fraction), "--heartbeat"]
        arguments += ["--log-format", self.settings.logging.format, "--log-level", self.settings.logging.level]
        return python("local_engine", "serve", *arguments)

    def _fetch(self, model: str) -> None:
        """Download a model that is not there, while everything else serves; its engine looks for it every second."""
        name = f"fetch {model}"
        folder = self.settings.storage.models_path
        if (
            model not in FETCHABLE
            or not self.settings.local_engine.fetch
            or name in self.tasks
            or (folder / model / "config.json").exists()
        ):
            return
        self.log("fetching a model; its backend answers 503 until it is there", model=model, folder=str(folder))
        self.tasks[name] = asyncio.create_task(run_once(python("local_engine", "fetch", model, "--into", str(folder)), self.stopping))
        self.tasks[name].add_done_callback(lambda done: self._on_fetched(model, done))

    def _on_fetched(self, model: str, done: asyncio.Task[int]) -> None:
        self.tasks.pop(f"fetch {model}", None)
        if done.cancelled() or self.stopping.is_set():
            return
        if done.exception() is not None or done.result() != 0:
            self.log(f"the model was not fetched; try again with: tollway models get {model}", level="error", model=model)
        else:
            self.log("model fetched", model=model)

    def _on_line(self, line: str) -> None:
        """A worker says more than that it lives."""
        if line.startswith(reloads.ASK):
            self._asked = [*self._asked, line.removeprefix(reloads.ASK)][-reloads.IDS_KEPT :]
            self._reload_wanted.set()

    async def _reloads(self) -> None:
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            asked, self._asked = self._asked, []
            source = reloads.source_of(self.file())
            outcome = await self._reload(source)
            self.outcome = replace(outcome, tried=time.time(), ids=(*self.outcome.ids, *asked)[-reloads.IDS_KEPT :])
            reloads.write(self.settings.state, self.outcome)

    async def _reload(self, source: reloads.Source) -> reloads.Outcome:
        """Check once, publish, tell the workers. Settings that cannot work change nothing; log and outcome say why."""
        try:
            fresh, kept = self._kept(self.read())
        except ConfigError as error:
            return self._refused(str(error))
        path = write_settings(fresh, fresh.state)
        if await self._prepare(path, fresh) != 0:
            if path != self.path:
                path.unlink(missing_ok=True)
            return self._refused(why_not(fresh.state) or "preparation failed, see the log")
        point_current(path)
        self.settings, self.path = fresh, path
        self._start_engines()
        for worker in self.workers.values():
            if worker.ready:  # one that is starting looks for itself when it is
                worker.signal(signal.SIGUSR1)
        self.log("reloaded", settings=path.name)
        return reloads.Outcome(source=source, settings=fresh.hash, since=time.time(), kept=tuple(kept))

    def _refused(self, why: str) -> reloads.Outcome:
        self.log("reload refused", level="error", error=why)
        return replace(self.outcome, refused=why, kept=())

    def _kept(self, fresh: Settings) -> tuple[Settings, list[str]]:
        """Fresh settings with what only a restart can change kept as it is, and said so: its names."""
        old = self.settings
        changed = [f"server.{name}" for name in KEPT_ON_RELOAD if getattr(fresh.server, name) != getattr(old.server, name)]
        changed = [name for name in changed if not (name == "server.port" and fresh.server.port == 0)]
        changed += ["storage"] if fresh.storage != old.storage else []
        if changed:
            self.log("these settings change only with a restart", level="warning", settings=changed)
        kept = {name: getattr(old.server, name) for name in KEPT_ON_RELOAD}
        return replace(fresh, storage=old.storage, server=replace(fresh.server, **kept)), changed

    async def _stop_all(self) -> None:
        """Workers first, since they still use the engines; each group has its time, then SIGKILL."""
        self.log("stopping", workers=len(self.workers), engines=len(self.engines), drain_s=self.settings.server.drain_s)
        await self._stop_group(list(self.workers.values()), self.settings.server.drain_s + DRAIN_MARGIN_S)
        await self._stop_group(list(self.engines.values()), ENGINE_STOP_S)
        if self.tasks:  # a download, told by `stopping`, or an engine that a reload took out
            await asyncio.wait(self.tasks.values(), timeout=ENGINE_STOP_S)

    async def _stop_group(self, children: list[Child], within_s: float) -> None:
        tasks = [self.tasks[child.name] for child in children if child.name in self.tasks]
        for child in children:
            child.stop()
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=within_s)
        if late:
            self.log("killed: did not stop in time", level="error", children=len(late), within_s=within_s)
            for child in children:
                child.kill()
            await asyncio.wait(late, timeout=ENGINE_STOP_S)


def has_terminal() -> bool:
    """Whether stdin is a terminal that is still there."""
    try:
        os.tcgetpgrp(0)
    except OSError:
        return False
    return True


def make_state(state: Path, log: Log) -> Path:
    """The state folder, private when we make it."""
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StartError(
            f"the state folder {state} cannot be made ({error.strerror}): set storage.state_dir to a folder that can"
        ) from None
    if state.stat().st_mode & 0o077:
        log(f"others can look into the state folder: chmod 700 {state}", level="warning")
    return state


@contextmanager
def lock(state: Path) -> Iterator[None]:
    """One supervisor per state folder; the kernel lets go of it when the process ends, however it ends."""
    with (state / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise StartError(
                f"another tollway serve (process {owner}) uses the state folder {state}: stop it, or set storage.state_dir"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def claimed(settings: Settings) -> Iterator[tuple[Settings, socket.socket]]:
    """The port, held against others until the workers take it; the settings with the number that was found for port 0."""
    server = settings.server
    try:
        claim = listen.claim(server.host, server.port)
    except OSError as error:
        remedy = "stop what uses it, or choose another port: TOLLWAY_SERVER__PORT=4001 tollway serve"
        raise StartError(f"{error.strerror or error}: {server.host} port {server.port}; {remedy}") from None
    with claim:
        yield replace(settings, server=replace(server, port=claim.getsockname()[1])), claim


def make_log(form: str) -> Log:
    """Lines in the shape of the workers' log, to stderr."""

    def log(event: str, *, level: str = "info", **fields: object) -> None:
        line = {
            "event": event,
            **fields,
            "process": "supervisor",
            "level": level,
            "time": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        }
        text = json.dumps(line, default=str) if form == "json" else f"{line['time']} [{level}] {event} {fields or ''}".rstrip()
        with suppress(OSError):  # a closed terminal or pipe must not end the service
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    return log
