# ruff: noqa: S608  (only names and words of our own are put into statements; values are always bound)
"""`sync`: the only transaction a process writes money with, guarded by a sequence number. Rows, attempts, roll-ups, windows, leases.

Written as generators of steps (db/session.py). Lock order everywhere: process row, usage, roll-ups (sorted), windows (by id), leases.
Knows no journal and no memory of a process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID, uuid5

from msgspec import Struct, structs

from gateway.db.session import Dialect, Do, Insert, Many, Rows, Transaction
from gateway.money import ledger, presence, settling
from gateway.money.latencies import COUNTS
from gateway.money.leases import Ask, Books, Line, plan
from gateway.money.records import UsageRecord

ALIVE_US = 10_000_000  # a heartbeat younger than this counts as another process that will answer a recall
WANTED_US = 2_000_000
RESOLVE = "resolve"
REBOOT = "unknown_after_reboot"
ASIDE, BACK = "quarantined", "quarantine_ended"
BACKFILL = "backfill"
_NAMES = UUID("6b0f2a57-3c5e-4c39-9a37-3d1e6a1f7d10")  # name space of adjustments that belong to no usage row


class Payload(Struct, frozen=True, kw_only=True):
    """One sync. seq: the number the process row must have. owner: False when an adopter writes in a dead process's name.

    fenced: the row is closed already: rows are written without the guard, leases are left alone.
    aside: rows that the database does not take; they stand in a file, and their budgets are charged by adjustments.
    """

    process: UUID
    seq: int
    rows: tuple[UsageRecord, ...] = ()
    asks: tuple[Ask, ...] = ()
    aside: tuple[UsageRecord, ...] = ()
    owner: bool = True
    fenced: bool = False
    beat: bool = False  # write although nothing changes: the heartbeat

    @property
    def writes(self) -> bool:
        return bool(self.rows or self.aside) or self.beat or any(ask.changes for ask in self.asks)


class Answer(Struct, frozen=True, kw_only=True):
    """now_us: the database's clock during the transaction. seq: the process row's number after it. processes: that live, ours included."""

    now_us: int
    seq: int
    processes: int
    lines: tuple[Line, ...]


class Closed(Exception):
    """The process row says closed: an operator or an adopter ended it. The owner is fenced."""


class Forgotten(Exception):
    """The database knows less than it once confirmed: it was restored or failed over. seq None: the row is missing."""

    def __init__(self, seq: int | None) -> None:
        super().__init__(f"sequence number in the database: {seq}")
        self.seq = seq


class Moved(Exception):
    """The sequence number is not the expected one: a late transaction of the dead owner, or another adopter. Read again."""


# ---- the process row
def register(sql: Dialect, process: UUID, host: str, boot: str, directory: str) -> Transaction[int]:
    """Add a process, live, with sequence number 0 (nothing where it is there). Returns the database's clock."""
    rows = yield Do(f"SELECT {sql.clock}")
    now = int(rows[0][0])
    yield Do(
        "INSERT INTO gateway_processes (id, host, boot_id, journal_dir, started_at_us, heartbeat_at_us, sync_seq, state)"
        " VALUES ($1, $2, $3, $4, $5, $5, 0, 'live') ON CONFLICT (id) DO NOTHING",
        (sql.uid(process), host, boot, directory, now),
    )
    return now


def process_state(sql: Dialect, process: UUID) -> Transaction[tuple[int, str] | None]:
    """(sync_seq, state) of a process; None when it never registered."""
    rows = yield Do("SELECT sync_seq, state FROM gateway_processes WHERE id = $1", (sql.uid(process),))
    return (int(rows[0][0]), str(rows[0][1])) if rows else None


def restore_process(sql: Dialect, process: UUID, seq: int) -> Transaction[None]:
    """After a database forgot commits: its row takes up our number again."""
    yield Do("UPDATE gateway_processes SET sync_seq = $2, heartbeat_at_us = " + sql.clock + " WHERE id = $1", (sql.uid(process), seq))


