"""transformers in f32: `generate` on one static batch, or its continuous batching with a manager that stays (its start is not counted)."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

KV_BLOCKS = 64
BATCH_TOKENS = 512


def make(options: Namespace) -> Static | Continuous:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(options.threads)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.do_sample = False
    model.generation_config.temperature = model.generation_config.top_p = model.generation_config.top_k = None
    return Continuous(model) if options.kind == "transformers-cb" else Static(model)


class Static:
    def __init__(self, model: Any) -> None:
        import transformers

        self._model = model
        self.version = f"transformers {transformers.__version__}"

    def run(self, prompts: list[list[int]], tokens: int) -> dict[str, float]:
        import torch

        ids = torch.tensor(prompts)
        began = time.perf_counter()
        seen: list[float] = []

        def stopping(ids: Any, scores: Any, **rest: Any) -> Any:
            seen.append(time.perf_counter() - began)
            return torch.zeros(len(prompts), dtype=torch.bool)

        with torch.inference_mode():
            out = self._model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, pad_token_id=0, stopping_criteria=[stopping]
            )
        total = time.perf_counter() - began
        return {"first": seen[0], "total": total, "tokens": (out.shape[1] - ids.shape[1]) * len(prompts)}


class Continuous:
    def __init__(self, model: Any) -> None:
        import transformers
        from transformers import ContinuousBatchingConfig

        config = ContinuousBatchingConfig(num_blocks=KV_BLOCKS, max_batch_tokens=BATCH_TOKENS)
        self._manager = model.init_continuous_batching(continuous_batching_config=config)
        self._manager.start()
        self.version = f"transformers {transformers.__version__}"

    def run(self, prompts: list[list[int]], tokens: int) -> dict[str, float]:
        began = time.perf_counter()
        self._manager.add_requests(inputs=prompts, max_new_tokens=tokens)
        done: list[Any] = []
        while len(done) < len(prompts):
            result = self._manager.get_result(timeout=1)
            if result is not None and result.is_finished():
                if result.error is not None:
                    raise RuntimeError(result.error)
                done.append(result)
            elif result is None and not self._manager.is_running():
                raise RuntimeError("continuous batching has stopped")
        total = time.perf_counter() - began
        return {"first": total, "total": total, "tokens": sum(len(one.generated_tokens) for one in done)}
