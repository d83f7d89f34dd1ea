"""The line of those who wait for money: first come first served, refused only by an answer that was about them."""

from __future__ import annotations

import asyncio

from gateway.money.budgets import BudgetRow, Budgets, Hold, Lane, Refusal, Scope, Window
from gateway.money.waiting import STEPS, Waiters

SCOPE = Scope(1, 1, 1, "r")


def counter(recall_wait_s: float = 5.0) -> tuple[Waiters, Lane]:
    budgets = Budgets(lambda window: None)
    budgets.set_rows([BudgetRow(id=1, scope_kind="team", scope_id=1, period="total", limit_nanousd=100)])
    lane = budgets.lane(SCOPE, 1)
    budgets.found(lane.windows[0], 1)
    lane.windows[0].room = 0
    return Waiters(budgets, recall_wait_s, 0.1), lane


async def test_money_goes_to_whoever_came_first() -> None:
    waiters, lane = counter()
    window = lane.windows[0]
    large, small = waiters.join(lane, 60, 1), waiters.join(lane, 10, 1)
    assert waiters.needs() == {window: [60, 70]}
    window.amount, window.idle_of_others = 20, 100
    waiters.serve(1, answered=True)
    assert not large.future.done()
    assert not small.future.done(), "twenty are kept for the first in line"
    window.amount = 75
    waiters.serve(1, answered=True)
    assert isinstance(large.future.result(), Hold)
    assert isinstance(small.future.result(), Hold)
    assert (window.reserved, window.waiting, len(waiters)) == (70, 0, 0)


async def test_an_answer_refuses_only_those_it_was_asked_for() -> None:
    waiters, lane = counter()
    early = waiters.join(lane, 60, 1)
    waiters.needs()
    late = waiters.join(lane, 60, 1)
    waiters.serve(1, answered=True)
    refusal = early.future.result()
    assert isinstance(refusal, Refusal)
    assert refusal.kind == "budget"
    assert not late.future.done()
    assert lane.windows[0].refused_need == 60
    waiters.fail_all()


async def test_idle_money_of_others_has_its_time_to_come() -> None:
    waiters, lane = counter(recall_wait_s=0.05)
    lane.windows[0].idle_of_others = 100
    waiter = waiters.join(lane, 60, 1)
    waiters.needs()
    waiters.serve(1, answered=True)
    assert not waiter.future.done()
    refusal = await asyncio.wait_for(waiter.future, 20)
    assert isinstance(refusal, Refusal)
    assert refusal.kind == "budget"
    assert lane.windows[0].waiting == 0


async def test_without_an_answer_it_is_the_database_not_the_budget() -> None:
    waiters, lane = counter()
    waiter = waiters.join(lane, 60, 1)
    waiters.serve(1, answered=False)
    assert not waiter.future.done()
    refusal = await asyncio.wait_for(waiter.future, 30)
    assert isinstance(refusal, Refusal)
    assert refusal.kind == "unavailable"
    again = waiters.join(lane, 60, 1)
    waiters.fail_all()
    failed = again.future.result()
    assert isinstance(failed, Refusal)
    assert failed.kind == "unavailable"


async def test_leaving_twice_is_harmless() -> None:
    waiters, lane = counter()
    waiter = waiters.join(lane, 60, 1)
    waiters.give_up(waiter)
    waiters.give_up(waiter)
    assert (len(waiters), lane.windows[0].waiting) == (0, 0)
    assert waiters.needs() == {}


async def test_what_was_kept_for_one_who_gives_up_is_told_at_once() -> None:
    told: list[Window] = []
    budgets = Budgets(told.append)
    budgets.set_rows([BudgetRow(id=1, scope_kind="team", scope_id=1, period="total", limit_nanousd=100)])
    lane = budgets.lane(SCOPE, 1)
    window = lane.windows[0]
    waiters = Waiters(budgets, 5.0, 0.1)
    waiter = waiters.join(lane, 60, 1)
    window.amount = 20
    waiters.give_up(waiter)
    assert told == [window]


async def test_a_long_line_is_told_in_few_sums() -> None:
    waiters, lane = counter()
    line = [waiters.join(lane, 1, 1) for _ in range(STEPS + 10)]
    sums = waiters.needs()[lane.windows[0]]
    assert sums == [*range(1, STEPS), STEPS + 10]
    assert all(waiter.asked for waiter in line)
    waiters.fail_all()
