"""Parts of a worker that need no gateway; its whole life is in e2e/test_serve*.py."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway import worker
from gateway.child import environment, python
from gateway.money.accounts import CLOSE_WAIT_S
from gateway.worker import beating, drain, empty

ROOT = Path(__file__).parent.parent


async def test_empty_waits_until_nothing_is_in_flight() -> None:
    in_flight = {1}
    asyncio.get_running_loop().call_later(0.1, in_flight.clear)
    started = time.monotonic()
    assert await empty(in_flight, 5, asyncio.Event())
    assert 0.09 <= time.monotonic() - started < 4


async def test_empty_gives_up_in_time_or_when_hurried() -> None:
    started = time.monotonic()
    assert not await empty({1}, 0.1, asyncio.Event())
    hurry = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, hurry.set)
    assert not await empty({1}, 60, hurry)
    assert time.monotonic() - started < 30


class Recorder:
    """Stands for the application and for the server, and writes down in which order it was asked for what."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.in_flight: set[Recorder] = set()
        self.stopped = asyncio.Event()

    def begin_drain(self) -> None:
        self.said.append("not ready")

    def stop(self) -> None:
        self.said.append("stop accepting")
        self.stopped.set()

    async def serve(self) -> None:
        await self.stopped.wait()
        self.said.append("server ended")

    def cancel(self, reason: str) -> None:
        self.said.append(f"cancel {reason}")

    async def finish(self) -> None:
        self.said.append("finish")


async def test_the_order_of_a_drain() -> None:
    recorder = Recorder()
    request = Recorder()
    request.said = recorder.said
    recorder.in_flight = {request}
    serving = asyncio.create_task(recorder.serve())
    asyncio.get_running_loop().call_later(0.3, recorder.in_flight.clear)
    await drain(recorder, recorder, serving, 0.1, asyncio.Event())  # type: ignore[arg-type]
    assert recorder.said == ["not ready", "stop accepting", "server ended", "cancel drain", "finish"]


async def test_a_database_that_hangs_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written stands in the journal; the books have their own, shorter time, so that the rest is closed in order."""
    assert CLOSE_WAIT_S < worker.FINISH_S
    monkeypatch.setattr(worker, "FINISH_S", 0.05)
    recorder = Recorder()
    recorder.finish = asyncio.Event().wait  # type: ignore[method-assign, assignment]
    serving = asyncio.create_task(recorder.serve())
    await asyncio.wait_for(drain(recorder, recorder, serving, 0.1, asyncio.Event()), 5)  # type: ignore[arg-type]


async def test_a_heartbeat_a_second() -> None:
    lines: list[str] = []
    async with beating(lines.append):
        await asyncio.sleep(1.5)
    await asyncio.sleep(1.1)
    assert lines == ["beat", "beat"]


def test_stray_prints_are_no_heartbeat() -> None:
    code = "from gateway.worker import heartbeat_pipe; beat = heartbeat_pipe(); print('stray'); beat('ready')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "ready\n"
    assert "stray" in done.stderr


def test_a_closed_pipe_does_not_end_a_worker() -> None:
    read, write = os.pipe()
    code = "from gateway.worker import heartbeat_pipe; beat = heartbeat_pipe(); input(); beat('beat'); import sys; sys.exit(3)"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=write, text=True)
    os.close(write)
    os.close(read)
    process.communicate("\n", timeout=30)
    assert process.returncode == 3


@pytest.mark.parametrize("content", ["{}{", '{"server": {"unknown": 1}}'])
def test_settings_of_another_version_end_it_with_78(tmp_path: Path, content: str) -> None:
    (tmp_path / "settings-x.json").write_text(content)
    command = python("gateway.worker", "0", "--settings", str(tmp_path / "settings-x.json"))
    done = subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 78
    assert done.stderr.startswith("tollway worker 0: ") and "Traceback" not in done.stderr
