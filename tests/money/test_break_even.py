"""What owned hardware came to and where a hosted backend would cost the same, against figures worked out by hand."""

from __future__ import annotations

from decimal import Decimal

import pytest
from msgspec import structs

from gateway.catalog import Backend, Price, Tier
from gateway.db.session import open_session
from gateway.errors import InvalidRequest
from gateway.money.break_even import Asked, Observed, document, line, owned, price_of
from gateway.money.hours import PRESENT, Span
from gateway.money.ledger import HOUR_US, WARM_UP
from gateway.money.presence import GRACE_US
from providers.types import Usage
from tests.conftest import Database
from tests.money.test_closing import CENT, HOUR, MINUTE, ON_SQLITE, close_due, present, share, write

USD = 1_000_000_000

# two hours at 0.60 USD: 1.20 owed, of which requests paid 0.30 for a million tokens
SEEN = Observed(
    backend="smol",
    hours=2,
    covered_us=2 * HOUR_US,
    owed=1_200_000_000,
    idle=800_000_000,
    warm_up=100_000_000,
    attempts=100,
    usage=Usage(input=600_000, cache_read=200_000, output=150_000, reasoning=50_000),
)


def price(usd_in: str, usd_out: str, **more: object) -> Price:
    return Price(id="p", input=int(Decimal(usd_in) * USD), output=int(Decimal(usd_out) * USD), **more)  # type: ignore[arg-type]


def hosted(name: str, of: Price) -> Backend:
    return Backend(name=name, vendor="openai", model="m", dialect="", price=of)


def test_average_busy_and_utilisation() -> None:
    found = line(SEEN, None, [])
    assert SEEN.shares == 300_000_000
    assert (found.average, found.busy, found.marginal) == (1_200_000_000, 300_000_000, 0)
    assert found.utilisation == Decimal("0.2500")


@pytest.mark.parametrize(
    ("of", "per_million", "at", "met"),
    [
        # 0.6 × 0.50 + 0.2 × 0.50 (no price of cached input) + 0.2 × 1.50 = 0.70; 0.30 / 0.70
        (price("0.50", "1.50"), 700_000_000, Decimal("0.4286"), False),
        # 0.6 × 2 + 0.2 × 0.20 + 0.2 × 6 = 2.44; 0.30 / 2.44
        (price("2", "6", cache_read=200_000_000), 2_440_000_000, Decimal("0.1230"), True),
        # 0.6 × 0.10 + 0.2 × 0.10 + 0.2 × 0.20 = 0.12: full use of ours costs more
        (price("0.10", "0.20"), 120_000_000, None, False),
        # 1.00 and 100 fees of a cent; 0.30 / 2
        (price("1", "1", per_request=CENT), 2_000_000_000, Decimal("0.1500"), True),
        # a single prompt of them is nowhere near a long-context tier
        (price("0.50", "1.50", tiers=(Tier(above=200_000, input=USD * 9, output=USD * 9),)), 700_000_000, Decimal("0.4286"), False),
        # the very price at which we are
        (price("1.20", "1.20"), 1_200_000_000, Decimal("0.2500"), True),
        (price("0.30", "0.30"), 300_000_000, Decimal("1.0000"), False),
        (price("0", "0"), 0, None, False),
    ],
    ids=["dearer", "much dearer", "cheaper", "a fee per request", "tiers", "as we are", "at full use", "free"],
)
def test_break_even(of: Price, per_million: int, at: Decimal | None, met: bool) -> None:
    (found,) = line(SEEN, None, [hosted("theirs", of)]).against
    assert (found.backend, found.per_million, found.utilisation, found.met) == ("theirs", per_million, at, met)


def test_at_break_even_both_cost_the_same() -> None:
    """Turned round: at that utilisation the same tokens come to the hosted price."""
    (found,) = line(SEEN, price("0.10", "0.20"), [hosted("theirs", price("0.50", "1.50"))]).against
    assert found.utilisation == Decimal("0.5172")  # 0.30 / (0.70 - 0.12)
    ours = Decimal("0.30") / found.utilisation + Decimal("0.12")
    assert abs(ours - Decimal("0.70")) < Decimal("0.0001")


def test_what_one_token_more_costs_is_never_won_back() -> None:
    marginal = price("0.50", "1.50")
    assert price_of(marginal, SEEN) == 700_000_000
    found = line(SEEN, marginal, [hosted("theirs", price("0.50", "1.50"))])
    assert found.marginal == 700_000_000
    assert [one.utilisation for one in found.against] == [None]


def test_without_tokens_there_is_no_price_of_one() -> None:
    found = line(Observed(backend="smol", hours=1, owed=5, idle=5), None, [hosted("a", price("1", "1"))])
    assert (found.average, found.busy, found.marginal, found.utilisation, found.against) == (None, None, None, Decimal("0.0000"), ())
    assert line(Observed(backend="smol", open_hours=1), None, []).utilisation is None


async def test_it_is_read_from_closed_hours(database: Database) -> None:
    session = open_session(database.engine)
    for hour in range(3):
        at = HOUR + hour * HOUR_US
        spans = [Span("", PRESENT, at, at + HOUR_US, 60 * CENT)]
        spans += [Span("", WARM_UP, at, at + 5 * MINUTE, 60 * CENT)] if hour == 0 else []
        await present(session, *spans)
        await write(session, *(share(at + n * MINUTE, 2 * CENT) for n in range(10)))
    await write(session, structs.replace(share(HOUR, 9 * USD), backend="b"))  # of another backend, but for its attempt
    await close_due(database, session, HOUR + 2 * HOUR_US + GRACE_US)
    await session.close()
    backends = {
        "smol": Backend(name="smol", vendor="local", model="m", dialect="", price=price("0", "0"), hourly_nanousd=60 * CENT),
        "mini": hosted("mini", price("1000", "2000")),
        "unpriced": Backend(name="unpriced", vendor="openai", model="m", dialect=""),
    }
    (found,) = await owned(database.engine, backends, Asked())
    seen = found.observed
    assert (seen.hours, seen.open_hours, seen.covered_us) == (2, 2, 2 * HOUR_US), "the last hour and the one that its end touches"
    assert seen.owed == 120 * CENT and seen.attempts == 21
    assert seen.usage == Usage(input=63, cache_read=84, output=105, reasoning=21)
    assert seen.warm_up == 0, "requests paid for more than the first hour"
    (only,) = await owned(database.engine, backends, Asked(since="2025-11-24T17:00:00Z", until="2025-11-24T18:00Z"))
    assert (only.observed.hours, only.observed.open_hours) == (1, 0)
    assert (only.observed.owed, only.observed.shares, only.observed.idle) == (60 * CENT, 20 * CENT, 40 * CENT)
    # 30 + 40 tokens of input at 1000 and 50 + 10 of output at 2000 USD per million are 0.19 USD, less than the shares of 0.20
    assert [(one.backend, one.utilisation) for one in only.against] == [("mini", None)]
    told = document([only])["backends"][0]
    assert (told["utilisation"], told["average_usd_per_million"]) == ("0.3333", "4615.384615385")
    assert await owned(database.engine, backends, Asked(until="2025-11-24")) == []


@ON_SQLITE
@pytest.mark.parametrize("text", ["yesterday", "2025-11-24T17:30:00Z"])
async def test_an_edge_that_is_no_hour_is_refused(database: Database, text: str) -> None:
    with pytest.raises(InvalidRequest, match="since"):
        await owned(database.engine, {}, Asked(since=text))
