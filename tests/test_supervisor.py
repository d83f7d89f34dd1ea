"""Decisions of the supervisor that need no child; what it does with real ones is in e2e/test_serve*.py."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway import supervisor as module
from gateway.listen import shared_socket
from gateway.settings import BackendSettings, LocalEngine, Server, Settings, Storage
from gateway.supervisor import FETCHABLE, StartError, Supervisor, claimed, lock, make_log, make_state
from local_engine.fetch import WHEELS

LOCAL = BackendSettings(name="smol", vendor="local", model="smollm2-135m")


def make(tmp_path: Path, **fields: Any) -> Supervisor:
    settings = Settings(storage=Storage(state_dir=str(tmp_path)), backends=(LOCAL,), **fields)
    return Supervisor(settings, lambda: settings, make_log("json"))


def test_fetchable_is_what_the_engine_can_fetch() -> None:
    assert set(WHEELS) == FETCHABLE


async def test_an_engines_command_says_what_the_settings_say(tmp_path: Path) -> None:
    made = make(tmp_path, local_engine=LocalEngine(threads=3, max_sequences=4, max_waiting=5, max_step_tokens=64, kv_bytes=10**6))
    assert made._engine_command("smol")[3:] == [
        *("local_engine", "serve", "--socket", f"{tmp_path}/engine-smol.sock", "--model-dir", f"{tmp_path}/models/smollm2-135m"),
        *("--threads", "3", "--precision", "auto", "--max-sequences", "4", "--max-waiting", "5"),
        *("--max-step-tokens", "64", "--kv-bytes", "1000000", "--kv-fraction", "0.8", "--heartbeat"),
        *("--log-format", "json", "--log-level", "info"),
    ]


async def test_an_engine_that_is_silent_is_ended_as_a_worker_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = make(tmp_path, local_engine=LocalEngine(silent_s=7.0, fetch=False))
    monkeypatch.setattr(one, "_keep", lambda child: None)
    one._start_engines()
    assert {child.silent_s for child in one.engines.values()} == {7.0}


async def test_the_engine_understands_that_command(tmp_path: Path) -> None:
    from local_engine.__main__ import _config, _parser

    options = _parser().parse_args(make(tmp_path)._engine_command("smol")[4:])
    assert _config(options).max_waiting == LocalEngine().max_waiting


async def test_a_reload_keeps_what_only_a_restart_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = make(tmp_path, server=Server(port=4000, workers=2))
    fresh = replace(one.settings, server=Server(port=5000, workers=3, drain_s=7), storage=Storage(state_dir="/elsewhere"))
    kept, changed = one._kept(fresh)
    assert (kept.server.port, kept.server.workers, kept.server.drain_s) == (4000, 2, 7)
    assert kept.storage == one.settings.storage
    assert json.loads(capsys.readouterr().err)["settings"] == changed == ["server.port", "server.workers", "storage"]


async def test_a_reload_with_port_0_keeps_the_port_that_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = make(tmp_path, server=Server(port=4321))
    assert one._kept(replace(one.settings, server=Server(port=0)))[0].server.port == 4321
    assert capsys.readouterr().err == ""


async def test_without_the_libraries_no_engine_starts_and_the_log_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "has_local_libraries", lambda: False)
    one = make(tmp_path)
    one._start_engines()
    assert (one.engines, one.tasks) == ({}, {})
    assert "pip install 'tollway[local]'" in capsys.readouterr().err


async def test_a_model_is_fetched_only_when_known_wanted_and_missing(tmp_path: Path) -> None:
    def fetching(one: Supervisor, model: str) -> list[str]:
        one.stopping.set()  # the download ends as soon as it has begun
        one._fetch(model)
        return list(one.tasks)

    assert fetching(make(tmp_path), "meta/llama") == []
    assert fetching(make(tmp_path, local_engine=LocalEngine(fetch=False)), "smollm2-135m") == []
    one = make(tmp_path)
    assert fetching(one, "smollm2-135m") == ["fetch smollm2-135m"]
    await asyncio.gather(*one.tasks.values())
    (tmp_path / "models" / "smollm2-135m").mkdir(parents=True, exist_ok=True)
    (tmp_path / "models" / "smollm2-135m" / "config.json").write_text("{}")
    assert fetching(make(tmp_path), "smollm2-135m") == []


def test_a_state_folder_is_held_by_one(tmp_path: Path) -> None:
    with lock(tmp_path), pytest.raises(StartError, match="another tollway serve"), lock(tmp_path):
        pass
    with lock(tmp_path):
        assert (tmp_path / "lock").read_text().isdigit()


def test_a_state_folder_is_made_private_and_one_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    state = make_state(tmp_path / "a" / "b", make_log("json"))
    assert state.stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match="cannot be made"):
        make_state(tmp_path / "file" / "state", make_log("json"))


def test_a_folder_that_others_can_see_is_kept_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o755)
    make_state(tmp_path, make_log("text"))
    assert f"chmod 700 {tmp_path}" in capsys.readouterr().err
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_taken_port_is_named_with_its_remedy() -> None:
    with shared_socket("127.0.0.1", 0) as theirs:
        theirs.listen()
        port = theirs.getsockname()[1]
        with (
            pytest.raises(StartError, match=f"Address already in use: 127.0.0.1 port {port}; stop what uses it"),
            claimed(Settings(server=Server(port=port))),
        ):
            pass


def test_port_0_becomes_the_port_that_was_found() -> None:
    with claimed(Settings(server=Server(port=0))) as (found, claim):
        assert found.server.port == claim.getsockname()[1] > 0


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_log_has_one_line_an_event(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    make_log(form)("child started", child="worker 0", pid=1)
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "child started" in line and "worker 0" in line
    if form == "json":
        assert json.loads(line)["process"] == "supervisor"
