"""The ledger added up again beside what the roll-ups say, stretch by stretch, all of one instant. Reads every row, tells how far it is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.engine import snapshot
from gateway.errors import InvalidRequest
from gateway.money import reports
from gateway.money.settling import pruned_until
from gateway.views.series import Part, Steps, series, steps
from gateway.views.spend import OF_ROWS, Asked, rows_sum

ROWS_AT_ONCE = 50_000  # about, of one statement: a database gives up on longer ones


class Step(Struct, frozen=True):
    """How far it is: requests."""

    done: int
    total: int


class Checked(Struct, frozen=True, kw_only=True):
    """nano-USD by the roll-ups and by the ledger's rows. differs: [since_us, until_us) of the first stretch in which they differ."""

    rolled: int
    ledger: int
    differs: tuple[int, int] | None


async def check(engine: AsyncEngine, asked: Asked) -> AsyncGenerator[Step | Checked]:
    """Steps, the first before anything is added up, then the result. InvalidRequest where rows cannot tell; NotFound for a team that is
    not seen."""
    async with snapshot(engine) as connection:
        where: dict[str, Any] = await reports.of_teams(connection, asked.team, asked.scope) | dict(asked.where)
        pruned_us = await pruned_until(connection)
        if not set(asked.where) <= OF_ROWS:
            raise InvalidRequest(
                f"The ledger is added up by {' and '.join(sorted(OF_ROWS))} alone: remove the other filters.", param="check"
            )
        if asked.since_us < pruned_us:
            raise InvalidRequest("The ledger begins later than this report: choose a shorter range.", param="from")
        at = steps(asked.since_us, asked.until_us, asked.tz)
        points = (await series(connection, (), where, at, sums=("requests", "cost"))).points
        total, done, rolled, ledger = sum(point.of("requests") for point in points), 0, 0, 0
        differs: tuple[int, int] | None = None
        yield Step(0, total)
        for since_us, until_us, point in _stretches(at, points):
            found = 0
            for start_us, stop_us in cut(since_us, until_us, point.of("requests")):
                found += await rows_sum(connection, start_us, stop_us, where)
            if found != point.of("cost") and differs is None:
                differs = since_us, until_us
            rolled, ledger, done = rolled + point.of("cost"), ledger + found, done + point.of("requests")
            yield Step(done, total)
    yield Checked(rolled=rolled, ledger=ledger, differs=differs)


def _stretches(at: Steps, points: Sequence[Part]) -> list[tuple[int, int, Part]]:
    return list(zip(at.starts, (*at.starts[1:], at.until_us), points, strict=True))


def cut(since_us: int, until_us: int, requests: int, most: int = ROWS_AT_ONCE) -> list[tuple[int, int]]:
    """A stretch in equal parts of about `most` requests."""
    parts = max(1, -(-requests // most))
    edges = [since_us + (until_us - since_us) * number // parts for number in range(parts + 1)]
    return list(pairwise(edges))
