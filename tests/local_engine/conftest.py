from __future__ import annotations

from pathlib import Path

import pytest

from tests.local_engine.tiny import make_model


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")
