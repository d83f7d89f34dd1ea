"""One worker process: the application on an embedded server, its heartbeat, its reload and its drain.

`python -m gateway.worker ID --settings PATH`. Started by the supervisor, whose end it sees as the end of its own stdin. Knows no request.

Drain, the same on both servers: not ready -> stop accepting -> wait for requests in flight, up to drain_s -> cancel the rest, which then
send an error -> wait for them and the server -> flush and close -> exit 0.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import structlog
import uvloop

from gateway import listen, reloads
from gateway.app import Application, build
from gateway.log import setup_logging, sink
from gateway.published import load_published
from gateway.settings import EXIT_CONFIG, ConfigError, Server
from gateway.waiting import Waiting, problem

HEARTBEAT_S = 1.0
LISTEN_S = 5.0  # for the port to answer
SETTLE_S = 5.0  # for cancelled requests to say so and settle, and then for the server to close
FINISH_S = 10.0  # for what waits to be written
POLL_S = 0.02

log = structlog.get_logger("tollway.worker")


class HttpServer(Protocol):
    async def serve(self) -> None:
        """Serve until stopped, then until the last connection is through."""

    def stop(self) -> None:
        """Close the listening socket now; idle connections close, running answers go on."""


class Granian:
    def __init__(self, asgi: Any, server: Server) -> None:
        from granian.constants import Interfaces
        from granian.server.embed import Server as Embedded

        _, host = listen.address(server.host, server.port)
        # backpressure counts idle connections too, and one beyond it hangs: we admit by requests ourselves, with an answer
        self._server = Embedded(
            asgi,
            host,
            server.port,
            interface=Interfaces.ASGI,
            websockets=False,
            log_enabled=False,
            backlog=listen.SHARED_BACKLOG,
            backpressure=65536,
        )

    async def serve(self) -> None:
        await self._server.serve()

    def stop(self) -> None:
        self._server.stop()  # type: ignore[no-untyped-call]


class Uvicorn:
    def __init__(self, asgi: Any, server: Server) -> None:
        import uvicorn

        class Quiet(uvicorn.Server):
            @contextmanager
            def capture_signals(self) -> Iterator[None]:
                yield  # signals are this module's

        config = uvicorn.Config(
            asgi,
            log_config=None,
            access_log=False,
            lifespan="on",
            ws="none",
            server_header=False,
            timeout_keep_alive=75,
            backlog=listen.SHARED_BACKLOG,
        )
        self._server = Quiet(config)
        self._socket = listen.shared_socket(server.host, server.port)

    async def serve(self) -> None:
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True


class Worker:
    """The life of one process. `beat` writes a line to the supervisor."""

    def __init__(self, worker_id: str, path: Path, beat: Callable[[str], None]) -> None:
        self.worker_id = worker_id
        self.path = path
        self.settings = load_published(path)
        self.beat = beat
        self.stopping = asyncio.Event()
        self.hurry = asyncio.Event()
        self._reloads: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Serve until told to stop; the exit status."""
        self._listen_for_the_end()
        async with beating(self.beat):
            application = await self._build()
            await application.start()
            make = Granian if self.settings.server.server == "granian" else Uvicorn
            server = make(application.asgi, self.settings.server)
            serving = asyncio.create_task(server.serve())
            await self._announce(application)
            stopped = asyncio.create_task(self.stopping.wait())
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            failed = serving.done() and not self.stopping.is_set()
            stopped.cancel()
            log.info("draining", worker=self.worker_id, in_flight=len(application.in_flight))
            await drain(application, server, serving, self.settings.server.drain_s, self.hurry)
        if failed:
            log.error("the server ended by itself", worker=self.worker_id)
        return int(failed)

    async def _build(self) -> Application | Waiting:
        try:
            why = await problem(self.settings)
            if why:
                setup_logging(self.settings.logging.level, self.settings.logging.format)
                log.warning("not ready", worker=self.worker_id, why=why)
                return Waiting(self.settings, why, self._stop)
            application = await build(self.settings, self.worker_id)
            application.parts.standing.ask_reload = self.ask_reload
            return application
        except ValueError as error:  # what settings say that cannot work
            raise ConfigError(str(error)) from error

    async def _announce(self, application: Application | Waiting) -> None:
        """Say that the port answers, freeze what will live as long as the process, catch up with a reload that came during the start."""
        if not await listen.answers(self.settings.server.host, self.settings.server.port, LISTEN_S):
            log.warning("the port does not answer yet", worker=self.worker_id, port=self.settings.server.port)
        gc.collect()
        gc.freeze()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._start_reload, application)
        self.beat("ready")
        if self._current() != self.path:
            self._start_reload(application)

    def _listen_for_the_end(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        mode = os.fstat(0).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):  # a terminal or /dev/null says nothing about a parent
            loop.add_reader(0, self._read_stdin)

    def _read_stdin(self) -> None:
        if not os.read(0, 4096):
            asyncio.get_running_loop().remove_reader(0)
            self._stop()

    def _stop(self) -> None:
        if self.stopping.is_set():
            self.hurry.set()
        self.stopping.set()

    def ask_reload(self, request: str) -> None:
        """Tell the supervisor; reload.json names the request once it is answered."""
        self.beat(reloads.ASK + request)

    def _current(self) -> Path:
        link = self.path.parent / "current"
        return link.parent / link.readlink() if link.is_symlink() else self.path

    def _start_reload(self, application: Application | Waiting) -> None:
        task = asyncio.get_running_loop().create_task(self._reload(application))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload(self, application: Application | Waiting) -> None:
        path = self._current()
        try:
            await application.reload(load_published(path))
        except Exception as error:  # a supervisor of one reload: the settings in force stay, log and counter say why
            log.exception("reload failed", worker=self.worker_id, settings=path.name)
            if isinstance(application, Application):
                application.parts.telemetry.fault("reload", error)
                standing = application.parts.standing
                standing.refused, standing.refused_at = str(error), time.time()
        else:
            self.path = path
            log.info("reloaded", worker=self.worker_id, settings=path.name)