# ---- windows
def make_window(sql: Dialect, budget_id: int, starts_us: int, ends_us: int | None, *, known: int = 0) -> Transaction[int | None]:
    """The id of a budget's window, made when it is new; None when the budget is not there. known: the id it had before SQL forgot it.

    A budget created in mid-period starts with what its scope has spent since the period began, as one adjustment.
    """
    found = yield Do("SELECT id FROM budget_windows WHERE budget_id = $1 AND starts_at_us = $2", (budget_id, starts_us))
    if found:
        return int(found[0][0])
    budget = yield Do("SELECT scope_kind, scope_id, model FROM budgets WHERE id = $1", (budget_id,))
    if not budget:
        return None
    made: Rows = ()
    if known:
        made = yield Do(
            "INSERT INTO budget_windows (id, budget_id, starts_at_us, ends_at_us) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT DO NOTHING RETURNING id",
            (known, budget_id, starts_us, ends_us),
        )
        yield from _count_on(sql)
    if not made:
        made = yield Do(
            "INSERT INTO budget_windows (budget_id, starts_at_us, ends_at_us) VALUES ($1, $2, $3)"
            " ON CONFLICT (budget_id, starts_at_us) DO NOTHING RETURNING id",
            (budget_id, starts_us, ends_us),
        )
    if not made:
        made = yield Do("SELECT id FROM budget_windows WHERE budget_id = $1 AND starts_at_us = $2", (budget_id, starts_us))
        return int(made[0][0])
    window = int(made[0][0])
    spent = yield from _spent_before(budget[0], starts_us, ends_us)
    if spent:
        yield Do(
            "INSERT INTO adjustments (id, window_id, delta, reason, created_at_us) VALUES ($1, $2, $3, $4, " + sql.clock + ")",
            (sql.uid(uuid5(_NAMES, f"{BACKFILL}:{window}")), window, spent, BACKFILL),
        )
        yield Do("UPDATE budget_windows SET spent = spent + $2 WHERE id = $1", (window, spent))
    return window


def _count_on(sql: Dialect) -> Transaction[None]:
    """New windows are numbered after all there are; SQLite does so by itself."""
    if sql.name == "postgresql":
        yield Do("SELECT setval(pg_get_serial_sequence('budget_windows', 'id'), (SELECT max(id) FROM budget_windows))")


def _spent_before(budget: Sequence[Any], starts_us: int, ends_us: int | None) -> Transaction[int]:
    kind, scope_id, model = budget
    column = {"organisation": "org_id", "team": "team_id", "key": "key_id"}[kind]
    until = ends_us if ends_us is not None else 1 << 62
    rows = yield Do(
        f"SELECT CAST(coalesce(sum(cost), 0) AS BIGINT) FROM rollups WHERE bucket_us >= $1 AND bucket_us < $2 AND {column} = $3"
        + ("" if model is None else " AND route = $4"),
        (starts_us, until, scope_id) if model is None else (starts_us, until, scope_id, model),
    )
    return int(rows[0][0])


# ---- sync
def sync(sql: Dialect, payload: Payload) -> Transaction[Answer]:
    """Apply a payload once. Sent again after a doubt it finds that it was applied and only reads.

    Closed, Forgotten or Moved when the guard does not hold.
    """
    if not payload.writes and not payload.fenced:
        return (yield from _look(sql, payload))
    if payload.fenced:
        rows = yield Do(f"SELECT {sql.clock}")
        now = int(rows[0][0])
    else:
        rows = yield Do(
            f"UPDATE gateway_processes SET sync_seq = sync_seq + 1, heartbeat_at_us = {sql.clock}"
            " WHERE id = $1 AND sync_seq = $2 AND state = 'live' RETURNING heartbeat_at_us",
            (sql.uid(payload.process), payload.seq),
        )
        if not rows:
            yield from _guard_failed(sql, payload)
            return (yield from _look(sql, payload, payload.seq + 1))
        now = int(rows[0][0])
    charges, resolved = yield from write_rows(sql, payload.process, payload.rows, now)
    for record in payload.aside:
        for window in (yield from _booked_aside(sql, record, ASIDE, ledger.charged(record), now)):
            charges[window] = charges.get(window, 0) + ledger.charged(record)
    lines, processes = yield from _windows(sql, payload, now, charges, resolved)
    return Answer(now_us=now, seq=payload.seq + 1, processes=processes, lines=lines)


