"""A child process kept alive, with real processes: restarts and their back-off, silence, the end of the parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from gateway import child as module
from gateway.child import Child, environment, python, run_once
from tests.fixtures.waiting import until

BEATS = "import sys,time\nprint('ready', flush=True)\nwhile True:\n    time.sleep(0.05); print('beat', flush=True)"


class Lines(list[dict[str, Any]]):
    def __call__(self, event: str, *, level: str = "info", **fields: object) -> None:
        self.append({"event": event, "level": level, **fields})

    def of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self if line["event"] == event]


def script(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


async def stopped(child: Child, task: Awaitable[int]) -> int:
    child.stop()
    return await asyncio.wait_for(task, 30)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_killed_child_comes_back_and_a_stopped_one_does_not() -> None:
    log = Lines()
    child = Child("c", lambda: script(BEATS), log, silent_s=5)
    task = asyncio.create_task(child.keep())
    await until(lambda: child.ready)
    assert child.process is not None
    first = child.process.pid
    os.kill(first, signal.SIGKILL)
    await until(lambda: child.ready and child.process is not None and child.process.pid != first)
    assert log.of("child ended") == [
        {"event": "child ended", "level": "error", "child": "c", "status": -signal.SIGKILL, "restart_in_s": module.BACKOFF_S}
    ]
    last = child.process.pid
    assert await stopped(child, task) == 0
    assert not alive(last)


async def test_quick_deaths_wait_longer_and_longer() -> None:
    log = Lines()
    child = Child("c", lambda: script("raise SystemExit(3)"), log)
    task = asyncio.create_task(child.keep())
    await until(lambda: len(log.of("child ended")) == 4)
    assert [(line["status"], line["restart_in_s"]) for line in log.of("child ended")] == [(3, 0.2), (3, 0.4), (3, 0.8), (3, 1.6)]
    started = time.monotonic()
    assert await stopped(child, task) == 0
    assert time.monotonic() - started < 1.5, "stop must not sit out the back-off"


async def test_the_back_off_is_bounded_and_a_steady_life_forgets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_S", 0.01)
    monkeypatch.setattr(module, "BACKOFF_MAX_S", 0.03)
    log = Lines()
    child = Child("c", lambda: script("raise SystemExit(3)"), log)
    task = asyncio.create_task(child.keep())
    await until(lambda: len(log.of("child ended")) >= 5)
    monkeypatch.setattr(module, "STEADY_S", 0.0)
    await until(lambda: len(log.of("child ended")) >= 8)
    delays = [line["restart_in_s"] for line in log.of("child ended")]
    assert delays[:4] == [0.01, 0.02, 0.03, 0.03]
    assert delays[-1] == 0.01
    await stopped(child, task)


async def test_a_silent_child_is_killed_and_restarted() -> None:
    log = Lines()
    child = Child("c", lambda: script(BEATS), log, silent_s=0.5)
    task = asyncio.create_task(child.keep())
    await until(lambda: child.ready)
    assert child.process is not None
    hung = child.process.pid
    os.kill(hung, signal.SIGSTOP)
    await until(lambda: child.ready and child.process is not None and child.process.pid != hung)
    assert log.of("child is silent: killed")[0]["pid"] == hung
    assert not alive(hung)
    await stopped(child, task)


async def test_a_configuration_error_at_the_start_is_final() -> None:
    child = Child("c", lambda: script("raise SystemExit(78)"), Lines(), silent_s=5)
    assert await asyncio.wait_for(child.keep(), 30) == 78


async def test_a_configuration_error_after_it_served_is_a_death_like_any_other(tmp_path: Path) -> None:
    flag = tmp_path / "served"
    code = (
        f"import os, sys, time\nf = {str(flag)!r}\nif os.path.exists(f): sys.exit(78)\n"
        "open(f, 'w').close(); print('ready', flush=True); time.sleep(0.2); sys.exit(1)"
    )
    log = Lines()
    child = Child("c", lambda: script(code), log, silent_s=5)
    task = asyncio.create_task(child.keep())
    await until(lambda: [line["status"] for line in log.of("child ended")] == [1, 78])
    assert not task.done()
    await stopped(child, task)


async def test_ready_is_told_once_a_life() -> None:
    told: list[int] = []
    child = Child("c", lambda: script("import time\nfor _ in range(3): print('ready', flush=True)\ntime.sleep(9)"), Lines(), silent_s=20)
    child.on_ready = lambda: told.append(1)
    task = asyncio.create_task(child.keep())
    await until(lambda: told)
    await asyncio.sleep(0.1)
    assert told == [1]
    await stopped(child, task)


async def test_kill_takes_what_the_child_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\np = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])\n"
        "open(sys.argv[1], 'w').write(str(p.pid)); print('ready', flush=True); time.sleep(60)"
    )
    child = Child("c", lambda: [*script(code), str(tmp_path / "pid")], Lines(), silent_s=20)
    task = asyncio.create_task(child.keep())
    await until(lambda: child.ready)
    grandchild = int((tmp_path / "pid").read_text())
    child.kill()
    assert await asyncio.wait_for(task, 30) == 0
    await until(lambda: not alive(grandchild) or "zombie" in Path(f"/proc/{grandchild}/status").read_text())


async def test_stdin_is_held_open_and_stop_ends_a_single_run() -> None:
    stop = asyncio.Event()
    started = asyncio.create_task(run_once(script("import sys; sys.stdin.read()"), stop))
    await asyncio.sleep(0.2)
    assert not started.done()
    stop.set()
    assert await asyncio.wait_for(started, 30) == -signal.SIGTERM


async def test_run_once_gives_the_status() -> None:
    assert await run_once(script("raise SystemExit(7)"), asyncio.Event()) == 7


def test_our_modules_win_over_those_of_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "__init__.py").write_text("raise SystemExit('theirs')")
    (tmp_path / "gateway.py").write_text("raise SystemExit('theirs')")
    done = subprocess.run(python("gateway.settings"), cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
