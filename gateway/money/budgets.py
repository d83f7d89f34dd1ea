"""Budgets in memory: which windows a request draws on, and what this process may still promise of each. No await, no SQL, no file.

Three numbers per window: `amount` (own lease as SQL last answered), `unsynced` (settled here, not yet confirmed in SQL), `reserved`
(held by running requests). free = amount - unsynced - reserved. Everything is integer nano-USD; instants are microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from gateway.errors import GatewayError, NotReady, OverBudget
from gateway.money.pricing import usd
from gateway.money.windows import bounds, to_datetime

LANES = 20_000  # scopes whose windows are remembered; beyond it the memory is emptied, never wrong
RATE_US = 1_000_000  # how often the rate of spending is taken
BIGGEST_US = 30_000_000  # how long the biggest worst case counts as recent: one to two of these


class Scope(Struct, frozen=True):
    """Who asks and for which route: the budgets of its organisation, team and key apply, those for any model and those for this route."""

    org_id: int
    team_id: int
    key_id: int
    route: str


class BudgetRow(Struct, frozen=True, kw_only=True):
    """One live budget. scope_kind: organisation | team | key. scope: its name among people. model: a route's name, None = every route."""

    id: int
    scope_kind: str
    scope_id: int
    scope: str = ""
    period: str
    limit_nanousd: int
    model: str | None = None
    timezone: str = "UTC"
    override_nanousd: int | None = None
    override_until_us: int | None = None

    def cap(self, now_us: int) -> int:
        if self.override_nanousd is not None and (self.override_until_us or 0) > now_us:
            return self.override_nanousd
        return self.limit_nanousd

    def describe(self, cap: int) -> str:
        """cap: the limit that holds, which an override may be."""
        model = "" if self.model is None else f" for {self.model}"
        period = "in all" if self.period == "total" else f"per {self.period} ({self.timezone})"
        return f"budget {self.id} of {self.scope_kind} '{self.scope or self.scope_id}'{model}, {usd(cap)} USD {period}"


