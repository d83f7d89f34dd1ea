"""`tollway serve` as a user meets it: what stops a start, what comes back after a kill, what a signal does. All processes are real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from tests.e2e.harness import ROOT, Gateway, free_port, prepared, route, running

SCRIPTED = '[[backends]]\nname = "{name}"\nvendor = "scripted"\nmodel = "m"\nprice = {{ input = "1", output = "2" }}\n'
CONFIG = SCRIPTED.format(name="a") + route("assistant", "a")


def until(true: Callable[[], Any], within_s: float = 30.0) -> Any:
    end = time.monotonic() + within_s
    while True:
        found = true()
        if found:
            return found
        assert time.monotonic() < end, "did not become true in time"
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def supervisor(gateway: Gateway) -> int:
    assert gateway.process is not None
    return gateway.process.pid


def live(gateway: Gateway) -> bool:
    try:
        return gateway.get("/health/live")[0] == 200
    except OSError:
        return False


def events(gateway: Gateway, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in gateway.log.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("event") == name]


def refused(gateway: Gateway) -> tuple[int, str]:
    """Exit status and output of a start that must fail."""
    command = [sys.executable, "-m", "gateway", "--config", str(gateway.folder / "tollway.toml"), "serve"]
    done = subprocess.run(command, cwd=ROOT, env=gateway.environ, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway of two workers, for the tests that leave it serving."""
    with running(tmp_path_factory.mktemp("two"), CONFIG, server="workers = 2\nsilent_worker_s = 6") as gateway:
        until(lambda: events(gateway, "serving"))
        yield gateway


def test_a_killed_worker_comes_back_and_the_other_serves_meanwhile(two: Gateway) -> None:
    before = children(supervisor(two))
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    until(lambda: live(two))
    until(lambda: len(events(two, "ready")) >= 3)
    after = children(supervisor(two))
    assert len(after) == 2 and before[1] in after and before[0] not in after
    assert live(two)


def test_a_hung_worker_is_killed_and_replaced(two: Gateway) -> None:
    hung = until(lambda: children(supervisor(two)) if len(children(supervisor(two))) == 2 else None)[0]
    os.kill(hung, signal.SIGSTOP)
    until(lambda: gone(hung))
    assert events(two, "child is silent: killed")[-1]["pid"] == hung
    until(lambda: len(children(supervisor(two))) == 2)
    until(lambda: live(two))


def test_a_second_gateway_is_told_that_the_port_is_taken(two: Gateway, tmp_path: Path) -> None:
    other = prepared(tmp_path, CONFIG)
    file = tmp_path / "tollway.toml"
    file.write_text(file.read_text().replace(f"port = {other.port}", f"port = {two.port}"))
    status, said = refused(other)
    assert status == 1
    assert f"Address already in use: 127.0.0.1 port {two.port}; stop what uses it, or choose another port" in said


def test_a_second_gateway_in_the_same_state_folder_is_refused(two: Gateway, tmp_path: Path) -> None:
    file = tmp_path / "tollway.toml"
    file.write_text((two.folder / "tollway.toml").read_text().replace(f"port = {two.port}", f"port = {free_port()}"))
    status, said = refused(Gateway(tmp_path, 0, "", two.environ))
    assert status == 1
    assert f"another tollway serve (process {supervisor(two)}) uses the state folder" in said


def test_sighup_takes_new_routes_and_a_bad_file_changes_nothing(two: Gateway) -> None:
    key = two.key()
    file = two.folder / "tollway.toml"
    good = file.read_text()

    def models() -> set[str]:
        return {one["id"] for one in json.loads(two.get("/v1/models", key)[1])["data"]}

    def hangup(text: str) -> None:
        file.write_text(text)
        os.kill(supervisor(two), signal.SIGHUP)

    assert models() == {"assistant"}
    hangup(good + SCRIPTED.format(name="b") + route("second", "b", "a"))
    until(lambda: len(events(two, "reloaded")) >= 3)  # the supervisor and both workers
    assert models() == {"assistant", "second"}
    hangup(good + '[[routes]]\nname = "third"\nbackends = ["nobody"]\n')
    until(lambda: events(two, "reload refused"))
    assert 'routes.third.backends: \\"nobody\\" is not a backend' in two.log
    assert models() == {"assistant", "second"}
    hangup(good + '[[backends]]\nname = "x"\nvendor = "openai"\nmodel = "m"\napi_key = "env:NOT_SET_ANYWHERE"\n')
    until(lambda: len(events(two, "reload refused")) == 2)
    assert models() == {"assistant", "second"}
    hangup(good)
    until(lambda: len(events(two, "reloaded")) >= 6)
    assert models() == {"assistant"}


def test_the_state_folder_is_private(two: Gateway) -> None:
    state = two.folder / "state"
    assert state.stat().st_mode & 0o777 == 0o700
    assert (state / "tollway.secret").stat().st_mode & 0o777 == 0o600
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in state.glob("settings-*.json"))


def test_children_end_with_a_killed_supervisor(tmp_path: Path) -> None:
    with running(tmp_path, CONFIG, server="workers = 2") as gateway:
        until(lambda: events(gateway, "serving"))
        pids = children(supervisor(gateway))
        assert len(pids) == 2
        os.kill(supervisor(gateway), signal.SIGKILL)
        assert gateway.process is not None
        gateway.process.wait()
        until(lambda: all(gone(pid) for pid in pids), within_s=10)


