"""Continuous batching: requests of many users interleave, each step computes one token of every running sequence and some prompt.

Ids in, ids out; text is the server's. Not thread-safe: one thread owns it.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, NamedTuple

import torch

from local_engine import huge_pages
from local_engine.config import EngineConfig
from local_engine.errors import BadRequest, ConfigError, ContextExceeded, Unavailable
from local_engine.graphs import recorder
from local_engine.kv_cache import KvPool
from local_engine.layers.paged import Heads, flash_infer
from local_engine.loader import Model
from local_engine.metrics import Metrics
from local_engine.model_runner import ModelRunner, block_bytes, kv_bytes
from local_engine.models.llama import Llama
from local_engine.sampling import Pick, State, sample
from local_engine.scheduler import Scheduler, Work
from local_engine.sequence import Sequence
from local_engine.wire import MAX_CHOICES, MAX_LOGPROBS, MAX_STOP_STRINGS, Params, Stats

if TYPE_CHECKING:
    from local_engine.grammar import Matcher

MAX_SEED = 2**64
logger = logging.getLogger(__name__)


class Output(NamedTuple):
    """One new token. `reason` is set on the last one: stop (end-of-sequence token, or a grammar at its end) | length | failed."""

    id: int
    pick: Pick
    reason: str | None

    @property
    def token(self) -> int:
        return self.pick.token


class Engine:
    def __init__(self, model: Model, config: EngineConfig) -> None:
        self.config = config
        self.eos_ids = model.shape.eos_ids
        self.vocab = model.shape.vocab
        llama = Llama(model.shape, model.weights, config.thread_count if config.compiled and not config.graphs else 0)
        torch.set_num_threads(config.thread_count if llama.compiled is None else 1)  # else its own would wait on the cores of the others
        size = block_bytes(model.shape, llama.embedding.element_size())
        device = llama.embedding.device
        record = recorder(device) if config.graphs or (config.graphs is None and device.type == "cuda") else None
        allowed, spare = kv_bytes(config, device), int(record is not None)
        if allowed // size <= spare:
            raise ConfigError(f"kv_bytes {allowed} holds no block of this model: {size * (1 + spare)} bytes at least", param="kv_bytes")
        self.pool = KvPool(allowed // size - spare, size)
        if device.type == "cpu" and llama.embedding.nbytes >= huge_pages.LEAST_BYTES:  # no toy
            huge_pages.gather()  # before there are caches, whose memory is taken as it is used
        self.context_tokens = min(model.shape.context_tokens, self.pool.capacity_tokens)
        self.scheduler = Scheduler(self.pool, config.max_sequences, config.max_step_tokens)
        heads = Heads(model.shape.heads, model.shape.kv_heads, model.shape.head_dim)
        flash = flash_infer(heads, llama.embedding) if config.flash_infer else None
        self.runner = ModelRunner(llama, self.pool.blocks, record, flash)
        attention = flash.name if flash is not None else "torch"
        plain = f"{'recorded' if record else 'plain'} steps, attention of single tokens by {attention}"
        self.how = f"{device.type}, {'compiled steps' if llama.compiled is not None else plain}"
        logger.info("model %s on %s, %d bytes of keys and values", model.name, self.how, self.pool.cap_bytes)
        self._sequences: dict[int, Sequence] = {}
        self._steps = self._prompt_tokens = self._output_tokens = 0
        self._step_ms = 0.0
        self.metrics = Metrics()
        self.device_index = device.index if device.type == "cuda" else None

    def add(self, key: int, prompt: list[int], params: Params, salt: str = "", matcher: Matcher | None = None, priority: int = 0) -> None:
        """Queue a request; `key` is the caller's, unique among open ones; `salt` its tenant; matcher: of its grammar; a lower priority
        number goes first. Raises BadRequest, ContextExceeded, Unavailable (queue full)."""
        check_params(params, self.vocab)
        if params.grammar is not None and matcher is None:
            raise BadRequest("a grammar wants its matcher", param=params.grammar.param)
        limit = limit_tokens(len(prompt), params, self.context_tokens)
        if not all(0 <= token < self.vocab for token in prompt):
            raise BadRequest(f"token ids must be in [0, {self.vocab})", param="prompt")
        if len(self._sequences) >= self.config.max_sequences + self.config.max_waiting:
            raise Unavailable(f"{len(self._sequences)} requests are open already", retry_after_s=self.config.retry_after_s)
        self._sequences[key] = sequence = Sequence(key, prompt, params, limit, salt, State(params, matcher))
        sequence.priority = priority
        sequence.added_at = time.monotonic()
        self.scheduler.add(sequence)

    def abort(self, key: int) -> None:
        """Forget a request and free what it holds; nothing happens if it ended already."""
        sequence = self._sequences.pop(key, None)
        if sequence is not None:
            self.scheduler.remove(sequence)

    def step(self) -> list[Output]:
        """Schedule -> run -> sample -> emit. Nothing happens while nobody asks for anything."""
        started = time.monotonic()
        work = self.scheduler.schedule()
        if not work:
            return []
        logits = self.runner.run(work)
        picks = sample(logits, [w.sequence for w in work if w.samples], self.eos_ids)
        outputs = self._emit(work, picks)
        if not self._sequences:
            self.check()
        seconds = time.monotonic() - started
        self._step_ms = seconds * 1000
        self.metrics.step(seconds, len(work))
        return outputs

    def check(self) -> None:
        """AssertionError unless the pool is whole: every block free or held by an open sequence. Done whenever the engine becomes idle."""
        self.pool.check(sequence.table for sequence in self._sequences.values())

    @property
    def busy(self) -> bool:
        return bool(self._sequences)

    @property
    def stats(self) -> Stats:
        metrics = self.metrics
        return Stats(
            state="ready",
            waiting=len(self.scheduler.waiting),
            running=len(self.scheduler.running),
            outstanding_prefill_tokens=self.scheduler.outstanding_prefill_tokens,
            kv_bytes_used=self.pool.used_bytes,
            kv_bytes_cap=self.pool.cap_bytes,
            kv_blocks_used=self.pool.used_blocks,
            kv_blocks_free=self.pool.free_blocks,
            kv_blocks_shared=self.pool.shared_blocks,
            steps=self._steps,
            step_ms=self._step_ms,
            prompt_tokens=self._prompt_tokens,
            output_tokens=self._output_tokens,
            prefix_hit_tokens=self.scheduler.prefix_hit_tokens,
            preemptions=self.scheduler.preemptions,
            batch=metrics.batch if self._sequences else 0,
            first_token=metrics.first_token.times,
            per_token=metrics.per_token.times,
            step=metrics.steps.times,
        )

    def _emit(self, work: list[Work], picks: list[Pick]) -> list[Output]:
        outputs: list[Output] = []
        fresh = iter(picks)
        now = time.monotonic()
        for sequence, count, samples in work:
            sequence.computed += count
            self.pool.commit(sequence.table, sequence.tokens, sequence.computed)
            if not samples:
                continue
            if sequence.generated == 0:
                self._prompt_tokens += sequence.prompt_tokens
                self.metrics.first_token.observe(now - sequence.added_at)
                sequence.first_at = now
            pick = next(fresh)
            sequence.tokens.append(pick.token)
            reason = self._reason(sequence, pick.token)
            if reason is not None:
                self.metrics.ended(sequence.generated, sequence.first_at, now)
                self.abort(sequence.id)
            outputs.append(Output(sequence.id, pick, reason))
        self._steps += 1
        self._output_tokens += len(picks)
        return outputs

    def _reason(self, sequence: Sequence, token: int) -> str | None:
        matcher = sequence.sampling.matcher
        if matcher is not None:
            if token in self.eos_ids:
                return "stop"
            if not matcher.take(token):
                return "failed" if matcher.error else "stop"
        if token in self.eos_ids and not sequence.params.ignore_eos and sequence.generated > sequence.params.min_tokens:
            return "stop"
        return "length" if sequence.generated >= sequence.limit else None


def limit_tokens(prompt_tokens: int, params: Params, context_tokens: int) -> int:
    """Most tokens this request may generate. ContextExceeded with both numbers when they do not fit: nothing is ever cut silently."""
    if prompt_tokens < 1:
        raise BadRequest("the prompt is empty", param="prompt")
    wanted = params.max_tokens
    if params.clamp and wanted is not None and prompt_tokens < context_tokens:
        wanted = min(wanted, context_tokens - prompt_tokens)
    if prompt_tokens + (1 if wanted is None else wanted) > context_tokens:
        asked = "at least 1 more" if wanted is None else f"max_tokens {wanted}"
        raise ContextExceeded(
            f"the prompt has {prompt_tokens} tokens and with {asked} it is over this model's context of {context_tokens} tokens",
            param="messages",
        )
    return context_tokens - prompt_tokens if wanted is None else wanted


RANGES = {
    "temperature": (0.0, 100.0),
    "top_p": (0.0, 1.0),
    "top_k": (0, 1_000_000),
    "min_p": (0.0, 1.0),
    "min_tokens": (0, 1_000_000),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (0.01, 10.0),
    "n": (1, MAX_CHOICES),
}


def check_params(params: Params, vocab: int) -> None:
    """BadRequest naming the first parameter that is out of range, so that a bad request never reaches a batch."""
    for name, (low, high) in RANGES.items():
        value = getattr(params, name)
        if not (math.isfinite(value) and low <= value <= high):
            raise BadRequest(f"{name} must be from {low} to {high}, not {value}", param=name)
    if params.max_tokens is not None and params.max_tokens < 1:
        raise BadRequest(f"max_tokens must be at least 1, not {params.max_tokens}", param="max_tokens")
    if params.logprobs is not None and not 0 <= params.logprobs <= MAX_LOGPROBS:
        raise BadRequest(f"logprobs must be from 0 to {MAX_LOGPROBS}, not {params.logprobs}", param="top_logprobs")
    if params.seed is not None and not -MAX_SEED < params.seed < MAX_SEED:
        raise BadRequest("seed must fit in 64 bits", param="seed")
    if len(params.stop) > MAX_STOP_STRINGS or "" in params.stop:
        raise BadRequest(f"stop takes up to {MAX_STOP_STRINGS} strings, none of them empty", param="stop")
    for token, bias in params.logit_bias.items():
        if not 0 <= token < vocab or not -100 <= bias <= 100:
            raise BadRequest(f"logit_bias wants ids below {vocab} and values from -100 to 100", param="logit_bias")
