"""`tollway explain`: why a request went to the backend it went to, from its stored record, computed again."""

from __future__ import annotations

from uuid import UUID

from msgspec import MsgspecError
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.cli.database import fail, run
from gateway.db.engine import reading
from gateway.db.tables import decisions
from gateway.routing import choose, decision
from gateway.settings import Settings


def explain(request: str) -> None:
    """Why a request went to the backend it went to: every candidate, its predictions and cost, and whether computing again agrees.

    Parameters
    ----------
    request
        The x-tollway-request-id of an answer.
    """
    try:
        wanted = UUID(request)
    except ValueError:
        fail(f"'{request}' is no request id: it is the x-tollway-request-id of an answer")

    async def work(engine: AsyncEngine, _: Settings) -> bytes | None:
        async with reading(engine).connect() as connection:
            found = await connection.execute(select(decisions.c.record).where(decisions.c.request_id == wanted))
            return found.scalar_one_or_none()

    record = run(work)
    if record is None:
        fail(f"no decision of request {wanted} is stored: it appears a second after the answer, cached answers have none, old ones expire")
    try:
        made = decision.decode(bytes(record))
    except MsgspecError as error:
        fail(f"the record of request {wanted} is of another version of Tollway: {error}")
    print(decision.explain(made, choose.differences(made)))
