"""`tollway models`: what lies in the models folder, who reads it, and what may go."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from tests.cli.conftest import Tollway

CONFIG = """
[storage]
models_dir = "{models}"
[[backends]]
name = "small"
vendor = "local"
model = "here"
[[backends]]
name = "large"
vendor = "local"
model = "not-here"
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """One model that a backend reads, with int8 weights kept; one that none reads; and what is no model."""
    folder = tmp_path / "models"
    for name, size in (("here", 2_000_000), ("idle", 500_000)):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text("{}")
        (folder / name / "model.safetensors").write_bytes(bytes(size - 2))
    (folder / "here" / ".tollway").mkdir()
    (folder / "here" / ".tollway" / "int8.safetensors").write_bytes(bytes(700_000))
    (folder / "half").mkdir()
    (folder / ".idle.lock").touch()
    (tmp_path / "tollway.toml").write_text(CONFIG.format(models=folder))
    return folder


def test_list_tells_sizes_kept_precisions_and_users(bare: Tollway, models: Path) -> None:
    lines = [line.split() for line in bare("models", "list").lines]
    assert lines[0] == ["model", "state", "size", "kept", "backends"]
    assert ["here", "ready", "2.0", "MB", "int8", "0.7", "MB", "small"] in lines
    assert ["idle", "ready", "0.5", "MB", "-", "-"] in lines
    assert ["not-here", "missing:", "tollway", "models", "get", "not-here", "-", "-", "large"] in lines
    assert not any("half" in line for line in lines)


def test_list_without_a_models_folder(bare: Tollway) -> None:
    assert bare("models", "list").status == 0


def test_remove(bare: Tollway, models: Path) -> None:
    said = bare("models", "remove", "idle")
    assert (said.status, said.lines) == (0, ["idle is removed (0.5 MB)"])
    assert sorted(path.name for path in models.iterdir()) == [".idle.lock", "half", "here"]


def test_what_a_backend_reads_is_not_removed_but_what_was_made_of_it(bare: Tollway, models: Path) -> None:
    said = bare("models", "remove", "here")
    assert (said.status, "here is read by small" in said.err) == (1, True)
    assert bare("models", "remove", "here", "--kept").lines == ["what was made of here is removed (0.7 MB)"]
    assert sorted(path.name for path in (models / "here").iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize("name", ["half", "no-such", "../models/idle", ".", ".idle.lock"])
def test_what_is_no_model_is_not_removed(bare: Tollway, models: Path, name: str) -> None:
    said = bare("models", "remove", name)
    assert (said.status, "there is no model" in said.err) == (1, True)
    assert (models / "idle" / "config.json").exists()
    assert (models / "half").exists()


def test_a_model_that_is_being_fetched_stays(bare: Tollway, models: Path) -> None:
    with (models / ".idle.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = bare("models", "remove", "idle")
    assert (said.status, "is being fetched" in said.err) == (1, True)
    assert (models / "idle" / "config.json").exists()


def test_get_refuses_a_name_that_nobody_knows(bare: Tollway, models: Path) -> None:
    assert bare("models", "get", "no-such-model").status == 78
