"""The engine against transformers' generate(): alone, in a batch, joining a batch, after preemption, with any chunk size."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from local_engine.config import EngineConfig
from local_engine.engine import Engine, limit_tokens
from local_engine.errors import BadRequest, ConfigError, ContextExceeded, Unavailable
from local_engine.loader import load
from local_engine.tokenizer import Tokenizer
from local_engine.wire import Params
from tests.local_engine.tiny import CONTEXT, real_model

GREEDY = 24


def make_engine(folder: Path, threads: int = 1, **options: Any) -> Engine:
    return Engine(load(folder), EngineConfig(model_dir=str(folder), threads=threads, **options).checked())


def prompts(vocab: int, lengths: Iterable[int]) -> list[list[int]]:
    numbers = random.Random(4)
    return [[numbers.randrange(2, vocab) for _ in range(length)] for length in lengths]


def greedy(count: int = GREEDY, **params: Any) -> Params:
    return Params(temperature=0, max_tokens=count, ignore_eos=True, **params)


def run(engine: Engine, requests: list[tuple[int, list[int], Params]], join_after: int = 0) -> dict[int, list[int]]:
    """All tokens by request; each request joins `join_after` steps after the one before it."""
    out: dict[int, list[int]] = {key: [] for key, _, _ in requests}
    queue = list(requests)
    step = 0
    while queue or engine.busy:
        while queue and step >= join_after * (len(requests) - len(queue)):
            engine.add(*queue.pop(0))
        for output in engine.step():
            out[output.id].append(output.token)
        step += 1
    engine.pool.check()
    assert engine.pool.used_bytes == 0
    return out


def reference(folder: Path, given: list[list[int]], count: int) -> list[list[int]]:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.eos_token_id = None
    answers = []
    for prompt in given:
        ids = torch.tensor([prompt])
        answer = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False, pad_token_id=0)
        answers.append(answer[0, len(prompt) :].tolist())
    return answers


@pytest.fixture(scope="module")
def given(tiny: Path) -> list[list[int]]:
    return prompts(load(tiny).shape.vocab, (3, 40, 1, 150, 17, 300))


@pytest.fixture(scope="module")
def wanted(tiny: Path, given: list[list[int]]) -> list[list[int]]:
    answers = reference(tiny, given, GREEDY)
    assert len({tuple(answer) for answer in answers}) == len(given)  # the comparison means something
    assert all(len(set(answer)) > 3 for answer in answers)
    return answers


def test_g39_greedy_ids_equal_transformers_alone(tiny: Path, given: list[list[int]], wanted: list[list[int]]) -> None:
    engine = make_engine(tiny)
    for prompt, answer in zip(given, wanted, strict=True):
        assert run(engine, [(1, prompt, greedy())])[1] == answer


def test_the_same_by_torch(tiny: Path, given: list[list[int]], wanted: list[list[int]]) -> None:
    engine = make_engine(tiny, compiled=False)
    out = run(engine, [(key, prompt, greedy()) for key, prompt in enumerate(given)], join_after=2)
    assert [out[key] for key in range(len(given))] == wanted


@pytest.mark.parametrize("join_after", [0, 3])
@pytest.mark.parametrize("chunk", [256, 16, 7])
def test_g39_the_same_in_a_batch_and_joining_one(
    tiny: Path, given: list[list[int]], wanted: list[list[int]], join_after: int, chunk: int
) -> None:
    engine = make_engine(tiny, max_step_tokens=chunk)
    out = run(engine, [(key, prompt, greedy()) for key, prompt in enumerate(given)], join_after)
    assert [out[key] for key in range(len(given))] == wanted


def test_the_same_after_preemption(tiny: Path, given: list[list[int]], wanted: list[list[int]]) -> None:
    engine = make_engine(tiny, kv_bytes=2 * 2 * 2 * 16 * 4 * 384)  # 384 tokens in all
    out = run(engine, [(key, prompt, greedy()) for key, prompt in enumerate(given)])
    assert [out[key] for key in range(len(given))] == wanted

    small = make_engine(tiny, kv_bytes=2 * 2 * 2 * 16 * 4 * 256)
    out = run(small, [(key, given[key], greedy(150)) for key in (0, 1, 4)])
    assert small.scheduler.preemptions > 0
    assert [out[key][:GREEDY] for key in (0, 1, 4)] == [wanted[key] for key in (0, 1, 4)]


@pytest.mark.skipif(real_model() is None, reason="SmolLM2 has not been fetched")
def test_smollm2_equals_transformers() -> None:
    folder = real_model()
    assert folder is not None
    tokenizer = Tokenizer(folder)
    texts = ["The capital of France is", "def fib(n):", "Once upon a time, " * 10]
    given = [tokenizer.encode(text) for text in texts]
    out = run(make_engine(folder), [(key, prompt, greedy(12)) for key, prompt in enumerate(given)], join_after=2)
    assert [out[key] for key in range(3)] == reference(folder, given, 12)


def test_a_seed_gives_the_same_text_alone_and_in_company(tiny: Path, given: list[list[int]]) -> None:
    engine = make_engine(tiny)
    params = Params(temperature=1.2, top_p=0.95, seed=11, max_tokens=20, ignore_eos=True)
    alone = run(engine, [(1, given[0], params)])[1]
    others = [(key, given[key], Params(seed=key, max_tokens=15, ignore_eos=True)) for key in (2, 3, 4)]
    assert run(engine, [*others, (1, given[0], params)], join_after=1)[1] == alone
    assert run(engine, [(1, given[0], Params(temperature=1.2, top_p=0.95, seed=12, max_tokens=20, ignore_eos=True))])[1] != alone


def finishing(engine: Engine, prompt: list[int], params: Params) -> tuple[list[int], str | None]:
    engine.add(1, prompt, params)
    tokens, reason = [], None
    while engine.busy:
        for output in engine.step():
            tokens.append(output.token)
            reason = output.reason
    return tokens, reason


def test_ends(tiny: Path, given: list[list[int]]) -> None:
    engine = make_engine(tiny)
    force_end = {0: 100.0}  # the model's end-of-sequence token
    assert finishing(engine, given[0], greedy(5))[1] == "length"
    assert finishing(engine, given[0], Params(temperature=0, logit_bias=force_end)) == ([0], "stop")
    tokens, reason = finishing(engine, given[0], Params(temperature=0, logit_bias=force_end, min_tokens=3))
    assert (len(tokens), tokens[3:], reason) == (4, [0], "stop")
    assert finishing(engine, given[0], greedy(4, logit_bias=force_end)) == ([0] * 4, "length")  # ignore_eos


def test_without_max_tokens_the_rest_of_the_context_is_used(tiny: Path, given: list[list[int]]) -> None:
    tokens, reason = finishing(make_engine(tiny), given[5], Params(temperature=0, ignore_eos=True))
    assert (len(given[5]) + len(tokens), reason) == (CONTEXT, "length")


@pytest.mark.parametrize(
    ("prompt", "most", "fits"), [(500, 12, True), (500, 13, False), (511, None, True), (512, None, False), (512, 1, False)]
)
def test_what_does_not_fit_is_refused_with_both_numbers(prompt: int, most: int | None, fits: bool) -> None:
    params = Params(max_tokens=most)
    if fits:
        assert limit_tokens(prompt, params, 512) == (most or 1)
    else:
        with pytest.raises(ContextExceeded, match=f"{prompt} tokens.*{most or 1}.*512 tokens"):
            limit_tokens(prompt, params, 512)


def bad_params() -> dict[str, Params]:
    return {
        "temperature": Params(temperature=-0.1),
        "top_p": Params(top_p=1.5),
        "min_p": Params(min_p=float("nan")),
        "top_k": Params(top_k=-1),
        "max_tokens": Params(max_tokens=0),
        "seed": Params(seed=2**70),
        "stop": Params(stop=("a", "")),
        "logit_bias": Params(logit_bias={10**6: 1.0}),
        "presence_penalty": Params(presence_penalty=3.0),
    }


@pytest.mark.parametrize("name", bad_params())
def test_a_bad_request_is_refused_by_name_and_its_batch_goes_on(
    tiny: Path, given: list[list[int]], wanted: list[list[int]], name: str
) -> None:
    engine = make_engine(tiny)
    engine.add(1, given[0], greedy())
    tokens = [output.token for output in engine.step()]
    with pytest.raises(BadRequest) as refused:
        engine.add(2, given[1], bad_params()[name])
    assert refused.value.param == name
    while engine.busy:
        tokens += [output.token for output in engine.step()]
    assert tokens == wanted[0]


def test_ids_outside_the_vocabulary_and_empty_prompts_are_refused(tiny: Path) -> None:
    engine = make_engine(tiny)
    for prompt in ([], [10**6], [-1]):
        with pytest.raises(BadRequest):
            engine.add(1, prompt, greedy())
    assert not engine.busy


def test_memory_for_less_than_a_block_is_refused(tiny: Path) -> None:
    with pytest.raises(ConfigError, match=r"kv_bytes 1024 holds no block.* 8192 bytes"):
        make_engine(tiny, kv_bytes=1024)


def test_a_full_queue_refuses_with_a_time(tiny: Path, given: list[list[int]]) -> None:
    engine = make_engine(tiny, max_sequences=1, max_waiting=2)
    for key in range(3):
        engine.add(key, given[0], greedy())
    with pytest.raises(Unavailable) as refused:
        engine.add(3, given[0], greedy())
    assert refused.value.retry_after_s == 1.0


def test_abort_frees_at_once(tiny: Path, given: list[list[int]]) -> None:
    engine = make_engine(tiny, max_sequences=1)
    engine.add(1, given[3], greedy())
    engine.add(2, given[0], greedy())
    engine.step()
    assert engine.pool.used_bytes > 0
    engine.abort(1)
    assert engine.pool.used_bytes == 0
    engine.abort(2)  # it waits
    engine.abort(3)  # there is none
    assert not engine.busy
    assert (engine.stats.running, engine.stats.waiting) == (0, 0)


def test_random_arrivals_and_cancels_leave_nothing_behind(tiny: Path) -> None:
    engine = make_engine(tiny, kv_bytes=2 * 2 * 2 * 16 * 4 * 512, max_sequences=5, max_step_tokens=64)
    numbers = random.Random(2)
    all_prompts = prompts(250, [numbers.randrange(1, 120) for _ in range(30)])
    waiting = dict(enumerate(all_prompts))
    done: Callable[[], bool] = lambda: not waiting and not engine.busy  # noqa: E731
    open_: set[int] = set()
    while not done():
        if waiting and numbers.random() < 0.5:
            key, prompt = waiting.popitem()
            engine.add(key, prompt, Params(seed=key, max_tokens=numbers.randrange(1, 30)))
            open_.add(key)
        if open_ and numbers.random() < 0.2:
            engine.abort(numbers.choice(sorted(open_)))
        for output in engine.step():
            if output.reason is not None:
                open_.discard(output.id)
        engine.check()
    assert engine.pool.used_bytes == 0


def test_stats_count(tiny: Path, given: list[list[int]]) -> None:
    engine = make_engine(tiny, max_step_tokens=100, max_sequences=1)
    engine.add(1, given[3], greedy(2))
    engine.add(2, given[1], greedy(2))
    assert engine.stats.outstanding_prefill_tokens == 190
    engine.step()
    assert (engine.stats.running, engine.stats.waiting, engine.stats.outstanding_prefill_tokens) == (1, 1, 90)
    while engine.busy:
        engine.step()
    stats = engine.stats
    assert (stats.prompt_tokens, stats.output_tokens, stats.kv_bytes_used) == (190, 4, 0)
    assert [sum(times.counts) for times in (stats.first_token, stats.per_token, stats.step)] == [2, 2, stats.steps]
    assert stats.first_token.sum > stats.per_token.sum > 0.0, "the second waited for the first"
    assert stats.batch == 0