def _guard_failed(sql: Dialect, payload: Payload) -> Transaction[None]:
    """Returns when the payload had been applied before; else raises what it means."""
    own = yield from process_state(sql, payload.process)
    if not payload.owner:
        raise Moved(f"process {payload.process}: {own}")
    if own is None or own[0] < payload.seq:
        raise Forgotten(None if own is None else own[0])
    if own[1] != "live":
        raise Closed(f"process {payload.process} was closed by somebody else")
    if own[0] != payload.seq + 1:
        raise Moved(f"process {payload.process} is at {own[0]}, expected {payload.seq}")


def write_rows(
    sql: Dialect, process: UUID, records: Sequence[UsageRecord], now_us: int
) -> Transaction[tuple[dict[int, int], dict[int, int]]]:
    """Insert ledger rows with attempts and roll-ups; what is there already is left alone, but an unknown row is resolved.

    Returns per window the charges of the rows really inserted, and the differences of those resolved.
    """
    if not records:
        return {}, {}
    by_id = {record.id: record for record in sorted(records, key=lambda record: record.id.int)}
    inserted = yield from _insert_usage(sql, process, by_id)
    rollup = ledger.Rollup()
    for record in inserted:
        rollup.add(record)
    yield Insert(
        "attempts",
        ledger.ATTEMPT_COLUMNS,
        tuple(ledger.TYPES.get(name, "bigint") for name in ledger.ATTEMPT_COLUMNS),
        [ledger.attempt_row(end, sql.uid) for record in inserted for end in record.attempts],
        "ON CONFLICT (request_id, n) DO NOTHING",
    )
    resolved: dict[int, int] = {}
    if len(inserted) < len(by_id):
        known = {record.id for record in inserted}
        late = [record for record in by_id.values() if record.id not in known and record.outcome != "unknown"]
        resolved = yield from _resolve(sql, late, rollup, now_us)
    yield from write_rollup(sql, rollup, now_us)
    yield from presence.mark(presence.late(by_id.values(), now_us))
    return ledger.charges_of(inserted), resolved


def _insert_usage(sql: Dialect, process: UUID, by_id: dict[UUID, UsageRecord]) -> Transaction[list[UsageRecord]]:
    """The records that were new. On SQLite the one writer may look first; on Postgres the conflict decides."""
    writer = sql.uid(process)
    if sql.name == "sqlite":
        marks = ", ".join("?" * len(by_id))
        rows = yield Do(f"SELECT id FROM usage WHERE id IN ({marks})", tuple(uid.bytes for uid in by_id))
        there = {UUID(bytes=row[0]) for row in rows}
        new = [record for uid, record in by_id.items() if uid not in there]
    else:
        new = list(by_id.values())
    rows = yield Insert(
        "usage",
        ledger.USAGE_COLUMNS,
        tuple(ledger.TYPES.get(name, "bigint") for name in ledger.USAGE_COLUMNS),
        [ledger.usage_row(record, sql.uid, writer) for record in new],
        "" if sql.name == "sqlite" else "ON CONFLICT (id) DO NOTHING RETURNING id",
    )
    if sql.name == "sqlite" or len(rows) == len(new):
        return new
    inserted = {sql.uuid(row[0]) for row in rows}
    return [record for record in new if record.id in inserted]


