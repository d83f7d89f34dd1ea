"""Backends, features and states in one line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.catalog import Backend, Price
from gateway.routing.features import Features
from gateway.routing.state import BackendState


def make_backend(name: str = "a", **given: Any) -> Backend:
    price = given.pop("price", Price(id=f"config:{name}", input=1_000_000_000, output=2_000_000_000))
    base: dict[str, Any] = {"vendor": "openai", "model": f"model-{name}", "dialect": "openai_chat"}
    return Backend(name=name, price=price, **(base | given))


def make_features(**given: Any) -> Features:
    base: dict[str, Any] = {
        "route": "assistant",
        "dialect": "openai_chat",
        "input_tokens": 1000,
        "input_tokens_upper": 4000,
        "expected_output_tokens": 100,
        "stream": True,
    }
    return Features(**(base | given))


@pytest.fixture
def backend() -> Callable[..., Backend]:
    return make_backend


@pytest.fixture
def features() -> Callable[..., Features]:
    return make_features


@pytest.fixture
def state() -> Callable[..., BackendState]:
    return lambda name="a", **given: BackendState(make_backend(name, **given))
