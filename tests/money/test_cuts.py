"""Which cut answers what, and that a cut's rows are the quarters' sums with the names it keeps and no others."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from gateway.money.cuts import CUTS, KEYS, NUMBERS, SUMS, TEXTS, added, smallest
from gateway.money.ledger import DAY_US, HOUR_US
from gateway.money.windows import to_us
from tests.conftest import Database
from tests.fixtures.ledger import mixed, write

START = to_us(datetime(2026, 11, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("names", "cut", "hourly"),
    [
        ((), "all", "all"),
        (("outcome", "org_id"), "all", "all"),
        (("team_id",), "team", "team"),
        (("model", "outcome"), "place", "place"),
        (("route", "backend", "vendor"), "place", "place"),
        (("key_id",), "who", None),
        (("tag", "team_id"), "who", None),
        (("team_id", "model"), "both", None),
        (("key_id", "model"), None, None),
        (("tag", "route"), None, None),
    ],
)
def test_the_smallest_that_has_all_names_answers(names: tuple[str, ...], cut: str | None, hourly: str | None) -> None:
    for hours, wanted in ((False, cut), (True, hourly)):
        found = smallest(names, hours=hours)
        assert (None if found is None else found.name) == wanted


def test_names_are_apart_and_hours_have_latencies() -> None:
    assert len({cut.name for cut in CUTS}) == len(CUTS)
    for cut in CUTS:
        assert set(cut.keeps) <= {*NUMBERS, *TEXTS}
        assert cut.spans_us == ((DAY_US, HOUR_US) if cut.hours else (DAY_US,))


async def test_a_cut_keeps_its_names_and_adds_up_the_rest(database: Database) -> None:
    records = mixed(120, START, START + 3 * HOUR_US)
    await write(database.engine, records)
    for cut in CUTS:
        async with database.engine.connect() as connection:
            rows = (await connection.execute(added(SUMS, cut, HOUR_US, START, START + 2 * HOUR_US))).mappings().all()
        assert all((row["cut"], row["span_us"]) == (cut.name, HOUR_US) and row["bucket_us"] in (START, START + HOUR_US) for row in rows)
        assert len({tuple(row[name] for name in KEYS) for row in rows}) == len(rows)
        for name in (*NUMBERS, *TEXTS):
            blank = 0 if name in NUMBERS else ""
            assert name in cut.keeps or all(row[name] == blank for row in rows), (cut.name, name)
        asked = Counter[tuple[object, ...]]()
        for one in records:
            if one.started_at_us < START + 2 * HOUR_US:
                asked[one.started_at_us // HOUR_US * HOUR_US, one.outcome, *(getattr(one, name) for name in cut.keeps)] += 1
        found = {(row["bucket_us"], row["outcome"], *(row[name] for name in cut.keeps)): row["requests"] for row in rows if row["requests"]}
        assert found == dict(asked), cut.name
