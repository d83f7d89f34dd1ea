"""The protocol through many random histories (tests/money/test_protocol.py), others each time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conftest import Database
from tests.money.test_protocol import RUNS, Protocol


async def run(database: Database, folder: Path, rng: random.Random, say: Callable[[str], None], *, examples: int = 300) -> None:
    """On SQLite files of their own: a history is short, and there are many."""
    del database, folder
    number = rng.randrange(1 << 30)
    machine = seed(number)(type("Histories", (Protocol,), {}))
    many = settings(RUNS, max_examples=examples, stateful_step_count=60, derandomize=False, database=None)
    await asyncio.to_thread(run_state_machine_as_test, machine, settings=many)
    say(f"{examples} histories of up to 60 steps, seed {number}")