def test_interrupt_ends_everything_with_status_0(tmp_path: Path) -> None:
    with running(tmp_path, CONFIG) as gateway:
        pids = children(supervisor(gateway))
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGINT)
        assert gateway.process.wait(10) == 0
        assert all(gone(pid) for pid in pids)


def test_it_ends_with_the_terminal_it_was_started_in(tmp_path: Path) -> None:
    """SIGHUP from a closed terminal is no wish for a reload."""
    gateway = prepared(tmp_path, CONFIG)
    command = ["serve", "--config", str(tmp_path / "tollway.toml")]
    code = (
        "import os, sys, pty\npid, master = pty.fork()\n"
        "if pid == 0: os.execv(sys.executable, [sys.executable, '-m', 'gateway', *sys.argv[1:]])\n"
        "print(pid, flush=True); sys.stdin.readline(); os.close(master)\nprint(os.waitpid(pid, 0)[1], flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, *command], cwd=ROOT, env=gateway.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as terminal:
        assert terminal.stdin is not None and terminal.stdout is not None
        pid = int(terminal.stdout.readline())
        until(lambda: live(gateway))
        os.kill(pid, signal.SIGHUP)
        time.sleep(1)
        assert live(gateway), "while the terminal is there, SIGHUP only reloads"
        terminal.stdin.write("close\n")
        terminal.stdin.flush()
        assert terminal.stdout.readline() == "0\n"


def test_a_second_start_prepares_nothing(tmp_path: Path) -> None:
    with running(tmp_path, CONFIG) as gateway:
        assert gateway.log.count("First admin key") == 1
        gateway.stop()
        os.truncate(tmp_path / "log", 0)
        gateway.start()
        assert "First admin key" not in gateway.log and "schema ready" not in gateway.log


def test_settings_that_cannot_work_do_not_start(tmp_path: Path) -> None:
    gateway = prepared(tmp_path, CONFIG, server='prot = "x"')
    assert refused(gateway) == (78, 'tollway: server.prot: unknown setting. Did you mean "port"?\n')
    assert not (tmp_path / "state").exists()


def test_a_vendor_that_does_not_exist_does_not_start(tmp_path: Path) -> None:
    status, said = refused(prepared(tmp_path, CONFIG.replace('"scripted"', '"scriptd"')))
    assert status == 78
    assert 'backends.a.vendor: \\"scriptd\\" is unknown. Did you mean \\"scripted\\"?' in said


def test_a_newer_database_does_not_start(tmp_path: Path) -> None:
    import sqlite3

    gateway = prepared(tmp_path, CONFIG)
    gateway.cli("migrate")
    with sqlite3.connect(tmp_path / "state" / "tollway.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    status, said = refused(gateway)
    assert status == 78
    assert "newer Tollway" in said


def test_an_unmigrated_postgres_is_not_ready_until_somebody_migrates(postgres_url: str, postgres_template: str, tmp_path: Path) -> None:
    import asyncio

    from tests.conftest import _administer

    name = "unmigrated_" + postgres_template
    asyncio.run(_administer(postgres_url, f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}"))
    url = make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
    gateway = prepared(tmp_path, CONFIG, database_url=url)
    with (tmp_path / "log").open("ab") as log:
        command = [sys.executable, "-m", "gateway", "--config", str(tmp_path / "tollway.toml"), "serve"]
        gateway.process = subprocess.Popen(command, cwd=ROOT, env=gateway.environ, stdout=log, stderr=log)
    try:
        until(lambda: live(gateway))
        status, body, headers = gateway.get("/health/ready")
        assert (status, headers["retry-after"]) == (503, "5")
        assert "run `tollway migrate`" in json.loads(body)["reasons"][0]
        assert json.loads(gateway.get("/v1/models", "tw-x")[1])["error"]["code"] == "not_ready"
        gateway.cli("migrate")
        gateway.wait_ready()
        assert gateway.get("/v1/models", gateway.key())[0] == 200
    finally:
        gateway.stop()
        asyncio.run(_administer(postgres_url, f"DROP DATABASE {name} WITH (FORCE)"))


def test_the_supervisor_loads_next_to_nothing() -> None:
    code = "import sys, gateway.cli.serve; print(sorted({name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    mine = {
        "gateway",
        "msgspec",
        "cyclopts",
        "typing_extensions",
        "docstring_parser",
        "attr",
        "attrs",
        "__main__",
        "rich",
        "_distutils_hack",
    }
    assert {name for name in eval(done.stdout) if not name.startswith("_")} <= mine - {"rich"}


def test_a_stream_survives_a_reload_that_drops_its_backend(tmp_path: Path) -> None:
    slow = SCRIPTED.format(name="slow") + 'script = """\ntokens = 60\ntpot_s = 0.05\n"""\n'
    with running(tmp_path, SCRIPTED.format(name="a") + slow + route("assistant", "a") + route("slow", "slow")) as gateway:
        gateway.key("alpha")
        stream = gateway.client().chat.completions.create(model="slow", messages=[{"role": "user", "content": "x"}], stream=True)
        first = next(iter(stream))
        assert first.choices
        file = gateway.folder / "tollway.toml"
        file.write_text(file.read_text().replace(route("slow", "slow"), "").replace(slow, ""))
        os.kill(supervisor(gateway), signal.SIGHUP)
        until(lambda: len(events(gateway, "reloaded")) >= 2)
        rest = list(stream)
        assert rest[-1].choices[0].finish_reason == "stop"
        assert {m.id for m in gateway.client().models.list()} == {"assistant"}
