"""What bounds a worker's endpoints."""

from __future__ import annotations


class Limits:
    """What bounds this worker's endpoints; `draining` is set when it stops taking requests."""

    __slots__ = ("body_s", "draining", "max_body_bytes", "max_in_flight")

    def __init__(self, max_body_bytes: int, max_in_flight: int, body_s: float) -> None:
        self.max_body_bytes = max_body_bytes
        self.body_s = body_s
        self.max_in_flight = max_in_flight
        self.draining = False
