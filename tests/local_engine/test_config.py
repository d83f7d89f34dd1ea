from __future__ import annotations

import os
from typing import Any

import pytest

from local_engine.config import EngineConfig
from local_engine.errors import ConfigError


@pytest.mark.parametrize(
    "change",
    [
        {"precision": "int3"},
        {"device": "tpu"},
        {"precision": "int8", "device": "cuda"},
        {"max_sequences": 0},
        {"threads": -1},
        {"kv_bytes": -1},
        {"kv_fraction": 0.0},
        {"kv_fraction": 1.5},
    ],
)
def test_what_cannot_work_is_named(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        EngineConfig(model_dir="m", **change).checked()
    assert refused.value.param == next(iter(change))


def test_a_core_is_left_to_the_gateway() -> None:
    assert EngineConfig(model_dir="m").thread_count == max(1, len(os.sched_getaffinity(0)) - 1)
    assert EngineConfig(model_dir="m", threads=3).thread_count == 3
