"""Budgets in memory: which windows apply, all or nothing, once each; and, by random play, that leases never oversell a cap."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.errors import NotReady, OverBudget
from gateway.money.budgets import BudgetRow, Budgets, Hold, Refusal, Scope, Window
from gateway.money.leases import Ask, Books, Line, ask, learn, plan
from gateway.money.windows import to_us

SCOPE = Scope(1, 2, 3, "assistant")
NOW = to_us(datetime(2026, 11, 15, 12, tzinfo=UTC))


def row(number: int, kind: str, scope_id: int, **more: object) -> BudgetRow:
    values = {"period": "month", "limit_nanousd": 1000} | more
    return BudgetRow(id=number, scope_kind=kind, scope_id=scope_id, **values)  # type: ignore[arg-type]


def stocked(*rows: BudgetRow, amount: int = 100) -> Budgets:
    budgets = Budgets(lambda window: None)
    budgets.set_rows(rows)
    for number, window in enumerate(budgets.lane(SCOPE, NOW).windows, 1):
        budgets.found(window, number)
        window.amount = amount
    return budgets


def test_the_budgets_of_organisation_team_key_and_route_apply_together() -> None:
    rows = [
        row(1, "organisation", 1),
        row(2, "team", 2),
        row(3, "team", 2, model="assistant"),
        row(4, "key", 3, period="day"),
        row(5, "team", 2, model="other"),
        row(6, "team", 9),
        row(7, "key", 2),
    ]
    budgets = Budgets(lambda window: None)
    budgets.set_rows(rows)
    assert [window.budget.id for window in budgets.lane(SCOPE, NOW).windows] == [1, 2, 3, 4]
    assert budgets.budgeted(SCOPE)
    assert not budgets.budgeted(Scope(7, 7, 7, "assistant"))


def test_all_windows_or_none() -> None:
    budgets = stocked(row(1, "organisation", 1), row(2, "team", 2))
    poor = budgets.lane(SCOPE, NOW).windows[1]
    poor.amount = 40
    assert budgets.take(budgets.lane(SCOPE, NOW), 50, NOW) is None
    assert [window.reserved for window in budgets.lane(SCOPE, NOW).windows] == [0, 0]
    hold = budgets.take(budgets.lane(SCOPE, NOW), 40, NOW)
    assert hold is not None
    assert hold.charges == (1, 2)
    assert poor.free == 0


def test_a_hold_grows_shrinks_and_settles_once() -> None:
    budgets = stocked(row(1, "team", 2))
    window = budgets.lane(SCOPE, NOW).windows[0]
    hold = budgets.take(budgets.lane(SCOPE, NOW), 60, NOW)
    assert hold is not None
    assert not hold.grow(41)
    assert hold.grow(40)
    assert window.free == 0
    hold.shrink(70)
    budgets.settle(hold, 25)
    budgets.settle(hold, 25)
    budgets.release(hold)
    assert not hold.grow(1)
    assert (window.reserved, window.unsynced, window.free) == (0, 25, 75)


def test_an_overrun_is_counted_at_once_and_stops_admission() -> None:
    budgets = stocked(row(1, "team", 2))
    lane = budgets.lane(SCOPE, NOW)
    hold = budgets.take(lane, 50, NOW)
    assert hold is not None
    budgets.settle(hold, 130)
    assert lane.windows[0].free == -30
    assert budgets.take(lane, 1, NOW) is None
    assert ask(lane.windows[0], 1, NOW, (), 5_000_000).force == 30


def test_those_who_wait_come_first() -> None:
    budgets = stocked(row(1, "team", 2))
    lane = budgets.lane(SCOPE, NOW)
    lane.windows[0].waiting = 1
    assert budgets.take(lane, 1, NOW) is None


def test_the_window_is_that_of_the_admission_instant() -> None:
    budgets = Budgets(lambda window: None)
    budgets.set_rows([row(1, "key", 3, period="day", timezone="Asia/Shanghai")])
    boundary = to_us(datetime(2026, 8, 19, 16, tzinfo=UTC))
    before, after = budgets.lane(SCOPE, boundary - 1).windows[0], budgets.lane(SCOPE, boundary).windows[0]
    assert before is not after
    assert before.ends_us == after.starts_us == boundary
    assert budgets.lane(SCOPE, boundary - 1).windows[0] is before


def test_a_deleted_budget_no_longer_applies_but_its_hold_still_settles() -> None:
    budgets = stocked(row(1, "team", 2))
    window = budgets.lane(SCOPE, NOW).windows[0]
    hold = budgets.take(budgets.lane(SCOPE, NOW), 60, NOW)
    assert hold is not None
    budgets.set_rows([])
    assert budgets.lane(SCOPE, NOW).windows == ()
    budgets.settle(hold, 50)
    assert (window.gone, window.unsynced) == (True, 50)
    assert ask(window, 1, NOW, (), 5_000_000).ret == 50


def test_a_budget_is_told_by_the_name_of_its_scope() -> None:
    row = BudgetRow(id=7, scope_kind="team", scope_id=3, scope="alpha", period="day", limit_nanousd=10**9, model="assistant")
    assert row.describe(10**9) == "budget 7 of team 'alpha' for assistant, 1.000000000 USD per day (UTC)"


def test_a_refusal_says_all_that_can_be_known() -> None:
    refusal = Refusal(
        kind="budget",
        budget="budget 7 of key 3",
        left_nanousd=5,
        held_nanousd=2,
        worst_nanousd=9,
        resets_at_us=to_us(datetime(2026, 12, 1, tzinfo=UTC)),
    )
    error = refusal.error(402)
    assert isinstance(error, OverBudget)
    assert (error.status, error.code, error.retry) == (402, "insufficient_quota", False)
    for part in ("budget 7 of key 3", "0.000000005", "0.000000002", "0.000000009", "2026-12-01T00:00:00Z"):
        assert part in error.message
    assert refusal.error(429).status == 429
    away = Refusal(kind="unavailable", budget="b", left_nanousd=0, held_nanousd=0, worst_nanousd=9, retry_after_s=2.0).error(402)
    assert isinstance(away, NotReady)
    assert (away.status, away.retry_after_s) == (503, 2.0)


def test_an_override_ends_by_itself() -> None:
    raised = row(1, "team", 2, override_nanousd=5000, override_until_us=NOW)
    assert raised.cap(NOW - 1) == 5000
    assert raised.cap(NOW) == 1000


@pytest.mark.parametrize("worst", [0, 5])
def test_a_scope_without_budgets_has_no_windows(worst: int) -> None:
    budgets = Budgets(lambda window: None)
    hold = budgets.take(budgets.lane(SCOPE, NOW), worst, NOW)
    assert hold is not None
    assert hold.charges == ()


class Leases(RuleBasedStateMachine):
    """Two processes and one window: reserve, settle (up to its worst), sync, lose an answer and ask again, change the limit.

    The shelf stands for SQL: it applies a payload once, with the very function that the transaction uses.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cap = self.high = 1000
        self.spent = self.leased = 0
        self.own = [0, 0]
        self.idle = [0, 0]
        self.processes = [Window(row(1, "team", 2), 0, None), Window(row(1, "team", 2), 0, None)]
        self.holds: list[tuple[int, Hold]] = []
        self.rows: list[list[int]] = [[], []]  # settled, not in a payload yet
        self.sent: list[tuple[Ask, int] | None] = [None, None]  # in flight: the ask and the cost of its rows
        self.now = NOW
        self.budgets = [stocked(row(1, "team", 2), amount=0) for _ in range(2)]
        self.processes = [budgets.lane(SCOPE, NOW).windows[0] for budgets in self.budgets]

    @rule(who=st.integers(0, 1), worst=st.integers(1, 300))
    def reserve(self, who: int, worst: int) -> None:
        hold = self.budgets[who].take(self.budgets[who].lane(SCOPE, NOW), worst, self.now)
        if hold is not None:
            self.holds.append((who, hold))

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        who, hold = self.holds.pop(data.draw(st.integers(0, len(self.holds) - 1)))
        cost = data.draw(st.integers(0, hold.worst))
        self.budgets[who].settle(hold, cost)
        self.rows[who].append(cost)

    @rule(who=st.integers(0, 1), needs=st.lists(st.integers(1, 200), max_size=3), later=st.integers(0, 10_000_000))
    def send(self, who: int, needs: list[int], later: int) -> None:
        if self.sent[who] is None:
            self.now += later
            self.processes[who].tick(self.now)
            self.sent[who] = (ask(self.processes[who], 2, self.now, tuple(itertools.accumulate(needs)), 5_000_000), sum(self.rows[who]))
            self.rows[who] = []

    @rule(who=st.integers(0, 1), answered=st.booleans())
    def apply(self, who: int, answered: bool) -> None:
        sent = self.sent[who]
        if sent is None:
            return
        if not answered:  # aborted: the same payload goes again later
            return
        one, charged = sent
        books = Books(self.cap, self.spent, self.leased, self.own[who], self.idle[1 - who], charged)
        grant = plan(books, one.want, one.ret, one.force, one.steps)
        self.spent += charged
        self.leased += grant.delta - charged
        self.own[who] = grant.amount
        window = self.processes[who]
        window.unsynced -= charged
        learn(
            window,
            Line(
                window_id=1,
                amount=grant.amount,
                room=grant.room,
                spent=self.spent,
                leased=self.leased,
                cap=self.cap,
                idle_of_others=self.idle[1 - who],
                wanted=False,
                deleted=False,
            ),
        )
        self.idle[who] = 0 if one.near else max(0, window.free)
        self.sent[who] = None

    @rule(cap=st.integers(0, 2000))
    def change_limit(self, cap: int) -> None:
        self.cap = cap
        self.high = max(cap, self.spent + self.leased)

    @invariant()
    def never_oversold(self) -> None:
        exposure = self.spent + sum(window.unsynced + window.reserved for window in self.processes)
        assert exposure <= self.high
        assert self.spent + self.leased <= self.high

    @invariant()
    def books_agree(self) -> None:
        assert self.leased == sum(self.own)
        for who, window in enumerate(self.processes):
            assert window.amount <= self.own[who]
            assert window.free >= 0


Leases.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestLeases = Leases.TestCase
