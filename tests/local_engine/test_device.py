"""A GPU's own figures; a CPU has none, and a driver in trouble says nothing."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from local_engine import device
from local_engine.device import NONE, Device, DeviceFigures, ask


def driver(monkeypatch: pytest.MonkeyPatch, **cuda: Any) -> None:
    """A torch whose driver says this."""
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=types.SimpleNamespace(**cuda)))


def raising(error: Exception) -> Any:
    def refuse(_index: int) -> Any:
        raise error

    return refuse


def test_a_cpu_has_none() -> None:
    assert Device(None).figures() == NONE


def test_memory_in_use_is_what_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, mem_get_info=lambda _index: (30, 100), utilization=lambda _index: 55)
    assert ask(0) == DeviceFigures(70, 100, 0.55)


def test_without_the_library_nobody_says_how_busy_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, mem_get_info=lambda _index: (30, 100), utilization=raising(ModuleNotFoundError("pynvml")))
    assert ask(0) == DeviceFigures(70, 100, None)


def test_a_driver_in_trouble_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, mem_get_info=raising(RuntimeError("CUDA error")))
    assert ask(0) == NONE


def test_it_is_asked_once_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    clock = [100.0]
    monkeypatch.setattr(device, "ask", lambda index: asked.append(index) or DeviceFigures(1, 2, None))
    monkeypatch.setattr(device.time, "monotonic", lambda: clock[0])
    one = Device(3)
    for moment in (100.0, 100.5, 101.0):
        clock[0] = moment
        assert one.figures() == DeviceFigures(1, 2, None)
    assert asked == [3, 3]
