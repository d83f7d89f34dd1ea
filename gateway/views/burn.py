"""How fast the errors that a month allows are used up: one service level and two paces, the same as in the alerts of Prometheus.

Read by team in the background, so that whoever looks is told of what they see. Long windows come from roll-ups, widened to whole quarters
of an hour; the shortest from rows, of which the newest are enough.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Mapping

from msgspec import Struct
from sqlalchemy import BigInteger, case, cast, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.db.engine import clock_us, snapshot
from gateway.db.tables import usage
from gateway.money.ledger import BOOKED, BUCKET_US, HOUR_US, ROLLUP_SUMS
from gateway.money.report_query import Wanted
from gateway.money.report_query import read as read_rollups

ALLOWED = 0.005  # of the accepted requests may fail: the level is 99.5 %
MONTH_H = 30 * 24  # the time that these errors are allowed for
FEWEST = 5  # failed requests that tell a pace
NEWEST = 20_000  # rows of the shortest window
TEAMS_MAX = 100_000
FAILED = "failed"
MINUTE_US = 60_000_000
_REQUESTS = ROLLUP_SUMS.index("requests")


class Pace(Struct, frozen=True):
    """Errors come at more than `factor` times what is allowed, over a long window, which says that it matters, and a short one, which says
    that it still goes on. bad: somebody should look now."""

    long_us: int
    short_us: int
    factor: float
    bad: bool


PACES = (Pace(HOUR_US, 5 * MINUTE_US, 14.4, True), Pace(6 * HOUR_US, 30 * MINUTE_US, 6.0, False))  # the faster first
_SHORTEST = min(pace.short_us for pace in PACES)
_ROLLED = tuple(sorted({us for pace in PACES for us in (pace.long_us, pace.short_us)} - {_SHORTEST}, reverse=True))

Counts = Mapping[int, Mapping[int, tuple[int, int]]]  # length of a window -> team -> (requests, failed)


class Burn(Struct, frozen=True):
    """share: of the requests of the pace's long window that failed."""

    pace: Pace
    share: float

    @property
    def hours(self) -> float:
        """Until a month's errors are used up at this pace."""
        return MONTH_H * ALLOWED / self.share


def burn(counts: Counts, scope: frozenset[int] | None) -> Burn | None:
    """The fastest pace that is passed by what a scope sees, None = all teams."""
    for pace in PACES:
        requests, failed = _sum(counts[pace.long_us], scope)
        lately, failed_lately = _sum(counts[pace.short_us], scope)
        if failed < FEWEST or not lately:
            continue
        if min(failed / requests, failed_lately / lately) > pace.factor * ALLOWED:
            return Burn(pace, failed / requests)
    return None


def _sum(by_team: Mapping[int, tuple[int, int]], scope: frozenset[int] | None) -> tuple[int, int]:
    seen: Iterable[tuple[int, int]] = (found for team, found in by_team.items() if scope is None or team in scope)
    requests, failed = 0, 0
    for one in seen:
        requests, failed = requests + one[0], failed + one[1]
    return requests, failed


async def read(engine: AsyncEngine) -> Counts:
    """Of all teams, at one instant."""
    async with snapshot(engine) as connection:
        now_us = int((await connection.execute(select(clock_us(connection.dialect.name)))).scalar_one())
        return await _from_rollups(connection, now_us) | {_SHORTEST: await _from_rows(connection, now_us - _SHORTEST)}


async def _from_rollups(connection: AsyncConnection, now_us: int) -> dict[int, dict[int, tuple[int, int]]]:
    starts = [now_us - window_us - (now_us - window_us) % BUCKET_US for window_us in _ROLLED]
    wanted = Wanted(
        keys=("team_id",),
        since_us=starts[0],
        until_us=now_us + -now_us % BUCKET_US,
        label=lambda at_us: str(bisect(starts, at_us)),
        rows_max=TEAMS_MAX,
        latencies=False,
        sums=("requests",),
    )
    found: dict[int, dict[int, tuple[int, int]]] = {window_us: {} for window_us in _ROLLED}
    for one in (await read_rollups(connection, wanted))[0]:
        for window_us in _ROLLED[: int(one.label)]:  # what is in a short window is in every longer one
            requests, failed = found[window_us].get(one.group[0], (0, 0))
            more = one.sums[_REQUESTS]
            found[window_us][one.group[0]] = requests + more, failed + (more if one.outcome == FAILED else 0)
    return found


async def _from_rows(connection: AsyncConnection, since_us: int) -> dict[int, tuple[int, int]]:
    row = usage.c
    newest = (
        select(row.team_id, row.outcome)
        .where(row.started_at_us >= since_us)
        .with_hint(usage, "INDEXED BY ix_usage_started_at_us", "sqlite")
        .order_by(row.started_at_us.desc())
        .limit(NEWEST)
        .subquery()
    )
    failed = func.sum(case((newest.c.outcome == FAILED, 1), else_=0))
    by_team = (
        select(newest.c.team_id, func.count(), cast(failed, BigInteger)).where(newest.c.outcome.not_in(BOOKED)).group_by(newest.c.team_id)
    )
    return {int(team): (int(requests), int(bad)) for team, requests, bad in await connection.execute(by_team)}
