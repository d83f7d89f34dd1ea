"""The GPU that an engine computes on, as its driver tells: memory, and how busy it is where nvidia-ml-py is installed. Nothing on a CPU."""

from __future__ import annotations

import sys
import time

from msgspec import Struct

EVERY_S = 1.0  # the driver is asked this often at most


class DeviceFigures(Struct, frozen=True):
    """Bytes in use by all processes, bytes there are, part of the last moments in which it computed (0 to 1); None = not known."""

    memory_used: int | None = None
    memory: int | None = None
    busy: float | None = None


NONE = DeviceFigures()


class Device:
    """Asks the driver, at most once a second, of the device whose index it is given; None = a CPU."""

    def __init__(self, index: int | None) -> None:
        self._index = index
        self._asked = float("-inf")
        self._figures = NONE

    def figures(self) -> DeviceFigures:
        now = time.monotonic()
        if self._index is not None and now - self._asked >= EVERY_S:
            self._asked = now
            self._figures = ask(self._index)
        return self._figures


def ask(index: int) -> DeviceFigures:
    """Of a CUDA device. torch is loaded by then: the engine runs on it."""
    torch = sys.modules["torch"]
    try:
        free, memory = torch.cuda.mem_get_info(index)
    except RuntimeError:  # the driver's own errors
        return NONE
    try:
        busy = torch.cuda.utilization(index) / 100
    except (RuntimeError, ImportError):  # ImportError: without nvidia-ml-py nobody says
        busy = None
    return DeviceFigures(memory - free, memory, busy)
