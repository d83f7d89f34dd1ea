"""What one transaction does to a window, and how much a process wants to keep."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gateway.money.budgets import BudgetRow, Window
from gateway.money.leases import Books, Line, ask, lacks, learn, plan, slice_of

PLUS = st.integers(0, 10**12)
NOW = 1_700_000_000_000_000
IDLE = 5_000_000


def window(amount: int = 0, room: int | None = None, **more: object) -> Window:
    made = Window(BudgetRow(id=1, scope_kind="team", scope_id=1, period="total", limit_nanousd=10_000), 0, None)
    made.id, made.amount, made.room, made.used_us = 1, amount, room, NOW
    for name, value in more.items():
        setattr(made, name, value)
    return made


@given(books=st.builds(Books, PLUS, PLUS, PLUS, PLUS, PLUS, PLUS), want=PLUS, ret=PLUS)
def test_a_grant_never_leads_past_the_cap(books: Books, want: int, ret: int) -> None:
    grant = plan(books, want, ret, 0)
    after = books.spent + books.leased + grant.delta  # charging moves money from leased to spent
    assert after <= max(books.cap, books.spent + books.leased - ret)
    assert grant.amount == books.own - books.charged + grant.delta
    assert grant.room == books.cap - after


def test_what_is_spent_already_is_taken_past_the_cap() -> None:
    grant = plan(Books(100, 80, 20, 20, 0, 50), 0, 0, 30)
    assert (grant.delta, grant.amount, grant.room) == (30, 0, -30)


def test_a_process_starves_only_if_others_have_idle_money() -> None:
    assert plan(Books(100, 0, 90, 0, 50, 0), 30, 0, 0).starving
    assert not plan(Books(100, 0, 90, 0, 0, 0), 30, 0, 0).starving
    assert not plan(Books(100, 0, 50, 0, 50, 0), 30, 0, 0).starving


def test_a_slice_is_a_share_of_the_room_and_nothing_near_the_cap() -> None:
    assert slice_of(window(room=None, biggest=10), 1, NOW) == 0
    assert slice_of(window(room=10_000, biggest=10), 1, NOW) == 80
    assert slice_of(window(room=160, biggest=10), 1, NOW) == 40
    assert slice_of(window(room=160, biggest=10), 2, NOW) == 20
    assert slice_of(window(room=150, biggest=10), 2, NOW) == 0
    assert slice_of(window(room=10_000, biggest=10, wanted=True), 1, NOW) == 0
    assert slice_of(window(room=-5, biggest=0), 1, NOW) == 0
    assert slice_of(window(room=10_000, biggest=10, rate_30s=1000), 1, NOW) == 1000


def test_far_from_the_cap_a_process_extends_keeps_and_gives_back() -> None:
    assert ask(window(amount=39, room=10_000, biggest=10), 1, NOW, (), IDLE).want == 41
    quiet = ask(window(amount=100, room=10_000, biggest=10), 1, NOW, (), IDLE)
    assert (quiet.want, quiet.ret) == (0, 0)
    rich = window(amount=300, room=10_000, biggest=10)
    assert ask(rich, 1, NOW, (), IDLE).ret == 220
    assert rich.amount == 80, "money on its way back is no longer ours"


def test_near_the_cap_it_wants_what_its_waiters_need_and_keeps_nothing() -> None:
    near = window(amount=5, room=100, biggest=90)
    asked = ask(near, 1, NOW, (20, 30), IDLE)
    assert (asked.want, asked.ret, asked.steps) == (30, 5, (20, 30))
    assert near.free == 0
    assert ask(window(amount=50, room=100, biggest=90), 1, NOW, (), IDLE).ret == 50


@given(books=st.builds(Books, PLUS, PLUS, PLUS, PLUS, PLUS, PLUS), needs=st.lists(st.integers(1, 10**12), min_size=1), ret=PLUS)
def test_a_short_grant_ends_with_a_waiter_it_serves(books: Books, needs: list[int], ret: int) -> None:
    steps = tuple(itertools.accumulate(needs))
    grant = plan(books, steps[-1], ret, 0, steps)
    granted = grant.delta + ret
    room = grant.room + granted
    assert granted == max((step for step in steps if step <= room), default=0)


@given(held=st.lists(st.integers(0, 1000), min_size=2, max_size=5), room=st.integers(0, 1000))
def test_of_those_who_ask_in_turn_nobody_is_refused_what_all_hold_together(held: list[int], room: int) -> None:
    """Each holds a part that no other sees, as after requests that cost less than their worst. Somebody must get what is there in all."""
    need = room + sum(held)
    cap, served = need, 0
    windows = [window(amount=amount, room=room, biggest=need) for amount in held]
    for one in windows:
        leased = sum(each.amount for each in windows)
        own = one.amount
        asked = ask(one, len(windows), NOW, (need,), IDLE)
        grant = plan(Books(cap, 0, leased, own, 0, 0), asked.want, asked.ret, asked.force, asked.steps)
        one.amount, one.room = grant.amount, grant.room
        served += need > 0 and not lacks(one, need)
    assert served == (need > 0)


def test_idle_ended_and_deleted_windows_give_everything_back() -> None:
    assert ask(window(amount=80, room=10_000, biggest=10), 1, NOW + IDLE + 1, (), IDLE).ret == 80
    assert ask(window(amount=80, room=10_000, biggest=10, ends_us=NOW), 1, NOW, (), IDLE).ret == 80
    assert ask(window(amount=80, room=10_000, biggest=10, gone=True), 1, NOW, (), IDLE).ret == 80
    coming = window(amount=80, room=10_000, biggest=10, used_us=0, starts_us=NOW + 60_000_000)
    assert ask(coming, 1, NOW, (), IDLE).ret == 0, "the next period is leased before it begins"


def test_a_refusal_counts_what_others_may_bring_back() -> None:
    short = window(amount=10, room=20, idle_of_others=30)
    assert not lacks(short, 60)
    assert lacks(short, 61)


def test_an_answer_is_taken_over_whole() -> None:
    line = Line(window_id=1, amount=7, room=5, spent=3, leased=9, cap=17, idle_of_others=2, wanted=True, deleted=True)
    learnt = window(amount=1)
    learn(learnt, line)
    assert (learnt.amount, learnt.room, learnt.spent, learnt.leased, learnt.cap) == (7, 5, 3, 9, 17)
    assert (learnt.idle_of_others, learnt.wanted, learnt.gone) == (2, True, True)
