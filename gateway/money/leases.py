"""What a process asks of SQL for its windows, and what it makes of the answer: slices, returns, the near cap. Pure, clock passed in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from msgspec import Struct

from gateway.money.budgets import Window

NEXT_WINDOW_US = 60_000_000  # the next period is leased this early: else a database outage at midnight refuses everybody


class Ask(Struct, frozen=True, kw_only=True):
    """Money asked for, given back, and taken because it is already spent. free: of the owner after `ret` has left it.

    steps: near the cap the only sums below `want` that are of use: what the first waiter lacks, the first two, ...
    """

    window_id: int
    want: int = 0
    steps: tuple[int, ...] = ()
    ret: int = 0
    force: int = 0
    free: int = 0
    near: bool = True

    @property
    def changes(self) -> bool:
        return bool(self.want or self.ret or self.force)


class Line(Struct, frozen=True, kw_only=True):
    """One window as SQL answered. amount: our lease now. room: what may still be leased."""

    window_id: int
    amount: int
    room: int
    spent: int
    leased: int
    cap: int
    idle_of_others: int
    wanted: bool
    deleted: bool


class Grant(Struct, frozen=True):
    """delta of the lease beside the charge, the lease's new amount, room left, and whether others must be asked for idle money."""

    delta: int
    amount: int
    room: int
    starving: bool


class Books(Struct, frozen=True):
    """One window's figures inside the transaction. own: our lease before it. charged: cost of the rows it inserted."""

    cap: int
    spent: int
    leased: int
    own: int
    idle_of_others: int
    charged: int


def plan(books: Books, want: int, ret: int, force: int, steps: Sequence[int] = ()) -> Grant:
    """What one transaction does to one window. `force` ignores the cap: that money is already spent.

    With `steps` a short grant ends at one of them: a part that serves nobody would be hidden from the others, who then refuse too early.
    """
    delta = force - ret
    room = books.cap - books.spent - books.leased - delta  # charging leaves spent + leased unchanged
    granted = max(0, min(want, room))
    if steps and granted < want:
        whole = bisect_right(steps, granted)
        granted = steps[whole - 1] if whole else 0
    delta += granted
    return Grant(delta, books.own - books.charged + delta, room - granted, want > granted and books.idle_of_others > 0)


def slice_of(window: Window, processes: int, now_us: int) -> int:
    """How much to keep free in this process; 0 = near the cap, keep nothing."""
    if window.room is None or window.wanted or window.gone or window.ended(now_us):
        return 0
    biggest = window.recent_worst
    size = min(max(0, window.room) // (4 * max(1, processes)), max(window.rate_30s, 8 * biggest))
    return 0 if size < 2 * biggest else size


def ask(window: Window, processes: int, now_us: int, needs: Sequence[int], idle_return_us: int) -> Ask:
    """Decide for one window. needs: running sums of what our waiters lack here. Lowers window.amount by what is sent back.

    Near the cap all that is free goes back first, so that the same transaction can give it, with what others left, to whoever it serves.
    """
    free = window.free
    need = needs[-1] if needs else 0
    spare = max(0, free) - need
    keep = slice_of(window, processes, now_us)
    if now_us - max(window.used_us, window.starts_us) > idle_return_us:
        keep = 0
    want = ret = 0
    if keep == 0:
        want, ret = need, max(0, free)
    elif spare < keep // 2:
        want = keep - spare
    elif spare > 2 * keep:
        ret = spare - keep
    window.near = keep == 0
    window.amount -= ret  # money on its way back is no longer ours
    steps = tuple(needs) if keep == 0 else ()
    return Ask(window_id=window.id, want=want, steps=steps, ret=ret, force=max(0, -free), free=free - ret, near=keep == 0)


def learn(window: Window, line: Line) -> None:
    """Take over one window's answer."""
    window.amount = line.amount
    window.room = line.room
    window.spent = line.spent
    window.leased = line.leased
    window.cap = line.cap
    window.idle_of_others = line.idle_of_others
    window.wanted = line.wanted
    window.gone = window.gone or line.deleted


def lacks(window: Window, need: int) -> bool:
    """Whether a request is rightly refused: even with all idle money of the others it would not fit."""
    return window.free + max(0, window.room or 0) + window.idle_of_others < need
