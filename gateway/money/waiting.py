"""Requests that did not fit and wait for money, first come, first served. Plain functions on the loop; knows no SQL."""

from __future__ import annotations

import asyncio

from gateway.money.budgets import Budgets, Hold, Lane, Refusal, Window
from gateway.money.leases import lacks

UNANSWERED_S = 1.0  # a database that has not answered a waiter by then counts as away: 503, not 402
WAITERS = 10_000  # most that wait at once in one process
STEPS = 64  # most sums told of one window; those behind count together


class Waiter:
    __slots__ = ("asked", "at_us", "future", "lane", "recalled", "timer", "worst")

    def __init__(self, lane: Lane, worst: int, at_us: int, future: asyncio.Future[Hold | Refusal]) -> None:
        self.lane = lane
        self.worst = worst
        self.at_us = at_us
        self.future = future
        self.asked = False  # its need was in a payload: only then may that payload's answer refuse it
        self.recalled = False
        self.timer: asyncio.TimerHandle | None = None


class Waiters:
    """The line in front of the counter. recall_wait_s: how long others have to bring back idle money."""

    def __init__(self, budgets: Budgets, recall_wait_s: float, refusal_memory_s: float) -> None:
        self._budgets = budgets
        self._recall_wait_s = recall_wait_s
        self._refusal_memory_us = int(refusal_memory_s * 1_000_000)
        self._line: dict[Waiter, None] = {}  # in order of arrival

    def __len__(self) -> int:
        return len(self._line)

    def join(self, lane: Lane, worst: int, at_us: int) -> Waiter:
        loop = asyncio.get_running_loop()
        waiter = Waiter(lane, worst, at_us, loop.create_future())
        waiter.timer = loop.call_later(UNANSWERED_S, self._expire, waiter, False)
        self._line[waiter] = None
        for window in lane.windows:
            window.waiting += 1
        return waiter

    def give_up(self, waiter: Waiter) -> None:
        """Out of the line without money; harmless when it has left. What was kept for it is for others now."""
        if waiter not in self._line:
            return
        self._leave(waiter)
        for window in waiter.lane.windows:
            if window.waiting or window.free > 0:
                self._budgets.touched(window)

    def _leave(self, waiter: Waiter) -> None:
        del self._line[waiter]
        if waiter.timer is not None:
            waiter.timer.cancel()
        for window in waiter.lane.windows:
            window.waiting -= 1

    def needs(self) -> dict[Window, list[int]]:
        """What they lack, by window: running sums in the order of the line. They count as asked from now on."""
        needs: dict[Window, list[int]] = {}
        for waiter in self._line:
            waiter.asked = all(window.id for window in waiter.lane.windows)
            for window in waiter.lane.windows:
                sums = needs.setdefault(window, [])
                total = (sums[-1] if sums else 0) + waiter.worst
                if len(sums) < STEPS:
                    sums.append(total)
                else:
                    sums[-1] = total
        return needs

    def serve(self, now_us: int, *, answered: bool) -> None:
        """Give what is free, in order. answered: an answer of SQL has just come, so those who were asked for may be refused."""
        claimed: dict[Window, int] = {}
        for waiter in list(self._line):
            windows = waiter.lane.windows
            if all(window.free - claimed.get(window, 0) >= waiter.worst for window in windows):
                self._grant(waiter)
            elif answered and waiter.asked and any(lacks(window, waiter.worst) for window in windows):
                self.refuse(waiter, now_us)
            else:
                for window in windows:  # money that is here already stays for whoever came first
                    claimed[window] = claimed.get(window, 0) + waiter.worst
                if answered and waiter.asked:
                    self._recalled(waiter)

    def _grant(self, waiter: Waiter) -> None:
        self._leave(waiter)
        if waiter.future.done():
            return
        for window in waiter.lane.windows:
            window.reserved += waiter.worst
            window.used_us = waiter.at_us
            window.biggest = max(window.biggest, waiter.worst)
        waiter.future.set_result(Hold(waiter.lane, waiter.worst))

    def refuse(self, waiter: Waiter, now_us: int) -> None:
        """Over budget, and remembered for a moment, so that a crowd does not ask SQL one by one."""
        self.give_up(waiter)
        for window in waiter.lane.windows:
            if lacks(window, waiter.worst):
                fresh = window.refused_need is not None and now_us < window.refused_until_us
                window.refused_need = min(waiter.worst, window.refused_need or waiter.worst) if fresh else waiter.worst
                window.refused_until_us = now_us + self._refusal_memory_us
        if not waiter.future.done():
            waiter.future.set_result(self._budgets.refusal(waiter.lane.windows, waiter.worst, available=True))

    def _recalled(self, waiter: Waiter) -> None:
        """Others were asked for their idle money: from the first answer on it has recall_wait_s to come."""
        if waiter.recalled:
            return
        waiter.recalled = True
        if waiter.timer is not None:
            waiter.timer.cancel()
        waiter.timer = asyncio.get_running_loop().call_later(self._recall_wait_s, self._expire, waiter, True)

    def _expire(self, waiter: Waiter, answered: bool) -> None:
        self.give_up(waiter)
        if not waiter.future.done():
            waiter.future.set_result(self._budgets.refusal(waiter.lane.windows, waiter.worst, available=answered))

    def fail_all(self) -> None:
        """SQL does not answer: nobody can be served or honestly refused."""
        for waiter in list(self._line):
            self._expire(waiter, False)
