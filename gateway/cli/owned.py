"""`tollway owned`: what owned hardware came to, how busy it was, and how busy it must be to beat each hosted backend."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway import prices
from gateway.cli.database import run, table
from gateway.money import break_even
from gateway.money.break_even import Line
from gateway.money.pricing import usd
from gateway.settings import Settings


def owned(*, since: str = "", until: str = "", shape: Annotated[Literal["table", "json"], Parameter(name="--format")] = "table") -> None:
    """Closed hours of backends with `hourly_usd`. Money is in USD with nine decimals; an hour is closed a quarter of an hour after its end.

    Parameters
    ----------
    since
        A date or an instant on a whole hour, UTC. Without it: from the beginning.
    until
        The first instant that is not counted. Without it: to the last closed hour.
    shape
        table or json.
    """
    asked = break_even.Asked(since=since or None, until=until or None)

    async def work(engine: AsyncEngine, settings: Settings) -> list[Line]:
        return await break_even.owned(engine, await prices.backends(engine, settings), asked)

    found = run(work)
    if shape == "json":
        print(msgspec.json.format(msgspec.json.encode(break_even.document(found)), indent=2).decode())
    elif not found:
        print("no hour of owned hardware yet: give a backend `hourly_usd`")
    else:
        print(_hours(found))
        print()
        print(_tokens(found))


def _hours(found: Sequence[Line]) -> str:
    head = ("backend", "hours", "open", "owed_usd", "shares_usd", "idle_usd", "warm_up_usd", "utilisation")
    rows = [
        (
            *(one.observed.backend, one.observed.hours, one.observed.open_hours),
            *(usd(amount) for amount in (one.observed.owed, one.observed.shares, one.observed.idle, one.observed.warm_up)),
            _percent(one.utilisation),
        )
        for one in found
    ]
    return table(head, rows)


def _tokens(found: Sequence[Line]) -> str:
    """USD per million tokens: of each owned backend in all, while busy, and of one more; then of each hosted one, and where they meet."""
    rows: list[tuple[str, str, str, str]] = []
    for one in found:
        name = one.observed.backend
        if one.average is None:
            continue
        rows += [(name, kind, usd(rate), "") for kind, rate in (("average", one.average), ("busy", one.busy), ("marginal", one.marginal))]
        for other in one.against:
            met = "never" if other.utilisation is None else _percent(other.utilisation) + (" (met)" if other.met else "")
            rows.append((name, other.backend, usd(other.per_million), met))
    return table(("backend", "cost_of", "usd_per_million", "break_even_at"), rows)


def _percent(share: Decimal | None) -> str:
    return "-" if share is None else f"{share * 100:.2f}%"
