"""Settings as the supervisor publishes them, checked, as one JSON file by hash; workers load exactly that file.

Standard library and msgspec only: the supervisor imports it.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from gateway.settings import ConfigError, Settings


def publish(settings: Settings, state_dir: Path) -> Path:
    """Write the settings as one file named by their hash and point `current` at it. The file's path."""
    path = write_settings(settings, state_dir)
    point_current(path)
    return path


def write_settings(settings: Settings, state_dir: Path) -> Path:
    """settings-<hash>.json, 0600, whole or not at all."""
    path = state_dir / f"settings-{settings.hash}.json"
    part = state_dir / f".settings-{os.getpid()}.part"
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(settings))
    part.replace(path)
    return path


def point_current(path: Path) -> None:
    """Let `current` name this file; the one it named before stays, for a worker that is just starting; older ones go."""
    current = path.parent / "current"
    before = current.readlink().name if current.is_symlink() else ""
    part = path.parent / f".current-{os.getpid()}.part"
    part.unlink(missing_ok=True)
    part.symlink_to(path.name)
    part.replace(current)
    for old in path.parent.glob("settings-*.json"):
        if old.name not in (path.name, before):
            old.unlink(missing_ok=True)


def load_published(path: Path) -> Settings:
    """Settings that were published: checked then, so only decoded here. Raises ConfigError for a file of another version."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Settings)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path} does not hold published settings ({error}): start with `tollway serve`.") from None
