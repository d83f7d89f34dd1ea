"""What the supervisor leaves of a reload is read by a worker, whole or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path

from gateway import reloads
from gateway.reloads import Outcome, Source, source_of


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert reloads.read(tmp_path) is None
    made = Outcome(source=Source(path="/x/tollway.toml", sha256="0"), settings="h", since=1.0, refused="why", ids=("a", "b"))
    reloads.write(tmp_path, made)
    assert reloads.read(tmp_path) == made
    assert (tmp_path / reloads.FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / reloads.FILE).write_text("{")
    assert reloads.read(tmp_path) is None


def test_a_source_is_known_by_what_it_holds(tmp_path: Path) -> None:
    file = tmp_path / "tollway.toml"
    assert source_of(None) == Source() and source_of(file) == Source(path=str(file))
    file.write_text("[server]")
    assert source_of(str(file)) == Source(path=str(file), sha256=hashlib.sha256(b"[server]").hexdigest())