@asynccontextmanager
async def beating(beat: Callable[[str], None]) -> AsyncIterator[None]:
    """A line a second while the event loop turns."""

    async def beats() -> None:
        while True:
            beat("beat")
            await asyncio.sleep(HEARTBEAT_S)

    task = asyncio.create_task(beats())
    try:
        yield
    finally:
        task.cancel()


async def drain(
    application: Application | Waiting, server: HttpServer, serving: asyncio.Task[None], drain_s: float, hurry: asyncio.Event
) -> None:
    """The order of the module's docstring. Bounded by drain_s + 2 · SETTLE_S + FINISH_S."""
    application.begin_drain()
    server.stop()
    await empty(application.in_flight, drain_s, hurry)
    for exchange in tuple(application.in_flight):
        exchange.cancel("drain")
    if not await empty(application.in_flight, SETTLE_S, asyncio.Event()):
        log.error("requests did not end after they were cancelled", in_flight=len(application.in_flight))
    await asyncio.wait({serving}, timeout=SETTLE_S)
    try:
        await asyncio.wait_for(application.finish(), FINISH_S)
    except TimeoutError:  # a database that hangs; rows stand in the journal, which the next start adopts
        log.error("not everything was written in time", within_s=FINISH_S)


async def empty(in_flight: Collection[object], within_s: float, hurry: asyncio.Event) -> bool:
    """Whether the set became empty before the time was up or somebody hurried us."""
    end = time.monotonic() + within_s
    while in_flight and time.monotonic() < end and not hurry.is_set():  # noqa: ASYNC110 - a plain set: no request pays for an event
        await asyncio.sleep(POLL_S)
    return not in_flight


def heartbeat_pipe() -> Callable[[str], None]:
    """Writes lines to what was stdout, and lets stray prints go to stderr from now on."""
    pipe = os.dup(1)
    os.dup2(2, 1)
    os.set_blocking(pipe, False)

    def beat(word: str) -> None:
        with suppress(BlockingIOError, BrokenPipeError):  # a supervisor that does not read, or is gone: stdin tells
            os.write(pipe, word.encode() + b"\n")

    return beat


def run(main: Coroutine[Any, Any, int]) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m gateway.worker")
    parser.add_argument("id")
    parser.add_argument("--settings", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        worker = Worker(arguments.id, arguments.settings, heartbeat_pipe())
        status = run(worker.run())
    except ConfigError as error:
        sys.stderr.write(f"tollway worker {arguments.id}: {error}\n")
        status = EXIT_CONFIG
    with suppress(OSError):  # a closed terminal
        sink.flush()
    sys.exit(status)


if __name__ == "__main__":
    main()
