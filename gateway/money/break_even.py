"""What owned hardware came to: average, busy and marginal cost of a token, utilisation, and the utilisation at which a hosted backend's
price for the same mix of tokens would be met. Over closed hours alone, from the roll-ups.

Break-even: at full use the machine's tokens cost what the shares of busy time came to; at utilisation u they cost that divided by u. A
hosted backend is met where share cost ÷ u + marginal cost = its price, so at u = share cost ÷ (hosted price - marginal cost).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from msgspec import Struct, structs
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.catalog import Backend, Price
from gateway.db.columns import CLASSES
from gateway.db.engine import reading
from gateway.db.rollup_tables import rollups
from gateway.db.tables import owned_hours
from gateway.errors import InvalidRequest
from gateway.money.ledger import HOUR_US, IDLE, WARM_UP
from gateway.money.pricing import MILLION, cost, round_half_even, usd
from gateway.money.windows import read_instant
from providers.types import Usage

_PLACES = Decimal("0.0001")


class Observed(Struct, frozen=True, kw_only=True):
    """Closed hours of one backend. Money in nano-USD: owed = shares + idle + warm_up. usage: all tokens of its attempts.

    hours: that were closed, whole or in part; open_hours: that are not closed yet, of which nothing is in the other figures.
    """

    backend: str
    hours: int = 0
    open_hours: int = 0
    covered_us: int = 0
    owed: int = 0
    idle: int = 0
    warm_up: int = 0
    attempts: int = 0
    usage: Usage = Usage()

    @property
    def shares(self) -> int:
        return self.owed - self.idle - self.warm_up

    @property
    def tokens(self) -> int:
        return self.usage.prompt_tokens + self.usage.completion_tokens


class Against(Struct, frozen=True, kw_only=True):
    """A hosted backend for the same tokens. per_million: nano-USD. utilisation: where both cost the same; None = never, however busy.

    met: whether the owned one was as busy as that.
    """

    backend: str
    per_million: int
    utilisation: Decimal | None
    met: bool


class Line(Struct, frozen=True, kw_only=True):
    """One owned backend. Costs of a million tokens in nano-USD, None without tokens: average of all that was owed, busy of the shares,
    marginal by the backend's own token price. utilisation: shares of what was owed."""

    observed: Observed
    average: int | None
    busy: int | None
    marginal: int | None
    utilisation: Decimal | None
    against: tuple[Against, ...]


class Asked(Struct, frozen=True, kw_only=True):
    """since and until (not included): a date or an ISO instant, UTC unless it says otherwise, on a whole hour; None = open."""

    since: str | None = None
    until: str | None = None


async def owned(engine: AsyncEngine, backends: Mapping[str, Backend], asked: Asked) -> list[Line]:
    """A line for each backend that had hours in that time, by name. backends: of the catalog; its hosted ones are compared.

    InvalidRequest names what was asked wrongly.
    """
    observed = await _observe(engine, _edge_us("since", asked.since), _edge_us("until", asked.until))
    hosted = [one for one in backends.values() if one.hourly_nanousd is None and one.price is not None]
    return [line(one, _marginal(backends.get(one.backend)), hosted) for one in observed]


