"""Time is cut into pieces that tile it, each of one label and as coarse as can be."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidRequest
from gateway.money import report_query, reports
from gateway.money.ledger import BUCKET_US, DAY_US, HOUR_US
from gateway.money.report_query import cover
from gateway.money.windows import to_us

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


def test_too_many_stretches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_query, "LABELS_MAX", 24)
    label = reports._label("hour", ZoneInfo("UTC"))
    assert len(cover(YEAR, YEAR + DAY_US, label, SPANS)[0]) == 24
    with pytest.raises(InvalidRequest, match="more than 24 stretches"):
        cover(YEAR, YEAR + DAY_US + HOUR_US, label, SPANS)
