"""What came of reading the settings file, as the supervisor leaves it in the state folder: what is in force, why the last reading is not.

A worker asks for a reload by a line on its heartbeat pipe, `reload ID`; the outcome that names the ID is the answer. Standard library and
msgspec only: the supervisor imports it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec
from msgspec import Struct

FILE = "reload.json"
ASK = "reload "
IDS_KEPT = 32


class Source(Struct, frozen=True, kw_only=True):
    """A settings file as it was read. path: "" = there was none, and all is by itself or from the environment."""

    path: str = ""
    sha256: str = ""


class Outcome(Struct, frozen=True, kw_only=True):
    """Times in seconds since 1970. settings: hash of what is in force. refused: why the last reading changed nothing, "" = it did not.

    kept: settings that were changed and hold only after a restart. ids: the requests that this answers, the newest last.
    """

    source: Source
    settings: str
    since: float
    kept: tuple[str, ...] = ()
    refused: str = ""
    tried: float = 0.0
    ids: tuple[str, ...] = ()


def source_of(path: Path | str | None) -> Source:
    """Which file, and the hash of what it holds now; of a file that cannot be read the path alone."""
    if path is None:
        return Source()
    path = Path(path)
    try:
        return Source(path=str(path.resolve()), sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    except OSError:
        return Source(path=str(path.resolve()))


def write(state: Path, outcome: Outcome) -> None:
    """Whole or not at all, 0600."""
    part = state / f".{FILE}-{os.getpid()}.part"
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(outcome))
    part.replace(state / FILE)


def read(state: Path) -> Outcome | None:
    """The last outcome; None where no supervisor has left one."""
    try:
        return msgspec.json.decode((state / FILE).read_bytes(), type=Outcome)
    except (OSError, msgspec.DecodeError):
        return None