def _resolve(sql: Dialect, late: Iterable[UsageRecord], rollup: ledger.Rollup, now_us: int) -> Transaction[dict[int, int]]:
    """The true end of a request that an adopter booked as unknown: an adjustment of the difference, once."""
    resolved: dict[int, int] = {}
    for record in late:
        booked = yield Do("SELECT cost FROM usage WHERE id = $1 AND outcome = 'unknown'", (sql.uid(record.id),))
        if not booked:
            continue
        delta = ledger.charged(record) - (booked[0][0] or 0)
        made = yield Do(
            "INSERT INTO adjustments (id, usage_id, delta, reason, created_at_us) VALUES ($1, $2, $3, $4, $5)"
            " ON CONFLICT (id) DO NOTHING RETURNING id",
            (sql.uid(uuid5(record.id, RESOLVE)), sql.uid(record.id), delta, RESOLVE, now_us),
        )
        if made:
            rollup.adjust(record, delta)
            for window in record.charges:
                resolved[window] = resolved.get(window, 0) + delta
    return resolved


def _booked_aside(sql: Dialect, record: UsageRecord, reason: str, delta: int, now_us: int) -> Transaction[list[int]]:
    """One adjustment in each window of a row that is not in the ledger; returns the windows where it is new."""
    made: list[int] = []
    for window in sorted(record.charges) if delta else ():
        rows = yield Do(
            "INSERT INTO adjustments (id, window_id, delta, reason, created_at_us) VALUES ($1, $2, $3, $4, $5)"
            " ON CONFLICT (id) DO NOTHING RETURNING id",
            (sql.uid(uuid5(record.id, f"{reason}:{window}")), window, delta, reason, now_us),
        )
        if rows:
            made.append(window)
    return made


def bring_back(sql: Dialect, process: UUID, record: UsageRecord) -> Transaction[None]:
    """A row that had been set aside into the ledger, in place of the adjustments that charged its budgets."""
    rows = yield Do(f"SELECT {sql.clock}")
    now = int(rows[0][0])
    charges, resolved = yield from write_rows(sql, process, (record,), now)
    ids = sorted(record.charges)
    if not ids:
        return
    names = {sql.uid(uuid5(record.id, f"{ASIDE}:{window}")): window for window in ids}
    charged = []
    for name, window in names.items():
        if (yield Do("SELECT 1 FROM adjustments WHERE id = $1", (name,))):
            charged.append(window)
    back = yield from _booked_aside(sql, structs.replace(record, charges=tuple(charged)), BACK, -ledger.charged(record), now)
    for window in ids:
        delta = charges.get(window, 0) + resolved.get(window, 0) - (ledger.charged(record) if window in back else 0)
        if delta:
            yield Do("UPDATE budget_windows SET spent = spent + $2 WHERE id = $1", (window, delta))


def write_rollup(sql: Dialect, rollup: ledger.Rollup, now_us: int) -> Transaction[None]:
    """Add the sums to what stands there. now_us: the database's clock in this transaction."""
    for table, keys, sums, rows in (
        ("rollups", ledger.ROLLUP_KEYS, ledger.ROLLUP_SUMS, rollup.rows()),
        ("latency_rollups", ledger.LATENCY_KEYS, COUNTS, rollup.latency_rows()),
    ):
        adding = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in sums)
        yield Insert(
            table,
            (*keys, *sums),
            tuple(ledger.ROLLUP_TYPES.get(name, "bigint") for name in (*keys, *sums)),
            rows,
            f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {adding}",
        )
    yield from settling.marks(sql, rollup.hours(), now_us)


