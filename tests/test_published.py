"""Published settings: whole, private, and those of the generation before kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.published import load_published, publish
from gateway.settings import ConfigError, load
from tests.test_settings import HOSTED, written


def test_published_settings_are_the_same_and_private(tmp_path: Path) -> None:
    found = load(written(tmp_path, HOSTED), {})
    path = publish(found, tmp_path)
    assert path.name == f"settings-{found.hash}.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_published(tmp_path / "current") == load_published(path) == found


def test_publishing_keeps_the_current_and_the_one_before(tmp_path: Path) -> None:
    paths = [publish(load(written(tmp_path, HOSTED), {"TOLLWAY_SERVER__PORT": str(port)}), tmp_path) for port in (1, 2, 3)]
    assert [path.exists() for path in paths] == [False, True, True]
    assert (tmp_path / "current").resolve() == paths[2].resolve()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings-x.json"
    path.write_text('{"server": {"gone": 1}}')
    with pytest.raises(ConfigError, match="does not hold published settings"):
        load_published(path)
