"""Computes every invariant of the ledger anew and names what breaks one: one pass over the rows, in one snapshot of the database.

A row's cost is the sum of its attempts' · a window's spent is what its rows charged plus its adjustments · leased is the sum of leases ·
roll-ups are the sums of rows and corrections · what is booked in a closed hour of owned hardware is hours × rate · nothing points to what
is not there. Repairs nothing; rebuild.py makes roll-ups anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.db.engine import snapshot
from gateway.db.rollup_tables import coarse_latency_rollups, coarse_rollups, latency_rollups, rollups
from gateway.db.tables import adjustments, attempts, budget_leases, budget_windows, budgets, gateway_processes, usage
from gateway.money.closing import wrong_hours
from gateway.money.cuts import CUTS, LATENCIES, SUMS, Side, added
from gateway.money.latencies import COUNTS
from gateway.money.ledger import BOOKED, BUCKET_US, DAY_US, HOUR_US, LATENCY_KEYS, ROLLUP_KEYS, ROLLUP_SUMS, Rollup
from gateway.money.rebuild import Page, pages
from gateway.money.records import UsageRecord
from gateway.money.reports import OUTCOMES
from gateway.money.settling import pruned_until, settled_in

LISTED_MAX = 1000  # broken ones that are named; the others are counted
PAGE = 2000


class Broken(Struct, frozen=True):
    """rule: which invariant. where: the row. told: what it says and what it should."""

    rule: str
    where: str
    told: str


class Audit(Struct, kw_only=True):
    rows: int = 0
    windows: int = 0
    buckets: int = 0  # quarters of an hour whose roll-ups were compared
    count: int = 0  # of what is broken
    broken: list[Broken] = []

    def add(self, rule: str, where: object, told: str) -> None:
        self.count += 1
        if len(self.broken) < LISTED_MAX:
            self.broken.append(Broken(rule, str(where), told))


async def audit(engine: AsyncEngine) -> Audit:
    """Check everything. Gateways may go on writing: what is read is one instant's state."""
    found = Audit(broken=[])
    async with snapshot(engine) as connection:
        auditor = _Auditor(connection, found)
        await auditor.windows()
        await auditor.rows()
        await auditor.orphans()
        auditor.sums()
        for where, told in await wrong_hours(connection):
            found.add("an owned hour's shares, idle and warm-up are hours × rate", where, told)
    return found


