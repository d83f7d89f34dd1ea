"""Where the workers of one gateway see each other: each leaves what it has in force and how its backends are in the state folder.

A file a second per worker, beside the metrics; any worker reads those of all. Knows no SQL and no other machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from gateway.backend_watch import BackendWatch, Event, Minute
from gateway.routing.router import BackendView

Kind = TypeVar("Kind")
STALE_S = 5.0  # a worker that has said nothing for so long is not counted


class Told(Struct, kw_only=True):
    """One worker's word. at, since, refused_at: seconds since 1970. settings: hash of the file's settings in force there, since when;
    refused: why it could not take over newer ones. problems: of what the API made. minutes: the last few of each backend."""

    worker: str
    at: float
    settings: str
    since: float
    catalog: str
    refused: str = ""
    refused_at: float = 0.0
    problems: dict[str, str] = {}
    views: list[BackendView] = []
    minutes: dict[str, list[Minute]] = {}
    events: dict[str, list[Event]] = {}


class Hour(Struct):
    """What is written once a minute, since it changes no more."""

    minutes: dict[str, list[Minute]]


class Board:
    """One per worker."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.folder = folder
        self.worker = worker
        self._hour_at = 0
        folder.mkdir(parents=True, exist_ok=True)

    def carried_on(self, watch: BackendWatch, now: float) -> None:
        """Give `watch` what a worker of this number had seen before it was replaced."""
        hour, told = _read(self._path(self.worker, "hour"), Hour), _read(self._path(self.worker, "now"), Told)
        if hour is not None and told is not None:
            watch.carry_on(hour.minutes, told.events, told.at, now)

    def leave(self, told: Told, watch: BackendWatch) -> None:
        """Once a second."""
        _write(self._path(self.worker, "now"), told)
        minute = int(told.at) // 60
        if minute != self._hour_at:
            self._hour_at = minute
            _write(self._path(self.worker, "hour"), Hour(watch.hour()))

    def others(self, now: float) -> list[Told]:
        """The other workers that live. Reads files: not on the event loop."""
        return [told for told in self._all() if told.worker != self.worker and now - told.at < STALE_S]

    def hours(self) -> dict[str, Mapping[str, list[Minute]]]:
        """The last hour of the other workers, by worker. Reads files."""
        found: dict[str, Mapping[str, list[Minute]]] = {}
        for told in self._all():
            hour = _read(self._path(told.worker, "hour"), Hour)
            if told.worker != self.worker and hour is not None:
                found[told.worker] = hour.minutes
        return found

    def _all(self) -> Iterator[Told]:
        for path in sorted(self.folder.glob("*.now.msgpack")):
            told = _read(path, Told)
            if told is not None:
                yield told

    def _path(self, worker: str, what: str) -> Path:
        return self.folder / f"worker-{worker}.{what}.msgpack"


def _read(path: Path, kind: type[Kind]) -> Kind | None:
    with suppress(OSError, msgspec.MsgspecError):  # of another version, or gone between two looks
        return msgspec.msgpack.decode(path.read_bytes(), type=kind)
    return None


def _write(path: Path, value: Struct) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(msgspec.msgpack.encode(value))
    part.replace(path)
