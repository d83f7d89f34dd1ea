"""The rule of the rate limits, in memory and in Redis, and how both come together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.money.budgets import Scope
from gateway.money.limits import NONE, Ask, LimitRow, Limits, Memory, Refused, Rule, Settle, Ticket, divided, rules_of
from gateway.money.limits_redis import SCRIPT, _verdict

SECOND = 1_000_000
START = 1_800_000_000 * SECOND


def ask(name: str, tokens: int = 0, *rules: Rule, slot_s: int = 120, least: int | None = None) -> Ask:
    return Ask(id=name, tokens=tokens, least=tokens if least is None else least, slot_s=slot_s, rules=rules)


def rule(number: int = 1, rpm: int = NONE, tpm: int = NONE, parallel: int = NONE) -> Rule:
    return Rule(number, rpm, tpm, parallel)


# ---- the rule
def test_never_more_than_the_limit_in_any_sixty_seconds() -> None:
    memory, admitted = Memory(), []
    for tenth in range(3000):  # ten times a second for five minutes
        now = START + tenth * SECOND // 10
        if not memory.admit(ask(str(tenth), 0, rule(rpm=60)), now).kind:
            admitted.append(now)
    assert 240 <= len(admitted) <= 300
    for first in admitted:
        assert sum(first <= at < first + 60 * SECOND for at in admitted) <= 60


def test_the_wait_that_is_told_is_enough_and_at_most_a_minute() -> None:
    memory = Memory()
    for number in range(3):
        memory.admit(ask(str(number), 40, rule(tpm=100)), START + number * 15 * SECOND)
    refused = memory.admit(ask("late", 40, rule(tpm=100)), START + 40 * SECOND)
    assert refused.kind == "tokens" and 0 < refused.retry_after_ms <= 60_000
    there = START + 40 * SECOND + refused.retry_after_ms * 1000
    assert memory.admit(ask("early", 40, rule(tpm=100)), there - 1000).kind == "tokens"
    assert memory.admit(ask("then", 40, rule(tpm=100)), there).kind == ""


def test_settling_puts_the_tokens_right_in_their_own_bucket_once() -> None:
    memory, one = Memory(), rule(tpm=100)
    first = memory.admit(ask("a", 90, one), START)
    assert memory.admit(ask("b", 20, one), START).kind == "tokens"
    end = Settle(id="a", delta=-80, bucket=first.bucket, rules=(one,))
    memory.settle(end, START + SECOND)
    memory.settle(end, START + SECOND)
    assert memory.admit(ask("b", 90, one), START + 2 * SECOND).tokens_left == 0
    assert memory.admit(ask("c", 10, one), START + 70 * SECOND).tokens_left == 90, "all of it has left the window"


def test_all_scopes_or_none() -> None:
    memory, wide, narrow = Memory(), rule(1, rpm=10, parallel=10), rule(2, rpm=1)
    assert memory.admit(ask("a", 0, wide, narrow), START).requests_left == 0
    refused = memory.admit(ask("b", 0, wide, narrow), START)
    assert (refused.kind, refused.rule) == ("requests", 2)
    assert memory.admit(ask("c", 0, wide), START).requests_left == 8, "the refused one took nothing"


def test_a_slot_is_free_when_its_request_ends_or_expires() -> None:
    memory, two = Memory(), rule(parallel=2)
    verdicts = [memory.admit(ask(name, 0, two, slot_s=100), START) for name in "abc"]
    assert [v.kind for v in verdicts] == ["", "", "parallel"] and verdicts[2].retry_after_ms == 1000
    memory.settle(Settle(id="a", delta=0, bucket=verdicts[0].bucket, rules=(two,)), START)
    assert memory.admit(ask("c", 0, two, slot_s=200), START).kind == ""
    assert memory.admit(ask("d", 0, two), START + 100 * SECOND).kind == "", "b's slot expired"
    assert memory.admit(ask("e", 0, two), START + 100 * SECOND).kind == "parallel"


def test_what_can_never_fit_says_so() -> None:
    memory = Memory()
    assert memory.admit(ask("a", 101, rule(1, rpm=1), rule(2, tpm=100)), START).retry_after_ms == NONE
    assert memory.admit(ask("b", 0, rule(3, rpm=0)), START).retry_after_ms == NONE


def test_a_part_of_a_limit_is_never_nothing_and_never_more() -> None:
    assert divided(rule(1, 10, 101, 1), 4) == rule(1, 2, 25, 1)
    assert divided(rule(1, 0, NONE, 3), 2) == rule(1, 0, NONE, 1)
    assert divided(rule(1, 7, 7, 7), 0) == rule(1, 7, 7, 7)


# ---- the same rule as a script
RULES = st.builds(rule, st.integers(1, 3), st.integers(-1, 5), st.integers(-1, 100), st.integers(-1, 3))
STEPS = st.lists(
    st.tuples(
        st.integers(0, 25),  # seconds since the step before
        st.lists(RULES, min_size=1, max_size=3, unique_by=lambda one: one.id),
        st.integers(0, 60),
        st.integers(61, 90),
        st.one_of(st.none(), st.tuples(st.integers(0, 20), st.integers(0, 80))),  # which to settle, at how many tokens
    ),
    max_size=25,
)


@pytest.fixture
def server(valkey_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey_url) as client:
        yield client


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_memory_and_script_are_the_same_rule(server: redis.Redis, steps: list[Any]) -> None:
    server.flushdb()
    memory, now, admitted = Memory(), START, []

    def script(*ops: list[Any]) -> list[Any]:
        reply = server.eval(SCRIPT, 3, "{x}1", "{x}2", "{x}3", str(now), msgspec.msgpack.encode(ops))
        return msgspec.msgpack.decode(reply)  # type: ignore[no-any-return]

    for number, (seconds, rules, tokens, slot_s, end) in enumerate(steps):
        now += seconds * SECOND
        one = ask(str(number), tokens, *rules, slot_s=slot_s)
        mine = memory.admit(one, now)
        places = [[r.id, r.rpm, r.tpm, r.parallel] for r in rules]
        assert _verdict([1, 2, 3], script(["a", one.id, tokens, slot_s, places])[0]) == mine
        if not mine.kind:
            admitted.append((one, mine))
        if end is not None and admitted:
            known, verdict = admitted[end[0] % len(admitted)]
            settle = Settle(id=known.id, delta=end[1] - known.tokens, bucket=verdict.bucket, rules=known.rules)
            memory.settle(settle, now)
            script(["s", settle.id, settle.delta, settle.bucket, [[r.id] for r in settle.rules]])


# ---- both together
SCOPE = Scope(1, 2, 3, "assistant")


def limits(*rows: LimitRow, processes: int = 1) -> Limits:
    made = Limits(None, lambda: processes, lambda: START)
    made.set_limits(rows)
    return made


def test_rows_apply_by_scope_and_route() -> None:
    rows = [
        LimitRow(id=1, scope_kind="key", scope_id=3, rpm=1),
        LimitRow(id=2, scope_kind="team", scope_id=2, model="assistant", rpm=1),
        LimitRow(id=3, scope_kind="team", scope_id=2, model="other", rpm=1),
        LimitRow(id=4, scope_kind="team", scope_id=3, rpm=1),
        LimitRow(id=5, scope_kind="organisation", scope_id=1, rpm=1),
    ]
    made = limits(*rows)
    assert made.active and [row.id for row in made.rows(SCOPE)] == [1, 2, 5]
    made.set_limits([])
    assert not made.active and made.rows(SCOPE) == []


async def test_without_redis_each_process_holds_its_part() -> None:
    made = limits(LimitRow(id=1, scope_kind="team", scope_id=2, tpm=100), processes=2)
    rules = rules_of(made.rows(SCOPE))
    first = await made.admit(ask("a", 50, *rules))
    second = await made.admit(ask("b", 50, *rules))
    assert isinstance(first, Ticket) and isinstance(second, Refused)
    assert second.verdict.kind == "tokens" and second.rule.tpm == 50
    made.settle(first, 10)
    made.settle(first, 50)
    assert isinstance(await made.admit(ask("b", 40, *rules)), Ticket)


async def test_a_request_without_a_maximum_reserves_no_more_than_the_limit() -> None:
    made = limits(LimitRow(id=1, scope_kind="team", scope_id=2, tpm=100))
    rules = rules_of(made.rows(SCOPE))
    got = await made.admit(ask("a", 16_000, *rules, least=11))
    assert isinstance(got, Ticket) and got.ask.tokens == 100
    too_long = await made.admit(ask("b", 16_000, *rules, least=101))
    assert isinstance(too_long, Refused) and too_long.verdict.retry_after_ms == NONE


async def test_a_limit_that_is_lifted_leaves_nothing_behind() -> None:
    row = LimitRow(id=1, scope_kind="team", scope_id=2, rpm=1)
    made = limits(row)
    assert isinstance(await made.admit(ask("a", 0, *rules_of([row]))), Ticket)
    made.set_limits([])
    made.set_limits([row])
    assert isinstance(await made.admit(ask("b", 0, *rules_of([row]))), Ticket)
