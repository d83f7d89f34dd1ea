"""Gateway processes as the database knows them, and an operator's word about one that is lost. Knows no journal.

A process that ends gives back what it holds; a killed one is adopted through its journal. Where the journal is lost, its leases stay held
until somebody says here what became of the money.
"""

from __future__ import annotations

from uuid import UUID

from msgspec import Struct
from sqlalchemy import case, func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.db.engine import clock_us, reading
from gateway.db.session import open_session
from gateway.db.tables import budget_leases, gateway_processes
from gateway.errors import InvalidRequest, NotFound
from gateway.money.sync import Moved, close_process, process_state

LOST_S = 60.0  # without a heartbeat for so long a process may be called lost
LISTED_MAX = 10_000
OPERATOR = "operator"


class Process(Struct, frozen=True, kw_only=True):
    """held: nano-USD of its leases. silent_s: since its heartbeat."""

    id: UUID
    host: str
    journal_dir: str
    state: str
    started_at_us: int
    silent_s: float
    held: int
    windows: int

    @property
    def lost(self) -> bool:
        return self.state == "live" and self.silent_s > LOST_S


async def list_processes(engine: AsyncEngine, closed: bool = False) -> list[Process]:
    """Live ones, those that hold most first; with `closed` the ended ones too."""
    p, lease = gateway_processes.c, budget_leases.c
    held = func.coalesce(func.sum(lease.amount), 0)
    statement = (
        select(p.id, p.host, p.journal_dir, p.state, p.started_at_us, p.heartbeat_at_us, held.label("held"), func.count(lease.window_id))
        .join(budget_leases, lease.process_id == p.id, isouter=True)
        .group_by(p.id)
        .order_by(case((p.state == "live", 0), else_=1), held.desc(), p.started_at_us)
        .limit(LISTED_MAX)
    )
    if not closed:
        statement = statement.where(p.state == "live")
    async with reading(engine).connect() as connection:
        now_us = (await connection.execute(select(clock_us(engine.dialect.name)))).scalar_one()
        return [
            Process(
                id=r.id,
                host=r.host,
                journal_dir=r.journal_dir,
                state=r.state,
                started_at_us=r.started_at_us,
                silent_s=max(0, now_us - r.heartbeat_at_us) / 1_000_000,
                held=int(r.held),
                windows=int(r[7]),
            )
            for r in await connection.execute(statement)
        ]


async def close_lost(engine: AsyncEngine, process: UUID, *, charge: bool) -> Process:
    """Close a process that will not come back. charge: book what it holds as spent, else give it back. Returns what it was.

    InvalidRequest while it shows signs of life: giving back the money of a living process is the one way past a budget.
    """
    session = open_session(engine)
    try:
        state = await session.run(process_state(session.dialect, process), reads=True)  # before the heartbeat: what it writes later is seen
        found = next((one for one in await list_processes(engine, closed=True) if one.id == process), None)
        if state is None or found is None:
            raise NotFound(f"There is no process {process}: `tollway processes list` shows them.", param="id")
        if found.state != "live":
            raise InvalidRequest(f"Process {process} is closed already.", param="id")
        if not found.lost:
            told = f"Process {process} was heard of {found.silent_s:.0f} s ago: stop it, and it gives back what it holds."
            raise InvalidRequest(told, param="id")
        await session.run(close_process(session.dialect, process, state[0], charge=OPERATOR if charge else ""))
    except Moved as error:
        raise InvalidRequest(f"Process {process} is alive: it wrote just now.", param="id") from error
    finally:
        await session.close()
    return found
