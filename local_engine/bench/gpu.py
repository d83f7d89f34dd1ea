"""Is a device's arithmetic right, and how fast is it beside transformers (and vLLM, where it is installed)? One run of some minutes.

Right: greedy ids in f32 equal the CPU's but where the two best logits are close, alone and in a batch, recorded and plain; bf16 is near
f32, and told token by token, by torch's attention and by FlashInfer's where it is installed, what it is read whole. What does not fit
into the time is named as left out.
"""

from __future__ import annotations

import gc
import importlib.util
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn.functional import kl_div

from local_engine.bench.quality import logits
from local_engine.config import EngineConfig
from local_engine.engine import Engine
from local_engine.errors import ConfigError
from local_engine.loader import load
from local_engine.models.llama import Llama
from local_engine.wire import Params

CLOSE = 1e-3  # two logits nearer than this may change places
PROMPTS = 8
BATCHES = (1, 16, 64)
PROMPT_TOKENS = 128
MAX_KL = 0.02  # bf16 beside f32, nats
CHECK_BYTES = 1024**3  # keys and values of each engine that is compared
KV_FRACTION = 0.4  # of the free memory, in the table: others want some
RESERVE_S = 45.0  # a measurement begins only if so much is left


class Speed(NamedTuple):
    who: str
    batch: int
    tokens_s: float


def run(options: Any) -> int:
    """The command `bench gpu`; 1 when the device computed wrongly."""
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("not run: there is no CUDA device, or this torch is built without CUDA", param="device")
    ends = time.monotonic() + options.minutes * 60
    folder = Path(options.model_dir)
    torch.backends.cuda.matmul.allow_tf32 = False
    faults = []
    for line, right in checks(folder, options.device):
        print(f"{'ok   ' if right else 'WRONG'} {line}", flush=True)  # noqa: T201 - a command's answer
        faults += [] if right else [line]
    print("\n| batch | by | tokens/s |\n|---|---|---|")  # noqa: T201
    for who, batch, measure in measurements(folder, options.device, options.tokens):
        if time.monotonic() + RESERVE_S > ends:
            print(f"| {batch} | {who} | left out: no time |", flush=True)  # noqa: T201
        else:
            print(f"| {batch} | {who} | {measure().tokens_s:.0f} |", flush=True)  # noqa: T201
            gc.collect()  # the memory of the one before is the next one's
    return int(bool(faults))


