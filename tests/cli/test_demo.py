"""`tollway demo` from start to end: it answers, fails over, hits the cache, reports, and leaves nothing behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.cli.test_cli import tollway


def test_demo(tmp_path: Path) -> None:
    before = set(Path(tempfile.gettempdir()).glob("tollway-demo-*"))
    done = tollway("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "backend self-hosted  attempts 1" in done.stdout
    assert "backend hosted       attempts 2" in done.stdout, "the failing backend's requests went to the other"
    assert "cache hit   0.000000000 USD" in done.stdout
    assert "recomputed: agrees" in done.stdout
    report = done.stdout.partition("$ tollway report")[2]
    assert next(line for line in report.splitlines() if line.startswith("total")).split()[1] == "16"
    assert list(tmp_path.iterdir()) == []
    assert set(Path(tempfile.gettempdir()).glob("tollway-demo-*")) <= before
