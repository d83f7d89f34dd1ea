"""Who is next: lower priority numbers first, and among their tenants the one that was served the fewest tokens. Knows no memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from local_engine.sequence import Sequence


class WaitingLine:
    """A line per priority and tenant. A tenant's count of served tokens lives while it has open sequences; a new one starts at the
    least of the others, so that nobody saves up a claim by being away."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, str], deque[Sequence]] = {}
        self._served: dict[str, int] = {}
        self._open: dict[str, int] = {}  # sequences of a tenant, waiting or running
        self._arrivals = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Sequence]:
        for line in self._lines.values():
            yield from line

    def add(self, sequence: Sequence) -> None:
        """A new one, at the end of its tenant's line."""
        self._arrivals += 1
        sequence.order = self._arrivals
        if sequence.salt not in self._open:
            self._open[sequence.salt] = 0
            self._served[sequence.salt] = min(self._served.values(), default=0)
        self._open[sequence.salt] += 1
        self._line(sequence).append(sequence)
        self._size += 1

    def put_back(self, sequence: Sequence) -> None:
        """One that was preempted goes first of its tenant."""
        self._line(sequence).appendleft(sequence)
        self._size += 1

    def first(self) -> Sequence | None:
        """Whose turn it is; it stays until it is taken."""
        if not self._lines:
            return None
        key = min(self._lines, key=lambda key: (key[0], self._served[key[1]], self._lines[key][0].order))
        return self._lines[key][0]

    def take(self, sequence: Sequence) -> None:
        """It runs, or has ended while it waited."""
        key = (sequence.priority, sequence.salt)
        line = self._lines[key]
        line.remove(sequence)
        self._size -= 1
        if not line:
            del self._lines[key]

    def charge(self, sequence: Sequence, tokens: int) -> None:
        """Its tenant is given so many tokens of work."""
        self._served[sequence.salt] += tokens

    def close(self, sequence: Sequence) -> None:
        """It has ended; it no longer waits."""
        self._open[sequence.salt] -= 1
        if self._open[sequence.salt] == 0:
            del self._open[sequence.salt], self._served[sequence.salt]

    def _line(self, sequence: Sequence) -> deque[Sequence]:
        return self._lines.setdefault((sequence.priority, sequence.salt), deque())
