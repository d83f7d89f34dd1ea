"""Tollway's engine, driven step by step in its own process, without socket or text."""

from __future__ import annotations

import time
from argparse import Namespace
from collections import defaultdict
from pathlib import Path
from statistics import median

from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.loader import load
from local_engine.wire import Params
from tests.bench.engine.cases import SHORT_PROMPT, Case, prompts

ITEM_BYTES = {"f32": 4, "bf16": 2, "int8": 1}


class Tollway:
    def __init__(self, options: Namespace) -> None:
        import torch

        self._config = EngineConfig(model_dir=options.model, precision=options.precision, threads=options.threads).checked()
        self._model = load(Path(options.model), options.precision)
        self._engine = Engine(self._model, self._config)
        self._next = 0
        self.version = f"torch {torch.__version__}"

    def run(self, prompts: list[list[int]], tokens: int) -> dict[str, float]:
        params = Params(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        began = time.perf_counter()
        for prompt in prompts:
            self._add(prompt, params)
        first, made = 0.0, 0
        while self._engine.busy:
            made += len(self._engine.step())
            first = first or (time.perf_counter() - began if made else 0.0)
        return {"first": first, "total": time.perf_counter() - began, "tokens": made}

    def bytes_per_token(self) -> dict[str, float]:
        """What one decode of one sequence has to read: every weight once, the embedding as the head."""
        shape = self._model.shape
        head = shape.head_dim * shape.hidden
        attention = (2 * shape.heads + 2 * shape.kv_heads) * head
        values = shape.layers * (attention + 3 * shape.hidden * shape.intermediate) + shape.vocab * shape.hidden
        return {"bytes": float(values * ITEM_BYTES[self._config.precision])}

    def trade(self, limit: int, requests: int, tokens: int, step_tokens: int) -> dict[str, float]:
        """`limit` requests in flight, the next one added as one ends: tokens/s, and medians of seconds to the first token and between."""
        config = EngineConfig(
            model_dir=self._config.model_dir,
            precision=self._config.precision,
            threads=self._config.threads,
            max_sequences=limit,
            max_step_tokens=step_tokens,
        )
        self._engine = engine = Engine(self._model, config.checked())
        waiting = prompts(Case("trade", requests, SHORT_PROMPT), f"{limit} {step_tokens}")
        params = Params(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        times: defaultdict[int, list[float]] = defaultdict(list)
        asked: dict[int, float] = {}
        flying, began = 0, time.perf_counter()
        while flying or waiting:
            while waiting and flying < limit:
                asked[self._add(waiting.pop(), params)] = time.perf_counter()
                flying += 1
            outputs, now = engine.step(), time.perf_counter()
            for output in outputs:
                times[output.id].append(now)
                flying -= output.reason is not None
        return {
            "tokens_s": sum(map(len, times.values())) / (time.perf_counter() - began),
            "ttft_s": median(times[key][0] - at for key, at in asked.items()),
            "between_s": median((own[-1] - own[0]) / (len(own) - 1) for own in times.values()),
        }

    def _add(self, prompt: list[int], params: Params) -> int:
        self._next += 1
        self._engine.add(self._next, prompt, params)
        return self._next


make = Tollway
