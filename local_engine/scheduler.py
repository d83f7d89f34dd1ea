"""Who computes what in the next step: every decode, then prompt chunks, within a budget of tokens.

A sequence is admitted when the blocks that it and the running ones are expected to need are free. When a decode finds no block the
youngest of the least urgent gives everything back and computes its tokens anew later. Knows no tensor.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from typing import NamedTuple

from local_engine.kv_cache import BLOCK_TOKENS, KvPool, blocks_of
from local_engine.sequence import Sequence
from local_engine.waiting import WaitingLine

ONLINE = 0  # priorities above it are offline work, which gives way while it runs; others wait for those who came before
FIRST_GUESS = 64.0  # tokens of an answer, until some have ended
MEMORY = 0.1  # weight of the newest answer in the mean length


class Work(NamedTuple):
    sequence: Sequence
    tokens: int  # of its pending ones
    samples: bool  # nothing is pending afterwards: its last row gives the next token


class Scheduler:
    def __init__(self, pool: KvPool, max_sequences: int, max_step_tokens: int) -> None:
        self._pool = pool
        self._max_sequences = max_sequences
        self._max_step_tokens = max_step_tokens
        self._answer_tokens = FIRST_GUESS
        self.waiting = WaitingLine()
        self.running: list[Sequence] = []  # by urgency: priority, then age
        self.preemptions = 0
        self.prefix_hit_tokens = 0

    def add(self, sequence: Sequence) -> None:
        self.waiting.add(sequence)

    def schedule(self) -> list[Work]:
        """The work of one step, single tokens first; empty when nothing runs or waits. Blocks for all of it are held."""
        self._admit()
        work = self._decodes()
        budget = max(self._max_step_tokens - len(work), BLOCK_TOKENS)  # a prompt moves on however many decode
        decoding = {one.sequence.id for one in work}
        work += _prefills([sequence for sequence in self.running if sequence.id not in decoding], budget)
        return sorted(work, key=lambda one: one.tokens > 1)

    def remove(self, sequence: Sequence) -> None:
        """It ended or was aborted, running or waiting: everything it held is free at once."""
        if sequence in self.running:
            self.running.remove(sequence)
            self._answer_tokens += MEMORY * (sequence.generated - self._answer_tokens)
        else:
            self.waiting.take(sequence)
        self.waiting.close(sequence)
        self._pool.release(sequence.table, sequence.salt)

    @property
    def outstanding_prefill_tokens(self) -> int:
        running = sum(s.pending for s in self.running if s.pending > 1)
        return running + sum(s.pending for s in self.waiting)

    def _decodes(self) -> list[Work]:
        """By urgency, so that whoever has to give way has no work yet."""
        work = []
        for sequence in list(self.running):
            if sequence.pending == 1 and sequence in self.running and self._make_room(sequence):
                work.append(Work(sequence, 1, True))
                self.waiting.charge(sequence, 1)
        return work

    def _make_room(self, sequence: Sequence) -> bool:
        """A block for its next token, preempting the least urgent; False when the sequence itself had to go."""
        while not self._pool.grow(sequence.table, len(sequence.tokens)):
            victim = self.running[-1]
            self._preempt(victim)
            if victim is sequence:
                return False
        return True

    def _admit(self) -> None:
        while (sequence := self.waiting.first()) is not None:
            if len(self.running) < self._max_sequences and self._reserve(sequence):
                self.waiting.take(sequence)
                self.waiting.charge(sequence, sequence.pending)
                bisect.insort(self.running, sequence, key=lambda s: (s.priority, s.order))
            elif self.running and self.running[-1].priority > max(sequence.priority, ONLINE):
                self._preempt(self.running[-1])
            else:
                break

    def _reserve(self, sequence: Sequence) -> bool:
        """Blocks for its tokens, known ones where there are; False when it would soon have to give way to those that run."""
        sequence.computed = self._pool.match(sequence.table, sequence.tokens)
        need = self._expected_growth(sequence) + sum(map(self._expected_growth, self.running))
        if (self.running and need > self._pool.free_blocks) or not self._pool.grow(sequence.table, len(sequence.tokens)):
            self._pool.release(sequence.table, sequence.salt)
            sequence.computed = 0
            return False
        self.prefix_hit_tokens += sequence.computed
        return True

    def _expected_growth(self, sequence: Sequence) -> int:
        """Blocks that it is expected to take beyond those it holds; one answer is guessed to be as long as the last ones were."""
        guess = sequence.prompt_tokens + min(sequence.limit, int(self._answer_tokens))
        return max(0, blocks_of(max(guess, len(sequence.tokens) + 1)) - len(sequence.table.blocks))

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._pool.release(sequence.table, sequence.salt)
        sequence.computed = 0
        self.waiting.put_back(sequence)
        self.preemptions += 1


def _prefills(sequences: list[Sequence], budget: int) -> list[Work]:
    """Prompt chunks: priority by priority, and in each an equal share for every tenant, what one leaves over going to the others."""
    tenants: defaultdict[tuple[int, str], list[Sequence]] = defaultdict(list)
    for sequence in sequences:
        tenants[sequence.priority, sequence.salt].append(sequence)
    shares = Counter(priority for priority, _ in tenants)
    work = []
    for (priority, _), own in sorted(tenants.items(), key=lambda item: (item[0][0], sum(s.pending for s in item[1]))):
        share = -(-budget // shares[priority])
        shares[priority] -= 1
        for sequence in own:
            tokens = min(sequence.pending, share)
            if tokens > 0:
                share -= tokens
                budget -= tokens
                work.append(Work(sequence, tokens, tokens == sequence.pending))
    return work
