"""What keys did and when they last did anything, from the roll-ups: the request path writes nothing for it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from sqlalchemy import func, literal, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.db.rollup_tables import coarse_rollups, rollups, settled
from gateway.money.cuts import CUTS
from gateway.money.ledger import BUCKET_US, DAY_US, ROLLUP_SUMS
from gateway.money.report_query import Wanted, known, read
from gateway.people.common import LISTED_MAX, now_us_of

LOOK_DAYS = 92  # how far back a last use is looked for
_CUT = next(cut.name for cut in CUTS if cut.has(("team_id", "key_id")))
_SUMS = ("requests", "cost", "unpriced")
_PLACES = tuple(ROLLUP_SUMS.index(name) for name in _SUMS)


class Use(Struct, frozen=True, kw_only=True):
    """What a key or team did since an instant. unpriced: requests of unknown cost."""

    requests: int
    cost_nanousd: int
    unpriced: int


class LastUse(Struct, frozen=True):
    """The last request began within grain_us after at_us: a quarter of an hour, or a day of UTC where that is over and added up."""

    at_us: int
    grain_us: int


async def used_since(
    connection: AsyncConnection, name: Literal["team_id", "key_id"], scope: frozenset[int] | None, since_us: int
) -> dict[int, Use]:
    """Team or key id -> what it did since, of those that did anything; with a scope of its teams. since_us: a whole quarter of an hour."""
    wanted = Wanted(
        keys=(name,),
        since_us=since_us,
        until_us=(await known(connection))[1],
        label=lambda _: "",
        where={} if scope is None else {"team_id": scope},
        rows_max=LISTED_MAX,
        latencies=False,
        sums=_SUMS,
    )
    added: dict[int, list[int]] = {}
    for one in (await read(connection, wanted))[0]:
        there = added.setdefault(one.group[0], [0] * len(_SUMS))
        added[one.group[0]] = [a + one.sums[place] for a, place in zip(there, _PLACES, strict=True)]
    return {key: Use(requests=requests, cost_nanousd=cost, unpriced=unpriced) for key, (requests, cost, unpriced) in added.items()}


async def last_used(connection: AsyncConnection, scope: frozenset[int] | None = None) -> dict[int, LastUse]:
    """key id -> when it last did anything, of keys that did in LOOK_DAYS; with a scope those of its teams."""
    fine, coarse = rollups.c, coarse_rollups.c
    until_us = (await connection.execute(select(settled.c.until_us))).scalar_one_or_none() or 0
    first_us = (await now_us_of(connection) // DAY_US - LOOK_DAYS) * DAY_US
    day_us = max(first_us, until_us // DAY_US * DAY_US)  # from here on there are quarters alone
    of_days = coarse.cut == _CUT, coarse.span_us == DAY_US, coarse.bucket_us >= first_us, coarse.bucket_us < day_us
    days = select(coarse.key_id, func.max(coarse.bucket_us).label("at_us"), literal(DAY_US).label("grain_us")).where(*of_days)
    quarters = select(fine.key_id, func.max(fine.bucket_us), literal(BUCKET_US)).where(fine.bucket_us >= day_us)
    if scope is not None:
        days, quarters = days.where(coarse.team_id.in_(scope)), quarters.where(fine.team_id.in_(scope))
    both = union_all(days.group_by(coarse.key_id), quarters.group_by(fine.key_id))
    found: dict[int, LastUse] = {}
    for row in await connection.execute(both):
        if row.key_id not in found or found[row.key_id].at_us < row.at_us:
            found[row.key_id] = LastUse(row.at_us, row.grain_us)
    return found
