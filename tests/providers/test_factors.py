"""What is learnt of a vendor's tokenizer: a bound that only grows, a mean that is used once enough is known, and hardly any work."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers import factors as module
from providers import tokens
from providers.dialects import DIALECTS
from providers.factors import FAMILIES_MOST, MAX, SAMPLES_FIRST, SAMPLES_LEAST, Factors, family
from providers.types import Request
from tests.fixtures.waiting import until


def asked(text: str) -> Request:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    return DIALECTS["openai_chat"].decode_request(json.dumps(body).encode())


PROMPT = asked("The quick brown fox jumps over the lazy dog. " * 60)


def test_families() -> None:
    names = ("gpt-4o", "openai/gpt-5.1", "o3-mini", "Llama-3.1-8B", "qwen2.5:7b", "7")
    assert [family(name) for name in names] == ["gpt", "gpt", "o", "llama", "qwen", "7"]


def test_bounds_start_where_nothing_is_known_and_only_grow() -> None:
    factors = Factors()
    assert (factors.upper("gpt-4o"), factors.upper("llama-3")) == (1.0, 1.5)
    assert not factors.learn("llama-3", 100, 140)
    assert factors.learn("llama-3", 100, 180)
    assert factors.upper("meta/llama-3.3-70b") == factors.learnt("llama-3") == 1.8
    assert not factors.learn("llama-3", 100, 110)
    assert factors.upper("llama-3") == 1.8
    assert not factors.learn("llama-3", 3, 100)  # a template's own text
    factors.learn("llama-3", 100, 100_000)
    assert factors.upper("llama-3") == MAX


def test_the_mean_is_used_once_enough_is_known() -> None:
    factors = Factors()
    for n in range(SAMPLES_LEAST):
        assert factors.expected("llama-3") == 1.0, n
        factors.observe("llama-3", 1000, 1200)
    assert factors.expected("meta/llama-3.3-70b") == pytest.approx(1.2)
    assert factors.means() == {"llama": pytest.approx(1.2)}
    assert factors.learnt("llama-3") == 0.0, "within the bound there is nothing to raise"


def test_what_proves_nothing_is_passed_over() -> None:
    factors = Factors()
    for counted, stated in ((100, 200), (1000, 100), (1000, 100_000), (1000, 0)):
        for _ in range(SAMPLES_LEAST):
            factors.observe("llama-3", counted, stated)
    assert factors.means() == {} and factors.upper("llama-3") == 1.5


def test_where_our_tokenizer_is_theirs_estimates_stay_as_they_are() -> None:
    factors = Factors()
    for _ in range(SAMPLES_LEAST):
        factors.observe("gpt-4o", 1000, 1100)
    assert factors.expected("gpt-4o") == 1.0
    assert factors.upper("gpt-4o") == 1.1


@given(st.lists(st.tuples(st.integers(256, 10**6), st.floats(0.5, 3.5)), min_size=1, max_size=60))
def test_the_bound_holds_for_all_that_was_seen_and_the_mean_lies_between(seen: list[tuple[int, float]]) -> None:
    factors = Factors()
    ratios = []
    for counted, ratio in seen:
        stated = round(counted * ratio)
        ratios.append(stated / counted)
        factors.observe("m-x", counted, stated)
    assert all(ratio <= factors.upper("m-x") * (1 + 1e-9) for ratio in ratios)
    if len(seen) >= SAMPLES_LEAST:
        assert min(ratios) - 1e-9 <= factors.expected("m-x") <= max(ratios) + 1e-9


async def test_an_answer_teaches_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = Factors()
    counted = await tokens.count_input(PROMPT, 1.0)
    factors.offer(PROMPT, "llama-3", 2 * counted)
    await until(lambda: factors.learnt("llama-3") == pytest.approx(2.0), "it was learnt")


async def test_later_only_some_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[str] = []
    monkeypatch.setattr(module.tokens, "count_later", lambda request, model, then: asked_for.append(model) or True)
    factors = Factors()
    for _ in range(SAMPLES_FIRST + 128):
        factors.offer(PROMPT, "llama-3", 500)
    assert len(asked_for) == SAMPLES_FIRST + 2
    factors.offer(asked("short"), "llama-3", 500)
    factors.offer(asked("x" * 20_000), "llama-3", 500)
    assert len(asked_for) == SAMPLES_FIRST + 2


def test_families_are_bounded() -> None:
    factors = Factors()
    names = ["m" + chr(97 + n // 26) + chr(97 + n % 26) for n in range(FAMILIES_MOST + 50)]
    assert sum(factors.learn(name, 100, 200) for name in names) <= FAMILIES_MOST
    for name in names:
        for _ in range(SAMPLES_LEAST):
            factors.observe(name, 1000, 1200)
    assert len(factors.means()) <= FAMILIES_MOST