class Window:
    """One budget in one period, as this process knows it. `room` is None until SQL has answered once."""

    __slots__ = (
        "amount", "biggest", "biggest_before", "budget", "cap", "ends_us", "gone", "id", "idle_of_others", "leased", "mark_settled",
        "mark_us", "near", "rate_30s", "refused_need", "refused_until_us", "reserved", "room", "settled", "spent", "starts_us", "turned_us",
        "unsynced", "used_us", "waiting", "wanted",
    )  # fmt: skip

    def __init__(self, budget: BudgetRow, starts_us: int, ends_us: int | None) -> None:
        self.id = 0  # its row in SQL; 0 = not made yet
        self.budget = budget
        self.starts_us = starts_us
        self.ends_us = ends_us
        self.amount = self.unsynced = self.reserved = 0
        self.room: int | None = None
        self.spent = self.leased = self.idle_of_others = 0
        self.cap = budget.limit_nanousd
        self.wanted = False  # another process starves: keep nothing idle
        self.gone = False  # its budget was deleted
        self.near = True  # near the cap as last decided: what comes back is given back at once
        self.waiting = 0  # requests of ours that wait for money here
        self.used_us = 0
        self.biggest = self.biggest_before = 0
        self.turned_us = 0
        self.settled = self.mark_settled = 0  # all that was ever settled here, for the rate
        self.mark_us = 0
        self.rate_30s = 0
        self.refused_need: int | None = None
        self.refused_until_us = 0

    @property
    def free(self) -> int:
        return self.amount - self.unsynced - self.reserved

    @property
    def key(self) -> tuple[int, int]:
        return self.budget.id, self.starts_us

    @property
    def recent_worst(self) -> int:
        return max(self.biggest, self.biggest_before)

    def ended(self, now_us: int) -> bool:
        return self.ends_us is not None and now_us >= self.ends_us

    def at_rest(self) -> bool:
        return self.amount == self.unsynced == self.reserved == self.waiting == 0

    def tick(self, now_us: int) -> None:
        """Age what is called recent: the biggest worst case and the rate of spending."""
        if now_us - self.turned_us >= BIGGEST_US:
            self.biggest_before, self.biggest, self.turned_us = self.biggest, 0, now_us
        passed = now_us - self.mark_us
        if passed >= RATE_US:
            if self.mark_us:  # up at once, down slowly: a burst must not find an empty slice
                self.rate_30s = max((self.settled - self.mark_settled) * 30_000_000 // passed, self.rate_30s * 4 // 5)
            self.mark_settled, self.mark_us = self.settled, now_us


class Lane:
    """The windows of one scope at one time, found once and remembered until the first of them ends."""

    __slots__ = ("_ids", "from_us", "until_us", "windows")

    def __init__(self, windows: tuple[Window, ...], from_us: int, until_us: int) -> None:
        self.windows = windows
        self.from_us = from_us
        self.until_us = until_us
        self._ids: tuple[int, ...] | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        if self._ids is None:
            ids = tuple(window.id for window in self.windows)
            if 0 in ids:
                return ids
            self._ids = ids
        return self._ids


_NOWHERE = Lane((), 0, 0)


class Hold:
    """Money reserved for one running request in all of its windows. Ended once, by Budgets.settle or Budgets.release."""

    __slots__ = ("charges", "done", "windows", "worst")

    def __init__(self, lane: Lane, worst: int) -> None:
        self.windows = lane.windows
        self.charges = lane.ids  # ids of the windows it draws on
        self.worst = worst
        self.done = False

    @property
    def free(self) -> int:
        """What every window of it could add at once."""
        return min((window.free for window in self.windows), default=0)

    def grow(self, delta: int) -> bool:
        """Hold `delta` more in every window, or nothing: False when one of them has not that much free."""
        if self.done:
            return False
        for window in self.windows:
            if window.amount - window.unsynced - window.reserved < delta:
                return False
        self.shrink(-delta)
        for window in self.windows:
            window.biggest = max(window.biggest, delta)
        return True

    def join(self, more: Hold) -> bool:
        """Take over what another hold has reserved, which ends it; False when either has ended or they draw on different windows."""
        if self.done or more.done or self.charges != more.charges:
            return False
        self.worst += more.worst
        more.done = True
        return True

    def shrink(self, delta: int) -> None:
        """Hold `delta` less. A negative delta is an overrun that is booked whether it fits or not: it has been spent."""
        if self.done:
            return
        self.worst -= delta
        for window in self.windows:
            window.reserved -= delta


class Refusal(Struct, frozen=True, kw_only=True):
    """Why there is no money. kind: budget (waiting does not help before the reset) | unavailable (SQL cannot be asked now)."""

    kind: str
    budget: str
    left_nanousd: int
    held_nanousd: int
    worst_nanousd: int
    resets_at_us: int | None = None
    retry_after_s: float | None = None
    window_id: int = 0
    cap_nanousd: int = 0

    def error(self, status: int) -> GatewayError:
        """What the client hears. status: settings.server.over_budget_status."""
        if self.kind == "unavailable":
            return NotReady(
                f"No money can be leased from {self.budget} now: the database does not answer. Try again later.",
                code="budget_unavailable",
                retry_after_s=self.retry_after_s or 1.0,
            )
        resets = (
            "never" if self.resets_at_us is None else to_datetime(self.resets_at_us).isoformat(timespec="seconds").replace("+00:00", "Z")
        )
        return OverBudget(
            f"Over budget: {self.budget} has {usd(self.left_nanousd)} USD left, of which running requests hold {usd(self.held_nanousd)}; "
            f"this request may cost up to {usd(self.worst_nanousd)} USD. The budget resets: {resets}. "
            "Lower max_tokens, shorten the prompt, or ask for a larger budget.",
            status=status,
        )


class Budgets:
    """All windows of this process. `touched` is called when money came back to a window that somebody may be waiting for."""

    def __init__(self, touched: Callable[[Window], None]) -> None:
        self.windows: dict[tuple[int, int], Window] = {}
        self.by_id: dict[int, Window] = {}  # those that have their row in SQL
        self._rows: dict[tuple[str, int, str | None], list[BudgetRow]] = {}
        self._lanes: dict[Scope, Lane] = {}
        self._budgeted: dict[Scope, bool] = {}
        self.touched = touched

    def set_rows(self, rows: Iterable[BudgetRow]) -> None:
        """Replace the snapshot of live budgets. Running holds keep the windows they drew on."""
        found: dict[tuple[str, int, str | None], list[BudgetRow]] = {}
        live: dict[int, BudgetRow] = {}
        for row in rows:
            found.setdefault((row.scope_kind, row.scope_id, row.model), []).append(row)
            live[row.id] = row
        self._rows = found
        self._lanes.clear()
        self._budgeted.clear()
        for window in self.windows.values():
            row_now = live.get(window.budget.id)
            window.gone = row_now is None
            if row_now is not None:
                window.budget = row_now

    def budgeted(self, scope: Scope) -> bool:
        """Whether any budget applies: then an unpriced backend is refused before it is called."""
        known = self._budgeted.get(scope)
        if known is None:
            known = any(key in self._rows for key in _keys(scope))
            if len(self._budgeted) >= LANES:
                self._budgeted.clear()
            self._budgeted[scope] = known
        return known

    def lane(self, scope: Scope, at_us: int) -> Lane:
        """The windows that a request admitted at at_us draws on."""
        if not self._rows:
            return _NOWHERE
        lane = self._lanes.get(scope)
        if lane is not None and lane.from_us <= at_us < lane.until_us:
            return lane
        windows = [self.window(row, at_us) for key in _keys(scope) for row in self._rows.get(key, ())]
        windows.sort(key=lambda window: window.key)
        lane = Lane(
            tuple(windows),
            max((window.starts_us for window in windows), default=0),
            min((window.ends_us for window in windows if window.ends_us is not None), default=1 << 62),
        )
        if len(self._lanes) >= LANES:
            self._lanes.clear()
        self._lanes[scope] = lane
        return lane

    def window(self, row: BudgetRow, at_us: int) -> Window:
        """The window of a budget at an instant, made in memory when it is new."""
        starts_us, ends_us = bounds(row.period, row.timezone, at_us)
        window = self.windows.get((row.id, starts_us))
        if window is None:
            window = self.windows[row.id, starts_us] = Window(row, starts_us, ends_us)
            window.used_us = at_us
        return window

    def take(self, lane: Lane, worst: int, at_us: int) -> Hold | None:
        """Reserve in every window or in none. Those who wait are served first."""
        windows = lane.windows
        for window in windows:
            if window.waiting or window.amount - window.unsynced - window.reserved < worst:
                return None
        for window in windows:
            window.reserved += worst
            window.used_us = at_us
            if worst > window.biggest:  # noqa: PLR1730  (max() is three times as slow here)
                window.biggest = worst
        return Hold(lane, worst)

    def settle(self, hold: Hold, cost: int) -> None:
        """Replace what was held by what it cost; a second call does nothing."""
        if hold.done:
            return
        hold.done = True
        for window in hold.windows:
            window.reserved -= hold.worst
            window.unsynced += cost
            window.settled += cost
            window.refused_until_us = 0  # what was refused may fit now
            self.touched(window)

    def release(self, hold: Hold) -> None:
        """Give back a hold for which no intent was written."""
        if hold.done:
            return
        hold.done = True
        for window in hold.windows:
            window.reserved -= hold.worst
            window.refused_until_us = 0
            self.touched(window)

    def found(self, window: Window, window_id: int) -> None:
        """SQL has a row for this window now."""
        window.id = window_id
        self.by_id[window_id] = window

    def following(self, window: Window) -> Window | None:
        """The next period of the same budget; None where there is none."""
        if window.ends_us is None or window.gone:
            return None
        following = self.window(window.budget, window.ends_us)
        following.biggest = max(following.biggest, window.recent_worst)
        following.rate_30s = max(following.rate_30s, window.rate_30s)
        return following

    def forget(self, windows: Iterable[Window]) -> None:
        """Drop windows at rest; lanes that know them are found anew."""
        for window in windows:
            self.windows.pop(window.key, None)
            self.by_id.pop(window.id, None)
        self._lanes.clear()

    def obtainable(self, lane: Lane) -> int:
        """About what one request could get now in all of its windows, others' idle money included."""
        return min((window.free + max(0, window.room or 0) + window.idle_of_others for window in lane.windows), default=0)

    def refusal(self, windows: Sequence[Window], worst: int, *, available: bool) -> Refusal:
        """Name the window that is shortest of money for this request."""
        window = min(windows, key=lambda window: window.free + (window.room or 0) + window.idle_of_others)
        left = window.cap - window.spent - window.unsynced
        held = min(left, window.leased - window.unsynced - max(0, window.free) - window.idle_of_others)
        return Refusal(
            kind="budget" if available else "unavailable",
            budget=window.budget.describe(window.cap),
            window_id=window.id,
            cap_nanousd=window.cap,
            left_nanousd=max(0, left),
            held_nanousd=max(0, held),
            worst_nanousd=worst,
            resets_at_us=window.ends_us,
            retry_after_s=None if available else 1.0,
        )


def _keys(scope: Scope) -> tuple[tuple[str, int, str | None], ...]:
    return (
        ("organisation", scope.org_id, None),
        ("organisation", scope.org_id, scope.route),
        ("team", scope.team_id, None),
        ("team", scope.team_id, scope.route),
        ("key", scope.key_id, None),
        ("key", scope.key_id, scope.route),
    )
