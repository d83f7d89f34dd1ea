"""One child process kept alive: started, watched by its heartbeat, restarted with back-off, stopped. Knows not what it runs.

A child's stdin is a pipe that nobody writes to: its end is how a child learns that the supervisor is gone, also after kill -9. Each child
is a session of its own, so that Ctrl-C reaches the supervisor alone. Standard library only.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import sysconfig
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from gateway.settings import EXIT_CONFIG

BACKOFF_S = 0.2  # doubled with each quick death
BACKOFF_MAX_S = 30.0
STEADY_S = 30.0  # a life this long forgets the deaths before it
START_S = 60.0  # for the first heartbeat: imports come before it
LINE_LIMIT = 64 * 1024  # bytes of one heartbeat line
HEARTBEATS = (b"ready\n", b"beat\n")


class Log(Protocol):
    def __call__(self, event: str, *, level: str = "info", **fields: object) -> None: ...


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules, never one that happens to have its name in the working folder."""
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """This process's environment, in which our modules are found where this one lies (a checkout that was not installed)."""
    environ = dict(os.environ)
    root = str(Path(__file__).resolve().parents[1])
    if root not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environ.get("PYTHONPATH"))))
    return environ


class Child:
    """A process that `keep` starts again whenever it ends, until `stop`. silent_s None: it has no heartbeat."""

    def __init__(self, name: str, command: Callable[[], Sequence[str]], log: Log, silent_s: float | None = None) -> None:
        self.name = name
        self.command = command
        self.log = log
        self.silent_s = silent_s
        self.on_ready: Callable[[], None] = lambda: None
        self.on_line: Callable[[str], None] = lambda line: None  # what it says beside its heartbeat
        self.running: list[str] = []  # the command of the present or last life
        self.process: Process | None = None
        self.ready = False
        self.restarts = 0
        self._served = False
        self._stopping = asyncio.Event()

    async def keep(self) -> int:
        """0 after `stop`; 78 when the child said so before it was ever ready: its configuration cannot work."""
        loop = asyncio.get_running_loop()
        deaths = 0
        while True:
            started = loop.time()
            status = await self._live()
            if self._stopping.is_set():
                return 0
            if status == EXIT_CONFIG and not self._served:
                return EXIT_CONFIG
            deaths = 0 if loop.time() - started >= STEADY_S else deaths
            delay = min(BACKOFF_MAX_S, BACKOFF_S * 2**deaths)
            deaths += 1
            self.restarts += 1
            self.log("child ended", level="error", child=self.name, status=status, restart_in_s=delay)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)
                return 0

    def signal(self, number: int) -> None:
        """To the process, if it lives."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    def stop(self) -> None:
        """SIGTERM, and no restart. A second call sends it again, which a worker takes as haste."""
        self._stopping.set()
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to it and to whatever it started."""
        self._stopping.set()
        self._kill_group()

    def _kill_group(self) -> None:
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def _live(self) -> int:
        """One life, from exec to exit status."""
        out = None if self.silent_s is None else PIPE
        self.running = list(self.command())
        self.process = await asyncio.create_subprocess_exec(
            *self.running, stdin=PIPE, stdout=out, start_new_session=True, limit=LINE_LIMIT, env=environment()
        )
        self.log("child started", child=self.name, pid=self.process.pid)
        if self._stopping.is_set():
            self.signal(signal.SIGTERM)
        watching = asyncio.create_task(self._watch(self.process))
        try:
            return await self.process.wait()
        finally:
            self.ready = False
            watching.cancel()
            if self.process.stdin is not None:
                self.process.stdin.close()

    async def _watch(self, process: Process) -> None:
        """Kill it when it has been silent for too long: hung, it would keep its share of the connections."""
        if process.stdout is None:
            return
        while True:
            limit = self.silent_s if self.ready else START_S
            try:
                line = await asyncio.wait_for(process.stdout.readline(), limit)
            except (TimeoutError, ValueError):  # ValueError: a line over the limit is no heartbeat
                self.log("child is silent: killed", level="error", child=self.name, pid=process.pid, silent_s=limit)
                self._kill_group()
                return
            if not line:
                return
            if line == b"ready\n" and not self.ready:
                self.ready = self._served = True
                self.on_ready()
            elif line not in HEARTBEATS:
                self.on_line(line.decode("utf-8", "replace").rstrip("\n"))


async def run_once(command: Sequence[str], stop: asyncio.Event) -> int:
    """Run a command to its end, or end it when `stop` is set. Its exit status; negative when a signal ended it."""
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, start_new_session=True, env=environment())
    stopped = asyncio.create_task(stop.wait())
    ended = asyncio.create_task(process.wait())
    try:
        await asyncio.wait({stopped, ended}, return_when=asyncio.FIRST_COMPLETED)
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        return await ended
    finally:
        stopped.cancel()
        if process.stdin is not None:
            process.stdin.close()