def _edge_us(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        at_us = read_instant(text)
    except ValueError as error:
        raise InvalidRequest(f"{name}: '{text[:80]}' is no date or time: write 2026-11-01 or 2026-11-01T12:00:00Z.", param=name) from error
    if at_us % HOUR_US:
        raise InvalidRequest(f"{name}: '{text}' does not lie on a whole hour, which is how owned hardware is booked.", param=name)
    return at_us


def line(observed: Observed, marginal: Price | None, hosted: Sequence[Backend]) -> Line:
    """The figures of what was observed. marginal: the backend's own token price, None = 0."""
    tokens = observed.tokens
    extra = price_of(marginal, observed)
    against = []
    for one in sorted(hosted, key=lambda one: one.name) if tokens else ():
        theirs = price_of(one.price, observed)
        at = None if theirs <= extra else Decimal(observed.shares) / (theirs - extra)
        against.append(
            Against(
                backend=one.name,
                per_million=_per_million(theirs, tokens),
                utilisation=None if at is None or at > 1 else at.quantize(_PLACES, ROUND_HALF_EVEN),
                met=at is not None and at <= 1 and observed.shares >= at * observed.owed,
            )
        )
    return Line(
        observed=observed,
        average=_per_million(observed.owed, tokens) if tokens else None,
        busy=_per_million(observed.shares, tokens) if tokens else None,
        marginal=_per_million(extra, tokens) if tokens else None,
        utilisation=(Decimal(observed.shares) / observed.owed).quantize(_PLACES, ROUND_HALF_EVEN) if observed.owed else None,
        against=tuple(against),
    )


def price_of(price: Price | None, observed: Observed) -> int:
    """Nano-USD of the observed tokens at a token price: every attempt pays its fee, and no prompt reaches a long-context tier."""
    if price is None:
        return 0
    plain = structs.replace(price, tiers=(), per_request=0)
    return (cost(plain, observed.usage) or 0) + price.per_request * observed.attempts


def _marginal(backend: Backend | None) -> Price | None:
    return None if backend is None or backend.hourly_nanousd is None else backend.price


def _per_million(nanousd: int, tokens: int) -> int:
    return round_half_even(nanousd * MILLION, tokens) if nanousd >= 0 else -round_half_even(-nanousd * MILLION, tokens)


async def _observe(engine: AsyncEngine, since_us: int | None, until_us: int | None) -> list[Observed]:
    hours = owned_hours.c
    begins = rollups.c.bucket_us - rollups.c.bucket_us % HOUR_US
    edges = [hours.hour_us >= since_us] if since_us is not None else []
    edges += [hours.hour_us < until_us] if until_us is not None else []
    of_hours = select(
        hours.backend,
        func.count(hours.owed).label("hours"),
        (func.count() - func.count(hours.owed)).label("open_hours"),
        func.sum(hours.covered_us).label("covered_us"),
        func.sum(hours.owed).label("owed"),
    )
    sums = select(
        rollups.c.backend, rollups.c.outcome, *(func.sum(rollups.c[name]).label(name) for name in ("attempts", "cost", *CLASSES))
    ).join(owned_hours, (hours.backend == rollups.c.backend) & (hours.hour_us == begins))
    async with reading(engine).connect() as connection:
        found = (await connection.execute(of_hours.where(*edges).group_by(hours.backend).order_by(hours.backend))).all()
        spent = sums.where(hours.owed.is_not(None), *edges).group_by(rollups.c.backend, rollups.c.outcome)
        rows = (await connection.execute(spent)).mappings().all()
    return [_observed(row, [one for one in rows if one["backend"] == row.backend]) for row in found]


def _observed(hours: Any, rows: Sequence[Mapping[Any, Any]]) -> Observed:
    booked = {row["outcome"]: int(row["cost"]) for row in rows}
    tokens: dict[str, Any] = {name.removesuffix("_tokens"): sum(int(row[name]) for row in rows) for name in CLASSES}
    return Observed(
        backend=hours.backend,
        hours=hours.hours,
        open_hours=int(hours.open_hours),
        covered_us=int(hours.covered_us or 0),
        owed=int(hours.owed or 0),
        idle=booked.get(IDLE, 0),
        warm_up=booked.get(WARM_UP, 0),
        attempts=sum(int(row["attempts"]) for row in rows),
        usage=Usage(**tokens),
    )


def document(lines: Sequence[Line]) -> dict[str, Any]:
    """For JSON: money in USD with nine decimals, shares of one with four."""
    return {"backends": [_object(one) for one in lines]}


def _object(one: Line) -> dict[str, Any]:
    seen = one.observed
    return {
        "backend": seen.backend,
        "hours": seen.hours,
        "open_hours": seen.open_hours,
        "machine_hours": str((Decimal(seen.covered_us) / HOUR_US).quantize(_PLACES, ROUND_HALF_EVEN)),
        "owed_usd": usd(seen.owed),
        "shares_usd": usd(seen.shares),
        "idle_usd": usd(seen.idle),
        "warm_up_usd": usd(seen.warm_up),
        "attempts": seen.attempts,
        "input_tokens": seen.usage.prompt_tokens,
        "output_tokens": seen.usage.completion_tokens,
        "average_usd_per_million": _usd(one.average),
        "busy_usd_per_million": _usd(one.busy),
        "marginal_usd_per_million": _usd(one.marginal),
        "utilisation": None if one.utilisation is None else str(one.utilisation),
        "break_even": [
            {
                "backend": other.backend,
                "usd_per_million": usd(other.per_million),
                "utilisation": None if other.utilisation is None else str(other.utilisation),
                "met": other.met,
            }
            for other in one.against
        ],
    }


def _usd(nanousd: int | None) -> str | None:
    return None if nanousd is None else usd(nanousd)
