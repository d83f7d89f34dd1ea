"""How many requests match: in all, by time and outcome, and by what else could be chosen. From roll-ups where they can tell, else rows.

What would take too long is counted over the newest part of the stretch alone, and says since when. The counts beside the values of a
facet are those that choosing the value would give: every other filter holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import BigInteger, Select, Text, cast, func, literal, null, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.db.rollup_tables import rollups
from gateway.db.tables import usage
from gateway.money.ledger import BUCKET_US, HOUR_US
from gateway.money.marks import UNPRICED
from gateway.money.report_query import Wanted as Added
from gateway.money.report_query import read
from gateway.views.explorer_filter import FACETS, ONLY, Wanted, repriced
from gateway.views.explorer_rows import LOOKED_AT, looked_from, walked

ROLLUPS_AT_ONCE = 50_000  # roll-ups that are read for one page's counts
MARKED_AT_ONCE = 20_000
BY_TEAM_MAX = 1_000_000  # teams × bars × outcomes
FINE_US = 12 * HOUR_US  # shorter stretches are counted row by row, so that their histogram has more than a few bars
BARS = 50  # at most, about
STEPS_US = tuple(
    minutes * 60_000_000 for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440, 2880, 10080, 20160, 43200, 129600)
)


class Facet(Struct, frozen=True, kw_only=True):
    """counts: requests by value (ids of teams). since_us: counted from there on."""

    counts: Mapping[Any, int]
    since_us: int


class Counts(Struct, frozen=True, kw_only=True):
    """total: whatever the filters; matching: by them. Each since an instant, which is the stretch's beginning where all was counted. bars:
    (start, outcome) -> requests, each bar step_us long. facets: by column, and "marks" by word of ONLY."""

    total: int
    total_since_us: int
    matching: int
    matching_since_us: int
    step_us: int
    bars: Mapping[tuple[int, str], int]
    facets: Mapping[str, Facet]


class _Source(Struct, frozen=True):
    """Where counts come from, and since when. hits: a statement of start (of a bar), the columns of FACETS and requests, of all that
    matches but for what is chosen of the facets."""

    hits: Select[Any]
    since_us: int


def step_us(from_us: int, until_us: int) -> int:
    """How long a bar of the histogram is."""
    return next((step for step in STEPS_US if (until_us - from_us) <= step * BARS), STEPS_US[-1])


async def count(connection: AsyncConnection, wanted: Wanted) -> Counts:
    step = step_us(wanted.from_us, wanted.until_us)
    source = await _source(connection, wanted, step)
    groups, bars = await _counted(connection, wanted, source)
    facets = {name: Facet(counts=_fold(groups, wanted, name), since_us=source.since_us) for name in FACETS}
    matching, since_us = sum(bars.values()), source.since_us
    if _whole_quarters(wanted) and wanted.sight.whole and wanted.request is None:
        whole = await _by_team(connection, wanted, step if step % BUCKET_US == 0 else BUCKET_US)
        total, total_since = sum(whole.values()), wanted.from_us
        if wanted.by_team and source.since_us > wanted.from_us:
            bars = _chosen(whole, wanted)
            matching, since_us = sum(bars.values()), wanted.from_us
            facets |= _team_facets(whole, wanted)
    else:
        total, total_since = await _total(connection, wanted)
    facets["marks"] = await _marked(connection, wanted)
    return Counts(
        total=total,
        total_since_us=total_since,
        matching=matching,
        matching_since_us=since_us,
        step_us=step,
        bars=bars,
        facets=facets,
    )


def _whole_quarters(wanted: Wanted) -> bool:
    """Whether roll-ups can tell of exactly this stretch."""
    return not (wanted.from_us % BUCKET_US or wanted.until_us % BUCKET_US)


async def _total(connection: AsyncConnection, wanted: Wanted) -> tuple[int, int]:
    """All that is seen of the stretch, and since when."""
    every = Wanted(sight=wanted.sight, from_us=wanted.from_us, until_us=wanted.until_us, request=wanted.request)
    since_us = wanted.from_us
    if wanted.request is None:
        since_us = await looked_from(connection, (wanted.from_us, wanted.until_us), LOOKED_AT, _whose(wanted), False)
    at = usage.c.started_at_us
    counted = select(func.count()).select_from(usage).where(at >= since_us, at < wanted.until_us, *every.on_rows())
    return int((await connection.execute(counted)).scalar_one()), since_us


def _whose(wanted: Wanted) -> frozenset[int] | None:
    """The teams among whose rows counts are looked for: all that are seen, since a facet offers the others too."""
    return wanted.sight.teams if wanted.sight.whole else None


async def _source(connection: AsyncConnection, wanted: Wanted, step: int) -> _Source:
    rough = wanted.rough and _whole_quarters(wanted) and step % BUCKET_US == 0 and wanted.until_us - wanted.from_us >= FINE_US
    if not rough:
        whose, marked, since_us = _whose(wanted), bool(wanted.marks), wanted.from_us
        if wanted.request is None:
            since_us = await looked_from(connection, (wanted.from_us, wanted.until_us), LOOKED_AT, whose, marked)
        at = usage.c.started_at_us
        rows = select((at - at % step).label("start"), *(usage.c[name] for name in FACETS), literal(1).label("requests"))
        rows = rows.where(at >= since_us, at < wanted.until_us, *wanted.on_rows(FACETS))
        return _Source(rows if wanted.request is not None else walked(rows, marked, whose), since_us)
    at = rollups.c.bucket_us
    edge = select(at).where(at >= wanted.from_us, at < wanted.until_us).order_by(at.desc()).limit(1).offset(ROLLUPS_AT_ONCE)
    found = (await connection.execute(edge)).scalar_one_or_none()
    since_us = wanted.from_us if found is None else int(found) + BUCKET_US  # whole quarters alone
    sums = select((at - at % step).label("start"), *(rollups.c[name] for name in FACETS), rollups.c.requests)
    return _Source(sums.where(at >= since_us, at < wanted.until_us, rollups.c.requests > 0, *wanted.on(rollups, FACETS)), since_us)


async def _counted(
    connection: AsyncConnection, wanted: Wanted, source: _Source
) -> tuple[dict[tuple[Any, ...], int], dict[tuple[int, str], int]]:
    """(requests by the columns of FACETS whatever is chosen of them, requests by bar and outcome of what is chosen), read once."""
    hit = source.hits.cte("hit")
    by = [hit.c[name] for name in FACETS]
    requests = cast(func.sum(hit.c.requests), BigInteger)
    chosen = [hit.c[name].in_(wanted.dims[name]) for name in FACETS if name in wanted.dims]
    in_groups = select(cast(null(), BigInteger), *by, requests).group_by(*by)
    empty = [cast(null(), BigInteger), hit.c.outcome, cast(null(), Text), cast(null(), Text)]
    in_bars = select(hit.c.start, *empty, requests).where(*chosen).group_by(hit.c.start, hit.c.outcome)
    groups: dict[tuple[Any, ...], int] = {}
    bars: dict[tuple[int, str], int] = {}
    for row in await connection.execute(union_all(in_groups, in_bars)):
        if row[0] is None:
            groups[tuple(row[1:-1])] = int(row[-1])
        else:
            bars[int(row[0]), row[2]] = int(row[-1])
    return groups, bars


def _fold(groups: Mapping[tuple[Any, ...], int], wanted: Wanted, name: str) -> dict[Any, int]:
    """Of one facet: what is chosen of the others holds."""
    place = FACETS.index(name)
    others = [(at, frozenset(wanted.dims[other])) for at, other in enumerate(FACETS) if other != name and other in wanted.dims]
    found: dict[Any, int] = {}
    for group, requests in groups.items():
        if all(group[at] in values for at, values in others):
            found[group[place]] = found.get(group[place], 0) + requests
    return found


# ---- by team alone, of any length
async def _by_team(connection: AsyncConnection, wanted: Wanted, step: int) -> dict[tuple[int, int, str], int]:
    """(start of a bar, team, outcome) -> requests of all that is seen."""
    asked = Added(
        keys=("team_id", "outcome"),
        since_us=wanted.from_us,
        until_us=wanted.until_us,
        label=lambda at_us: str(at_us - at_us % step),
        where={} if wanted.sight.teams is None else {"team_id": wanted.sight.teams},
        rows_max=BY_TEAM_MAX,
        latencies=False,
        sums=("requests",),
    )
    found: dict[tuple[int, int, str], int] = {}
    for one in (await read(connection, asked))[0]:
        key = (int(one.label), *one.group)
        found[key] = found.get(key, 0) + one.sums[0]
    return {key: requests for key, requests in found.items() if requests > 0}


def _chosen(whole: Mapping[tuple[int, int, str], int], wanted: Wanted) -> dict[tuple[int, str], int]:
    teams, outcomes = wanted.dims.get("team_id"), wanted.dims.get("outcome")
    found: dict[tuple[int, str], int] = {}
    for (start, team, outcome), requests in whole.items():
        if (teams is None or team in teams) and (outcomes is None or outcome in outcomes):
            found[start, outcome] = found.get((start, outcome), 0) + requests
    return found


def _team_facets(whole: Mapping[tuple[int, int, str], int], wanted: Wanted) -> dict[str, Facet]:
    teams, outcomes = wanted.dims.get("team_id"), wanted.dims.get("outcome")
    by_team = _sum((team, requests) for (_, team, outcome), requests in whole.items() if outcomes is None or outcome in outcomes)
    by_outcome = _sum((outcome, requests) for (_, team, outcome), requests in whole.items() if teams is None or team in teams)
    return {
        "team_id": Facet(counts=by_team, since_us=wanted.from_us),
        "outcome": Facet(counts=by_outcome, since_us=wanted.from_us),
    }


def _sum(pairs: Iterable[tuple[Any, int]]) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for name, requests in pairs:
        found[name] = found.get(name, 0) + requests
    return found


# ---- what is remarkable
async def _marked(connection: AsyncConnection, wanted: Wanted) -> Facet:
    """Requests by the words of ONLY: a request may be several."""
    marks = usage.c.marks
    narrowed = replace(wanted, marks=wanted.marks or UNPRICED)  # whichever: marked rows, whose marks the conditions leave out
    since_us = wanted.from_us
    if wanted.request is None:
        since_us = await looked_from(connection, (wanted.from_us, wanted.until_us), MARKED_AT_ONCE, None, True)
    rows = [usage.c.started_at_us >= since_us, usage.c.started_at_us < wanted.until_us, *narrowed.on_rows(("marks",))]
    by_marks = walked(select(marks, func.count()).where(*rows).group_by(marks), marked=True, among=None)
    found = [(int(row[0]), int(row[1])) for row in await connection.execute(by_marks)]
    counts = {word: sum(times for mark, times in found if mark & bit) for word, bit in ONLY.items()}
    if counts["unpriced"]:
        late = walked(select(func.count()).select_from(usage), marked=True, among=None)
        late = late.where(*rows, marks.bitwise_and(UNPRICED) != 0, repriced())
        counts["unpriced"] -= int((await connection.execute(late)).scalar_one())
    return Facet(counts=counts, since_us=since_us)
