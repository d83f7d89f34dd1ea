"""A self-hosted engine in the simulation: continuous batching with chunked prefill, a bounded KV cache and a prefix cache, step by step.

A step prefills at most `chunk_tokens` of the prompts in their order and decodes one token of every running sequence; its time is linear
in both. A sequence is admitted when its prompt and answer fit into the KV cache. Knows no policy; whoever drives it passes the clock.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable

from msgspec import Struct

BLOCK_TOKENS = 512


Tell = Callable[[float], None]


class Speed(Struct, frozen=True):
    """Seconds: of a step, per prefilled token, per decoding sequence. About a 13B model on one 80 GB card."""

    step_s: float = 0.018
    prefill_s: float = 1 / 6000
    decode_s: float = 0.00015
    chunk_tokens: int = 192
    kv_tokens: int = 60_000
    sequences: int = 64
    prefix_blocks: int = 0  # of the prefix cache; 0 = none


class Sequence:
    """One request inside the engine. on_first and on_end are called with the clock at the end of a step."""

    __slots__ = ("cached", "decoding", "gone", "input_tokens", "left", "on_cut", "on_end", "on_first", "output_tokens", "prefix")

    def __init__(self, tokens: tuple[int, int], prefix: tuple[int, ...], on_first: Tell, on_end: Tell) -> None:
        self.input_tokens, self.output_tokens = tokens
        self.left = self.input_tokens  # to be prefilled
        self.cached = 0
        self.prefix = prefix
        self.on_first, self.on_end = on_first, on_end
        self.on_cut: Tell = on_end
        self.decoding = self.gone = False

    @property
    def size(self) -> int:
        return self.input_tokens + self.output_tokens


class Engine:
    """at(time, call) schedules. `outstanding` is what a metrics page would tell: prompt tokens not prefilled yet."""

    def __init__(self, speed: Speed, at: Callable[[float, Tell], None]) -> None:
        self.speed = speed
        self._at = at
        self.waiting: deque[Sequence] = deque()
        self._prefilling: deque[Sequence] = deque()
        self._decoding: list[tuple[int, int, Sequence]] = []  # heap by the step that ends each
        self._running = 0  # sequences that decode
        self._admitted = 0
        self._steps = 0
        self._order = 0
        self.kv_used = 0
        self.busy = False
        self.outstanding = 0
        self.frozen = False  # hangs, or is dead
        self.dead = False
        self._epoch = 0  # of its life: a step of a former one is void
        self._held: list[Sequence] | None = None  # the step that a freeze caught
        self.known: OrderedDict[int, None] = OrderedDict()
        self.step_ends = 0.0

    @property
    def running(self) -> int:
        return self._admitted

    def cached_tokens(self, prefix: tuple[int, ...], input_tokens: int) -> int:
        """Prompt tokens that the prefix cache holds; at least one block is always computed."""
        blocks = 0
        for name in prefix:
            if name not in self.known:
                break
            blocks += 1
        return max(0, min(blocks * BLOCK_TOKENS, input_tokens - 1))

    def submit(self, sequence: Sequence, now: float) -> None:
        """Take a request in."""
        self.outstanding += sequence.left
        self.waiting.append(sequence)
        self._wake(now)

    def cancel(self, sequence: Sequence) -> None:
        """Forget a request, wherever it is."""
        if sequence.gone:
            return
        sequence.gone = True
        self.outstanding -= sequence.left
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            return
        if sequence.decoding:
            self._running -= 1
        else:
            self._prefilling.remove(sequence)
        self._leave(sequence)

    def stop(self) -> list[Sequence]:
        """The engine dies: what it held."""
        self.dead = True
        held = [*self.waiting, *self._prefilling, *(s for _, _, s in self._decoding if not s.gone)]
        for sequence in held:
            self.cancel(sequence)
        self._decoding.clear()
        self._epoch += 1
        self.busy = False
        self._held = None
        return held

    def resume(self, now: float) -> None:
        """Go on after a freeze, where it stood."""
        self.frozen = self.dead = False
        if self._held is not None:
            held, self._held = self._held, None
            self._finish_step(now, held)
        else:
            self._wake(now)

    def _wake(self, now: float) -> None:
        if not self.busy and not self.frozen:
            self.busy = True
            self._step(now)

    def _leave(self, sequence: Sequence) -> None:
        self.kv_used -= sequence.size
        self._admitted -= 1

    def _admit(self) -> None:
        speed = self.speed
        while self.waiting and self._admitted < speed.sequences:
            first = self.waiting[0]
            if self._admitted and self.kv_used + first.size > speed.kv_tokens:
                return
            self.waiting.popleft()
            self.kv_used += first.size
            self._admitted += 1
            if speed.prefix_blocks:
                first.cached = self.cached_tokens(first.prefix, first.input_tokens)
                self._touch(first.prefix)
                first.left -= first.cached
                self.outstanding -= first.cached
            self._prefilling.append(first)

    def _touch(self, prefix: tuple[int, ...]) -> None:
        known = self.known
        for name in reversed(prefix):  # the first blocks are the most useful ones: they are dropped last
            known[name] = None
            known.move_to_end(name)
        while len(known) > self.speed.prefix_blocks:
            known.popitem(last=False)

    def _step(self, now: float) -> None:
        self._admit()
        if not self._prefilling and not self._running:
            self.busy = False
            return
        budget = self.speed.chunk_tokens
        done: list[Sequence] = []
        while self._prefilling and budget > 0:
            first = self._prefilling[0]
            taken = min(budget, first.left)
            first.left -= taken
            budget -= taken
            self.outstanding -= taken
            if first.left > 0:
                break
            self._prefilling.popleft()
            done.append(first)
            first.decoding = True
        took = self.speed.chunk_tokens - budget
        decoding = self._running
        self._running += len(done)
        self.step_ends = now + self.speed.step_s + took * self.speed.prefill_s + decoding * self.speed.decode_s
        epoch = self._epoch
        self._at(self.step_ends, lambda at: self._finish_step(at, done) if epoch == self._epoch else None)

    def _finish_step(self, now: float, done: list[Sequence]) -> None:
        if self.frozen:
            self._held = done
            return
        self._steps += 1
        for sequence in done:
            if sequence.gone:
                continue
            self._order += 1
            heapq.heappush(self._decoding, (self._steps + sequence.output_tokens - 1, self._order, sequence))
            sequence.on_first(now)
        while self._decoding and (self._decoding[0][0] <= self._steps or self._decoding[0][2].gone):
            sequence = heapq.heappop(self._decoding)[2]
            if sequence.gone:
                continue
            sequence.gone = True
            self._running -= 1
            self._leave(sequence)
            sequence.on_end(now)
        self._step(now)

    def foresee(self, tokens: tuple[int, int], prefix: tuple[int, ...], now: float) -> tuple[float, float]:
        """(TTFT, TPOT) of a request submitted now, if nobody came after it: what only a clairvoyant asks."""
        speed = self.speed
        fresh = tokens[0] - (self.cached_tokens(prefix, tokens[0]) if speed.prefix_blocks else 0)
        queued = self.outstanding + fresh
        steps = -(-queued // speed.chunk_tokens)
        wait = max(0.0, self.step_ends - now) if self.busy else 0.0
        ttft = wait + steps * (speed.step_s + self._running * speed.decode_s) + queued * speed.prefill_s
        over = self.kv_used + sum(s.size for s in self.waiting) + sum(tokens) - speed.kv_tokens
        full = over > 0 and self._admitted > 0
        if full or self._admitted + len(self.waiting) >= speed.sequences:
            ttft += max(over / 1350, len(self.waiting) + 1.0) * 0.35
        return ttft, speed.step_s + (self._running + len(self._prefilling) + 1) * speed.decode_s