def _windows(
    sql: Dialect, payload: Payload, now_us: int, charges: dict[int, int], resolved: dict[int, int]
) -> Transaction[tuple[tuple[Line, ...], int]]:
    """Charge, grant and take back; returns the lines of the windows that were asked about."""
    asks = {} if payload.fenced else {ask.window_id: ask for ask in payload.asks}
    ids = sorted(asks.keys() | charges.keys() | resolved.keys())
    if not ids:
        return (), (yield from _processes(now_us))
    rows = yield from _read_windows(sql, ids, now_us, lock=True)
    leases = yield from _read_leases(sql, payload.process, ids, now_us)
    lines: list[Line] = []
    updates: list[tuple[Any, ...]] = []
    amounts: list[tuple[Any, ...]] = []
    me = sql.uid(payload.process)
    nothing = Ask(window_id=0)
    for window, spent, leased, deleted, cap, wanted in rows:
        ask = asks.get(window, nothing)
        charged, adjusted = charges.get(window, 0), resolved.get(window, 0)
        own, idle_of_others = leases.get(window, (0, 0))
        if payload.fenced:
            updates.append((window, charged + adjusted, 0, None))
            continue
        want = 0 if deleted else ask.want
        grant = plan(Books(cap, spent + adjusted, leased, own, idle_of_others, charged), want, ask.ret, ask.force, ask.steps)
        if charged or adjusted or grant.delta or grant.starving:
            updates.append((window, charged + adjusted, grant.delta - charged, now_us if grant.starving else None))
        idle = 0 if ask.near else max(0, ask.free + grant.delta + ask.ret)
        amounts.append((me, window, grant.amount, idle))
        lines.append(
            Line(
                window_id=window,
                amount=grant.amount,
                room=grant.room,
                spent=spent + charged + adjusted,
                leased=leased + grant.delta - charged,
                cap=cap,
                idle_of_others=idle_of_others,
                wanted=bool(wanted),
                deleted=bool(deleted),
            )
        )
    yield from _write_windows(updates, amounts)
    return tuple(lines), (yield from _processes(now_us))


def _write_windows(updates: list[tuple[Any, ...]], amounts: list[tuple[Any, ...]]) -> Transaction[None]:
    if updates:
        yield Many(
            "UPDATE budget_windows SET spent = spent + $2, leased = leased + $3, wanted_at_us = coalesce($4, wanted_at_us) WHERE id = $1",
            updates,
        )
    kept = [row for row in amounts if row[2] != 0]
    empty = [row[:2] for row in amounts if row[2] == 0]
    if kept:
        yield Many(
            "INSERT INTO budget_leases (process_id, window_id, amount, idle) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT (process_id, window_id) DO UPDATE SET amount = excluded.amount, idle = excluded.idle",
            kept,
        )
    if empty:
        yield Many("DELETE FROM budget_leases WHERE process_id = $1 AND window_id = $2", empty)


def _read_windows(sql: Dialect, ids: Iterable[int], now_us: int, *, lock: bool) -> Transaction[Sequence[Sequence[Any]]]:
    """(id, spent, leased, deleted, cap, wanted) by id."""
    rows = yield Do(
        "SELECT w.id, w.spent, w.leased, b.deleted_at_us IS NOT NULL,"
        " CASE WHEN b.override_nanousd IS NOT NULL AND b.override_until_us > $2 THEN b.override_nanousd ELSE b.limit_nanousd END,"
        " coalesce(w.wanted_at_us > $3, false)"
        f" FROM budget_windows w JOIN budgets b ON b.id = w.budget_id WHERE {sql.among('w.id', 1)} ORDER BY w.id"
        + (f" {sql.for_update} w" if lock and sql.for_update else ""),
        (sql.several(ids), now_us, now_us - WANTED_US),
    )
    return rows


def _read_leases(sql: Dialect, process: UUID, ids: Iterable[int], now_us: int) -> Transaction[dict[int, tuple[int, int]]]:
    """Window id -> (own lease, idle money of other living processes)."""
    rows = yield Do(
        "SELECT l.window_id, CAST(sum(CASE WHEN l.process_id = $2 THEN l.amount ELSE 0 END) AS BIGINT),"
        " CAST(sum(CASE WHEN l.process_id <> $2 AND g.heartbeat_at_us > $3 THEN l.idle ELSE 0 END) AS BIGINT)"
        " FROM budget_leases l JOIN gateway_processes g ON g.id = l.process_id"
        f" WHERE {sql.among('l.window_id', 1)} GROUP BY l.window_id",
        (sql.several(ids), sql.uid(process), now_us - ALIVE_US),
    )
    return {int(row[0]): (int(row[1]), int(row[2])) for row in rows}