def checks(folder: Path, device: str, tokens: int = 32) -> Iterator[tuple[str, bool]]:
    """What was compared, and whether it holds."""
    shape = load(folder).shape
    asked = prompts(shape.vocab, [1 + (shape.context_tokens - tokens - 1) * i // (3 * PROMPTS) for i in range(PROMPTS)])
    reference = Llama(shape, load(folder).weights)

    def same(found: list[list[int]], wanted: list[list[int]]) -> bool:
        return all(alike(reference, *one) for one in zip(asked, found, wanted, strict=True))

    there, here = make_engine(folder, "f32", device, PROMPTS), make_engine(folder, "f32", "cpu", PROMPTS)
    together = greedy(there, asked, tokens)
    yield f"{PROMPTS} prompts in a batch as each alone, f32", same(together, [greedy(there, [prompt], tokens)[0] for prompt in asked])
    plain = make_engine(folder, "f32", device, PROMPTS, graphs=False)
    yield f"greedy ids by {there.how} as by {plain.how}, f32", same(together, greedy(plain, asked, tokens))
    wanted = greedy(here, asked, tokens)
    differ = [i for i in range(PROMPTS) if not alike(reference, asked[i], together[i], wanted[i])]
    yield f"greedy ids as on the CPU, f32; differing prompts: {differ or 'none'}", not differ
    yield from _near(folder, device, reference, asked, tokens)


def _near(folder: Path, device: str, reference: Llama, asked: list[list[int]], tokens: int) -> Iterator[tuple[str, bool]]:
    """bf16: a whole text at once beside f32, and answers told token by token beside the same read whole, all in bf16."""
    half = Llama(reference.shape, load(folder, "bf16", device).weights)
    ids = asked[-1]
    kl = kl_div(
        logits(half, ids, len(ids)).cpu().log_softmax(-1),
        logits(reference, ids, len(ids)).log_softmax(-1),
        reduction="batchmean",
        log_target=True,
    ).item()
    yield f"KL of bf16 to f32 over {len(ids)} tokens: {kl:.5f} nats, at most {MAX_KL}", kl <= MAX_KL
    losses = {}
    for flash in (False, True):
        engine = make_engine(folder, "bf16", device, PROMPTS, flash_infer=flash)
        if engine.how not in losses:  # FlashInfer is not installed
            losses[engine.how] = loss(half, asked, greedy(engine, asked, tokens))
    told = "; ".join(f"{how}: {value:.4f}" for how, value in losses.items())
    yield (
        f"bf16 told token by token beside the same read whole, nats lost a token, at most {MAX_KL}: {told}",
        max(losses.values()) <= MAX_KL,
    )


def loss(reference: Llama, asked: list[list[int]], answers: list[list[int]]) -> float:
    """How much less likely than its own best the reference, reading them whole, finds each token of the answers, in the mean."""
    lost = []
    for prompt, answer in zip(asked, answers, strict=True):
        ids = [*prompt, *answer]
        found = logits(reference, ids, len(ids))[len(prompt) - 1 : -1].cpu().log_softmax(-1)
        lost.append(found.amax(-1) - found.gather(1, torch.tensor(answer)[:, None])[:, 0])
    return torch.cat(lost).mean().item()


def measurements(folder: Path, device: str, tokens: int) -> Iterator[tuple[str, int, Callable[[], Speed]]]:
    """Who, at which batch, and how to find out."""
    vocab = load(folder).shape.vocab
    for batch in BATCHES:
        asked = prompts(vocab, [PROMPT_TOKENS] * batch)
        yield "this engine, bf16", batch, lambda asked=asked: _ours(folder, device, asked, tokens)  # type: ignore[misc]
        yield "transformers generate, bf16", batch, lambda asked=asked: _transformers(folder, device, asked, tokens)  # type: ignore[misc]
        if importlib.util.find_spec("vllm") is not None:
            yield "vLLM, bf16", batch, lambda asked=asked: _vllm(folder, asked, tokens)  # type: ignore[misc]


def prompts(vocab: int, lengths: list[int]) -> list[list[int]]:
    numbers = random.Random(6)
    return [[numbers.randrange(vocab) for _ in range(length)] for length in lengths]


def make_engine(folder: Path, precision: str, device: str, batch: int, **options: Any) -> Engine:
    """As the engine is by default on a CUDA device; recorded steps on another one too, so that this script can be tried there."""
    sizes: dict[str, Any] = {"max_sequences": batch, "max_waiting": batch, "kv_bytes": CHECK_BYTES, "graphs": True}
    config = EngineConfig(model_dir=str(folder), precision=precision, device=device, **(sizes | options))
    return Engine(load(folder, precision, device), config.checked())


def greedy(engine: Engine, asked: list[list[int]], tokens: int) -> list[list[int]]:
    """The ids of each answer, all asked at once."""
    answers: list[list[int]] = [[] for _ in asked]
    for key, prompt in enumerate(asked):
        engine.add(key, prompt, Params(temperature=0, max_tokens=tokens, ignore_eos=True))
    while engine.busy:
        for output in engine.step():
            answers[output.id].append(output.token)
    return answers


def alike(reference: Llama, prompt: list[int], found: list[int], wanted: list[int]) -> bool:
    """The same ids, or a first difference where the reference's two best logits are close."""
    if found == wanted:
        return True
    first = next(i for i, (a, b) in enumerate(zip(found, wanted, strict=True)) if a != b)
    ids = [*prompt, *wanted[:first]]
    best = logits(reference, ids, len(ids))[-1].topk(2).values
    return bool(best[0] - best[1] < CLOSE)


def _ours(folder: Path, device: str, asked: list[list[int]], tokens: int) -> Speed:
    engine = make_engine(folder, "bf16", device, len(asked), kv_bytes=0, kv_fraction=KV_FRACTION)
    greedy(engine, asked, tokens)  # whole: each size that is met is recorded
    seconds = _timed(lambda: greedy(engine, asked, tokens), device)
    return Speed("ours", len(asked), len(asked) * tokens / seconds)


def _transformers(folder: Path, device: str, asked: list[list[int]], tokens: int) -> Speed:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(load(folder).folder, dtype=torch.bfloat16)
    model.to(torch.device(device))  # type: ignore[arg-type]
    model.generation_config.eos_token_id = None
    ids = torch.tensor(asked, device=device)

    def generate(count: int) -> None:
        model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=0)

    generate(4)
    seconds = _timed(lambda: generate(tokens), device)
    return Speed("transformers", len(asked), len(asked) * tokens / seconds)


def _vllm(folder: Path, asked: list[list[int]], tokens: int) -> Speed:
    from vllm import LLM, SamplingParams

    model = LLM(str(load(folder).folder), dtype="bfloat16", gpu_memory_utilization=0.5, enable_prefix_caching=False)
    given = [{"prompt_token_ids": prompt} for prompt in asked]

    def generate(count: int) -> None:
        model.generate(given, SamplingParams(temperature=0, max_tokens=count, ignore_eos=True), use_tqdm=False)

    generate(4)
    seconds = _timed(lambda: generate(tokens), "cuda")
    return Speed("vllm", len(asked), len(asked) * tokens / seconds)


def _timed(action: Callable[[], Any], device: str) -> float:
    """Seconds of wall time until the device is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    action()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began