class _Auditor:
    def __init__(self, connection: AsyncConnection, found: Audit) -> None:
        self._connection = connection
        self._found = found
        self._windows: dict[int, Mapping[Any, Any]] = {}
        self._booked: dict[int, int] = {}  # window -> charges and adjustments
        self._leased: dict[int, int] = {}

    async def windows(self) -> None:
        statement = select(budget_windows, budgets.c.scope_kind, budgets.c.scope_id, budgets.c.model).join(
            budgets, budgets.c.id == budget_windows.c.budget_id
        )
        self._windows = {row["id"]: row for row in (await self._connection.execute(statement)).mappings()}
        self._found.windows = len(self._windows)
        leases = select(budget_leases, gateway_processes.c.state).join(
            gateway_processes, gateway_processes.c.id == budget_leases.c.process_id, isouter=True
        )
        for row in await self._connection.execute(leases):
            self._leased[row.window_id] = self._leased.get(row.window_id, 0) + row.amount
            where = f"lease of process {row.process_id} on window {row.window_id}"
            if row.state != "live":
                self._found.add(
                    "leases belong to live processes", where, f"{row.amount} nano-USD, the process is {row.state or 'not there'}"
                )
            if row.window_id not in self._windows:
                self._found.add("nothing points to what is not there", where, "there is no such window")

    async def rows(self) -> None:
        pruned = await pruned_until(self._connection)
        bucket_us = await self._next(0)
        while bucket_us is not None:
            made = Rollup()
            async for page in pages(self._connection, bucket_us):
                self._found.rows += len(page.rows)
                self._page(page)
                page.add_to(made)
            if bucket_us >= pruned:
                self._found.buckets += 1
                await self._compare(rollups, ROLLUP_KEYS, ROLLUP_SUMS, made.rows(), bucket_us)
                await self._compare(latency_rollups, LATENCY_KEYS, COUNTS, made.latency_rows(), bucket_us)
            after_us = await self._next(bucket_us + BUCKET_US)
            day_us = bucket_us - bucket_us % DAY_US
            if after_us is None or after_us >= day_us + DAY_US:
                await self._coarse(day_us, pruned)
            bucket_us = after_us

    async def _next(self, since_us: int) -> int | None:
        """The next quarter of an hour of which the ledger or the roll-ups know."""
        columns: list[tuple[Any, list[Any]]] = [(table.c.bucket_us, []) for table in (rollups, latency_rollups)]
        for table in (coarse_rollups, coarse_latency_rollups):  # as their key begins: of all else there is more
            columns.append((table.c.bucket_us, [table.c.cut == CUTS[0].name, table.c.span_us == HOUR_US]))
        columns.append((usage.c.started_at_us, []))
        known = [(await self._connection.execute(select(func.min(at)).where(at >= since_us, *of))).scalar_one() for at, of in columns]
        least = min((one for one in known if one is not None), default=None)
        return None if least is None else least - least % BUCKET_US

    def _page(self, page: Page) -> None:
        charges: dict[UUID, list[int]] = {}
        for row in page.rows:
            record = page.records[row["id"]]
            charges[record.id] = json.loads(row["charges"])
            self._row(record, charges[record.id])
            for window in charges[record.id]:
                self._booked[window] = self._booked.get(window, 0) + (record.cost or 0)
        for one in page.corrections:
            for window in charges[one.usage_id]:
                self._booked[window] = self._booked.get(window, 0) + one.delta

    def _row(self, record: UsageRecord, charges: list[int]) -> None:
        where = f"row {record.id}"
        if record.outcome in BOOKED:
            return
        if record.outcome not in OUTCOMES:
            self._found.add("every row has an outcome", where, f"'{record.outcome}'")
        costs = [end.cost for end in record.attempts]
        total = None if None in costs else sum(cost for cost in costs if cost is not None)
        if total != record.cost:
            self._found.add("a row costs what its attempts cost", where, f"cost {record.cost}, its attempts {total}")
        for window_id in charges:
            window = self._windows.get(window_id)
            if window is None:
                self._found.add("nothing points to what is not there", where, f"charges window {window_id}")
            elif not _covers(window, record):
                told = f"charges window {window_id} of {window['scope_kind']} {window['scope_id']}, which is not for it"
                self._found.add("a row charges the windows of its scope and instant", where, told)

    async def _compare(
        self, table: Table, keys: tuple[str, ...], sums: tuple[str, ...], made: Sequence[tuple[Any, ...]], bucket_us: int
    ) -> None:
        columns = [table.c[name] for name in (*keys, *sums)]
        rows = await self._connection.execute(select(*columns).where(table.c.bucket_us == bucket_us))
        self._differ(table, keys, sums, made, rows.all())

    async def _coarse(self, day_us: int, pruned_us: int) -> None:
        """What may be read of a day's coarse roll-ups beside the sums of its quarters; latencies as far as there are quarters of them."""
        there = await settled_in(self._connection, day_us, day_us + DAY_US)
        for side in (SUMS, LATENCIES):
            for span_us in (HOUR_US, DAY_US):
                for at_us in range(day_us, day_us + DAY_US, span_us):
                    if there.has(span_us, at_us) and (side is SUMS or at_us >= pruned_us):
                        await self._span(side, span_us, at_us)

    async def _span(self, side: Side, span_us: int, at_us: int) -> None:
        made: list[Any] = []
        for cut in CUTS:
            if span_us in cut.spans_us and (side is SUMS or cut.hours):
                made += (await self._connection.execute(added(side, cut, span_us, at_us, at_us + span_us))).all()
        columns = [side.coarse.c[name] for name in (*side.keys, *side.values)]
        of_span = side.coarse.c.span_us == span_us, side.coarse.c.bucket_us == at_us
        found = select(*columns).where(side.coarse.c.cut.in_([cut.name for cut in CUTS]), *of_span)
        self._differ(side.coarse, side.keys, side.values, made, (await self._connection.execute(found)).all())

    def _differ(self, table: Table, keys: tuple[str, ...], sums: tuple[str, ...], made: Sequence[Any], found_rows: Sequence[Any]) -> None:
        width = len(keys)
        wanted = {tuple(row[:width]): tuple(row[width:]) for row in made}
        there = {tuple(row[:width]): tuple(row[width:]) for row in found_rows}
        nothing = (0,) * len(sums)
        for key in sorted(wanted.keys() | there.keys()):
            right, found = wanted.get(key, nothing), there.get(key, nothing)
            if right != found:
                told = ", ".join(f"{name} {b}, rows {a}" for name, a, b in zip(sums, right, found, strict=True) if a != b)
                self._found.add("roll-ups are the sums of rows", f"{table.name} {key}", told)

    async def orphans(self) -> None:
        """Attempts and adjustments of rows that are not there."""
        of_row = select(attempts.c.request_id, attempts.c.n, usage.c.id).join(usage, usage.c.id == attempts.c.request_id, isouter=True)
        after: Any = None
        while True:
            page = of_row if after is None else of_row.where(attempts.c.request_id > after)
            rows = (await self._connection.execute(page.order_by(attempts.c.request_id, attempts.c.n).limit(PAGE))).all()
            for row in rows:
                if row.id is None:
                    self._found.add("nothing points to what is not there", f"attempt {row.n} of {row.request_id}", "its row is missing")
            if len(rows) < PAGE:
                break
            after = rows[-1].request_id
        statement = select(adjustments, usage.c.id.label("row")).join(usage, usage.c.id == adjustments.c.usage_id, isouter=True)
        after = None
        while True:
            page = statement if after is None else statement.where(adjustments.c.id > after)
            rows = (await self._connection.execute(page.order_by(adjustments.c.id).limit(PAGE))).all()
            for row in rows:
                self._adjustment(row)
            if len(rows) < PAGE:
                break
            after = rows[-1].id

    def _adjustment(self, row: Any) -> None:
        where = f"adjustment {row.id} ({row.reason})"
        if row.usage_id is not None and row.row is None:
            self._found.add("nothing points to what is not there", where, f"row {row.usage_id} is missing")
        if row.window_id is not None:
            self._booked[row.window_id] = self._booked.get(row.window_id, 0) + row.delta
            if row.window_id not in self._windows:
                self._found.add("nothing points to what is not there", where, f"window {row.window_id} is missing")

    def sums(self) -> None:
        for number, window in sorted(self._windows.items()):
            where = f"window {number} of {window['scope_kind']} {window['scope_id']}"
            booked = self._booked.get(number, 0)
            if window["spent"] != booked:
                self._found.add("spent is what was charged and adjusted", where, f"spent {window['spent']}, charged and adjusted {booked}")
            leased = self._leased.get(number, 0)
            if window["leased"] != leased:
                self._found.add("leased is the sum of leases", where, f"leased {window['leased']}, leases {leased}")


def _covers(window: Mapping[Any, Any], record: UsageRecord) -> bool:
    scope = {"organisation": record.org_id, "team": record.team_id, "key": record.key_id}[window["scope_kind"]]
    ends = window["ends_at_us"]
    return (
        window["scope_id"] == scope
        and window["model"] in (None, record.route)
        and window["starts_at_us"] <= record.started_at_us
        and (ends is None or record.started_at_us < ends)
    )
