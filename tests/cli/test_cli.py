"""The command's frame: every noun loads, mistakes are one line, nothing is loaded that a command does not need."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def tollway(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments], cwd=cwd, env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def commands() -> list[str]:
    """The import strings that the frame registers."""
    source = (ROOT / "gateway" / "cli" / "__init__.py").read_text()
    return [line.split('"')[1] for line in source.splitlines() if line.startswith('app.command("')]


@pytest.mark.parametrize("command", commands())
def test_every_command_can_be_loaded(command: str) -> None:
    module, _, name = command.partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_help_names_every_command_and_loads_none() -> None:
    done = tollway("--help")
    assert done.returncode == 0
    for command in commands():
        assert command.partition(":")[0].rpartition(".")[2] in done.stdout


def test_a_setting_that_cannot_work_is_one_line_and_status_78(tmp_path: Path) -> None:
    done = tollway("--config", str(tmp_path / "none.toml"), "models", "list")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == f"tollway: {tmp_path / 'none.toml'}: cannot be read (No such file or directory).\n"


def test_the_config_may_come_after_the_command(tmp_path: Path) -> None:
    assert tollway("models", "list", "--config", str(tmp_path / "none.toml")).returncode == 78


def test_an_unknown_command_is_refused() -> None:
    done = tollway("teems", "list")
    assert done.returncode != 0
    assert "teams" in done.stdout + done.stderr, "the nearest one is named"
    assert "Traceback" not in done.stderr
