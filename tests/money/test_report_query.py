"""Time is cut into pieces that tile it, each of one label and as coarse as can be."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event

from gateway.errors import InvalidRequest
from gateway.money import report_query, reports
from gateway.money.ledger import BUCKET_US, DAY_US, HOUR_US
from gateway.money.report_query import cover
from gateway.money.settling import settle
from gateway.money.windows import to_us
from tests.conftest import Database
from tests.fixtures.ledger import record, write

SPANS = (DAY_US, HOUR_US, BUCKET_US)
YEAR = to_us(datetime(2026, 1, 1, tzinfo=UTC))
ZONES = ["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia"]


@given(
    st.integers(0, 365 * 96),
    st.integers(0, 40 * 96),
    st.sampled_from(ZONES),
    st.sampled_from(["hour", "day", "week", "month"]),
    st.sampled_from([SPANS, SPANS[1:], SPANS[2:]]),
)
def test_pieces_tile_time_and_never_cross_a_cut(first: int, count: int, timezone: str, name: str, spans: tuple[int, ...]) -> None:
    since, until = YEAR + first * BUCKET_US, YEAR + (first + count) * BUCKET_US
    label = reports._label(name, ZoneInfo(timezone))
    labels, pieces = cover(since, until, label, spans)
    every = sorted((one.start_us, one.stop_us, one.label, span) for span, some in pieces.items() for one in some)
    assert [one[0] for one in every] + [until] == [since] + [one[1] for one in every]
    for start, stop, number, span in every:
        assert start % span == 0 and stop % span == 0
        assert {label(at) for at in range(start, stop, BUCKET_US)} == {labels[number]}
    assert all(piece.stop_us > piece.start_us for some in pieces.values() for piece in some)


def test_the_coarsest_is_used() -> None:
    label = reports._label("month", ZoneInfo("Europe/Berlin"))
    since, until = (to_us(datetime(2026, month, 1, tzinfo=ZoneInfo("Europe/Berlin"))) for month in (11, 12))
    labels, pieces = cover(since, until, label, SPANS)
    assert labels == ["2026-11"]
    counts = {span: sum((one.stop_us - one.start_us) // span for one in some) for span, some in pieces.items()}
    assert counts == {DAY_US: 29, HOUR_US: 24, BUCKET_US: 0}
    _, nepal = cover(since + 900_000_000, until, reports._label("day", ZoneInfo("Asia/Kathmandu")), SPANS)
    assert sum((one.stop_us - one.start_us) // BUCKET_US for one in nepal[BUCKET_US]) <= 4 * 31


def test_few_quarters_are_asked_for_their_label() -> None:
    """Of years that are not settled too: one row of a clock that is wrong by decades must not stop the worker."""
    asked: list[int] = []
    days = reports._label("day", ZoneInfo("Asia/Kathmandu"))

    def label(at_us: int) -> str:
        asked.append(at_us)
        return days(at_us)

    labels, pieces = cover(YEAR, YEAR + 365 * DAY_US, label, SPANS, lambda span_us, at_us: False)
    assert len(labels) == len(pieces[BUCKET_US]) == 366 and len(asked) < 20 * 366
    asked.clear()
    every = cover(YEAR - 50 * 365 * DAY_US, YEAR, lambda at_us: str(asked.append(at_us)), SPANS, lambda span_us, at_us: span_us == HOUR_US)
    assert {span: len(some) for span, some in every[1].items()} == {DAY_US: 0, HOUR_US: 1, BUCKET_US: 0} and len(asked) == 2


def test_too_many_stretches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_query, "LABELS_MAX", 24)
    label = reports._label("hour", ZoneInfo("UTC"))
    assert len(cover(YEAR, YEAR + DAY_US, label, SPANS)[0]) == 24
    with pytest.raises(InvalidRequest, match="more than 24 stretches"):
        cover(YEAR, YEAR + DAY_US + HOUR_US, label, SPANS)


async def test_of_midnights_at_the_half_hour_no_more_is_read_than_those(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between them lie settled hours, of which the quarters would be many: Postgres is told each quarter, not from when to when."""
    at = [YEAR + n * DAY_US + hour * HOUR_US for n in range(6) for hour in (7, 18)]
    await write(database.engine, [record(one, [("b", "completed", 10**place)]) for place, one in enumerate(at)])
    await settle(database.engine)
    asked = reports.Asked(by=("day",), timezone="Asia/Kathmandu")
    told = await reports.spend(database.engine, asked)
    assert [line.cost for line in told.lines] == [11 * 100**n for n in range(6)]
    monkeypatch.setattr(report_query, "RANGES_MAX", 4)
    said: list[str] = []
    event.listen(database.engine.sync_engine, "before_cursor_execute", lambda *given: said.append(given[2]))
    assert await reports.spend(database.engine, asked) == told
    if database.name == "postgresql":
        quarters = [one for one in said if "FROM rollups" in one and "sum(" in one]
        assert quarters and all("rollups.bucket_us = any" in one for one in quarters)
