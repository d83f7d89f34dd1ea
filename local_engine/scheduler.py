"""Who computes what in the next step: every decode, then prompt chunks within a token budget, oldest first.

Admission is by free KV bytes; when a decode finds no room the youngest sequence is preempted: it gives everything back and computes its
tokens anew later. Knows no tensor.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from local_engine.kv_cache import KvPool
from local_engine.sequence import Sequence


class Work(NamedTuple):
    sequence: Sequence
    tokens: int  # of its pending ones
    samples: bool  # nothing is pending afterwards: its last row gives the next token


class Scheduler:
    def __init__(self, pool: KvPool, max_sequences: int, max_prefill_tokens: int) -> None:
        self._pool = pool
        self._max_sequences = max_sequences
        self._max_prefill_tokens = max_prefill_tokens
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # by age
        self.preemptions = 0

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def schedule(self) -> list[Work]:
        """The work of one step; empty when nothing runs or waits. Room for all of it is reserved."""
        work: list[Work] = []
        budget = self._max_prefill_tokens
        for sequence in list(self.running):
            if sequence not in self.running:  # preempted by an older one
                continue
            pending = sequence.pending
            tokens = 1 if pending == 1 else min(pending, budget)
            if tokens == 0 or not self._make_room(sequence, sequence.computed + tokens):
                continue
            budget -= tokens if pending > 1 else 0
            work.append(Work(sequence, tokens, tokens == pending))
        while budget > 0 and self.waiting and len(self.running) < self._max_sequences:
            sequence = self.waiting[0]
            if not self._pool.reserve(sequence.id, len(sequence.tokens) + 1):  # with its first new token: no thrashing at once
                break
            self.running.append(self.waiting.popleft())
            tokens = min(sequence.pending, budget)
            budget -= tokens
            work.append(Work(sequence, tokens, tokens == sequence.pending))
        return work

    def remove(self, sequence: Sequence) -> None:
        """It ended or was aborted, running or waiting: everything it held is free at once."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        self._pool.free(sequence.id)

    @property
    def outstanding_prefill_tokens(self) -> int:
        running = sum(s.pending for s in self.running if s.pending > 1)
        return running + sum(s.pending for s in self.waiting)

    def _make_room(self, sequence: Sequence, tokens: int) -> bool:
        """Reserve, preempting from the young end; False when the sequence itself had to go."""
        while not self._pool.reserve(sequence.id, tokens):
            victim = self.running.pop()
            self._pool.free(victim.id)
            victim.computed = 0
            self.waiting.appendleft(victim)
            self.preemptions += 1
            if victim is sequence:
                return False
        return True
