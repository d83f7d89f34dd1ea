from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local_engine.tiny import engine_process, make_model, wait_ready


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def long_tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a context that takes seconds to fill."""
    return make_model(tmp_path_factory.mktemp("models") / "tiny", max_position_embeddings=16384)


@pytest.fixture(scope="session")
def engine_socket(tmp_path_factory: pytest.TempPathFactory, long_tiny: Path) -> Iterator[Path]:
    """A running engine, shared by the tests that leave it as it was."""
    socket = tmp_path_factory.mktemp("engine") / "e.sock"
    with engine_process(socket, long_tiny, "--threads", "1", "--max-sequences", "4", "--max-waiting", "4"):
        wait_ready(socket)
        yield socket