def _processes(now_us: int) -> Transaction[int]:
    rows = yield Do("SELECT count(*) FROM gateway_processes WHERE state = 'live' AND heartbeat_at_us > $1", (now_us - ALIVE_US,))
    return max(1, int(rows[0][0]))


def _look(sql: Dialect, payload: Payload, seq: int | None = None) -> Transaction[Answer]:
    """Only read: the amounts as SQL has them, and whether the process is still the one it was."""
    rows = yield Do(f"SELECT {sql.clock}")
    now = int(rows[0][0])
    if seq is None:
        own = yield from process_state(sql, payload.process)
        if own is None or own[0] < payload.seq:
            raise Forgotten(None if own is None else own[0])
        if own[1] != "live":
            raise Closed(f"process {payload.process} was closed by somebody else")
    ids = sorted(
        {ask.window_id for ask in payload.asks} | {window for record in (*payload.rows, *payload.aside) for window in record.charges}
    )
    lines: tuple[Line, ...] = ()
    if ids:
        windows = yield from _read_windows(sql, ids, now, lock=False)
        leases = yield from _read_leases(sql, payload.process, ids, now)
        lines = tuple(_line(row, leases) for row in windows)
    processes = yield from _processes(now)
    return Answer(now_us=now, seq=payload.seq if seq is None else seq, processes=processes, lines=lines)


def _line(row: Sequence[Any], leases: dict[int, tuple[int, int]]) -> Line:
    window, spent, leased, deleted, cap, wanted = row
    own, idle_of_others = leases.get(window, (0, 0))
    return Line(
        window_id=window,
        amount=own,
        room=cap - spent - leased,
        spent=spent,
        leased=leased,
        cap=cap,
        idle_of_others=idle_of_others,
        wanted=bool(wanted),
        deleted=bool(deleted),
    )


# ---- the end of a process
def close_process(sql: Dialect, process: UUID, seq: int, *, charge: str = "") -> Transaction[None]:
    """Give back every lease and mark the process closed: after its rows. Moved when the number is another or it is closed.

    charge: a reason; then the rest of each lease is booked as spent by an adjustment instead of given back.
    """
    rows = yield Do(
        "UPDATE gateway_processes SET sync_seq = sync_seq + 1, state = 'closed'"
        f" WHERE id = $1 AND sync_seq = $2 AND state = 'live' RETURNING {sql.clock}",
        (sql.uid(process), seq),
    )
    if not rows:
        raise Moved(f"process {process} is not at {seq}")
    now = int(rows[0][0])
    held = yield Do("SELECT window_id, amount FROM budget_leases WHERE process_id = $1 ORDER BY window_id", (sql.uid(process),))
    leases = [(int(row[0]), int(row[1])) for row in held]
    if leases:
        yield Do(
            f"SELECT w.id FROM budget_windows w WHERE {sql.among('w.id', 1)} ORDER BY w.id"
            + (f" {sql.for_update} w" if sql.for_update else ""),
            (sql.several(window for window, _ in leases),),
        )
    booked = [(window, amount) for window, amount in leases if charge and amount > 0]
    if booked:
        yield Many(
            "INSERT INTO adjustments (id, window_id, delta, reason, created_at_us) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING",
            [(sql.uid(uuid5(process, f"{charge}:{window}")), window, amount, charge, now) for window, amount in booked],
        )
        yield Many("UPDATE budget_windows SET spent = spent + $2 WHERE id = $1", booked)
    if leases:
        yield Many("UPDATE budget_windows SET leased = leased - $2 WHERE id = $1", leases)
    yield Do("DELETE FROM budget_leases WHERE process_id = $1", (sql.uid(process),))
