"""`tollway models`: what lies in the models folder and who reads it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.test_cli import tollway

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


def test_list(tmp_path: Path) -> None:
    (tmp_path / "models" / "here").mkdir(parents=True)
    (tmp_path / "models" / "here" / "config.json").write_text("{}")
    (tmp_path / "models" / "half").mkdir()
    (tmp_path / "tollway.toml").write_text(CONFIG.format(models=tmp_path / "models"))
    done = tollway("models", "list", cwd=tmp_path)
    assert done.stdout.splitlines() == ["here\tready\tsmall", "not-here\tmissing: tollway models get not-here\tlarge"]


def test_get_refuses_a_name_that_nobody_knows(tmp_path: Path) -> None:
    done = tollway("models", "get", "no-such-model", cwd=tmp_path)
    assert done.returncode == 78
    assert "'no-such-model' is not known" in done.stderr
