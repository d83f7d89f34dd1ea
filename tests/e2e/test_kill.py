"""kill -9 of workers under load, `make chaos` in short: the ledger is what the backends logged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos import kill
from tests.conftest import Database


@pytest.mark.parametrize("storage", ["sqlite"], indirect=True)
async def test_kill_9_of_workers_in_streams_failovers_and_cancels(database: Database, tmp_path: Path) -> None:
    said: list[str] = []
    await kill.run(database, tmp_path, random.Random(20_261_130), said.append, kills=2, workers=2, clients=4)
    assert "unknown" in said[-1] or "completed" in said[-1]
