"""Rows and roll-ups: every attempt at its own backend, every request once, and the sum is the cost of the rows."""

from __future__ import annotations

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.money.ledger import (
    ATTEMPT_COLUMNS,
    BUCKET_US,
    ROLLUP_KEYS,
    ROLLUP_SUMS,
    USAGE_COLUMNS,
    Rollup,
    attempt_row,
    charges_of,
    clean,
    usage_row,
)
from gateway.money.records import UsageRecord
from providers.types import Usage
from tests.fixtures.money import end_of, record_of

NOW = 1_790_000_000_000_000
COSTS = st.none() | st.integers(0, 10**9)


def row(values: tuple[object, ...], names: tuple[str, ...]) -> dict[str, object]:
    assert len(values) == len(names)
    return dict(zip(names, values, strict=True))


def rolled(*records: UsageRecord) -> list[dict[str, object]]:
    rollup = Rollup()
    for record in records:
        rollup.add(record)
    return [row(values, (*ROLLUP_KEYS, *ROLLUP_SUMS)) for values in rollup.rows()]


def test_columns_and_values_stand_in_the_same_order() -> None:
    record = record_of(uuid4(), NOW, None, 7, charges=(3, 4))
    usage = row(usage_row(record, str, "me"), USAGE_COLUMNS)
    assert (usage["id"], usage["cost"], usage["charges"], usage["process_id"]) == (str(record.id), 7, "[3,4]", "me")
    assert (usage["input_tokens"], usage["output_tokens"], usage["reasoning_tokens"]) == (12, 20, 0)
    assert (usage["surface"], usage["status"], usage["streamed"], usage["estimated"]) == ("openai_chat", 200, False, False)
    attempt = row(attempt_row(record.attempts[0], str), ATTEMPT_COLUMNS)
    assert (attempt["request_id"], attempt["n"], attempt["cost"], attempt["worst"], attempt["duration_ms"]) == (
        str(record.id),
        1,
        7,
        7,
        200,
    )


def test_a_failover_is_one_request_and_two_attempts() -> None:
    request_id = uuid4()
    record = structs.replace(
        record_of(request_id, NOW, None, 30),
        attempts=(end_of(request_id, 10, n=1, outcome="failed", backend="a"), end_of(request_id, 20, n=2, backend="b")),
    )
    first, second = rolled(record)
    assert (first["backend"], first["outcome"], first["requests"], first["attempts"], first["cost"]) == ("a", "failed", 0, 1, 10)
    assert (second["backend"], second["outcome"], second["requests"], second["attempts"], second["cost"]) == ("b", "completed", 1, 1, 20)
    assert second["ttft_count"] == 1
    assert first["bucket_us"] == NOW - NOW % BUCKET_US


def test_a_cache_hit_counts_its_tokens_and_what_it_saved() -> None:
    hit = structs.replace(record_of(uuid4(), NOW, None, 0, "cached"), attempts=(), saved=55, usage=Usage(input=9, output=3))
    (only,) = rolled(hit)
    assert (only["requests"], only["attempts"], only["cost"], only["saved"]) == (1, 0, 0, 55)
    assert (only["input_tokens"], only["output_tokens"]) == (9, 3)


@given(st.lists(st.tuples(COSTS, st.lists(COSTS, max_size=3)), max_size=8))
def test_roll_ups_add_up_to_the_rows(drawn: list[tuple[int | None, list[int | None]]]) -> None:
    records = []
    for cost, parts in drawn:
        request_id = uuid4()
        ends = tuple(end_of(request_id, part, n=n, backend=f"b{n}") for n, part in enumerate(parts, 1))
        records.append(structs.replace(record_of(request_id, NOW, None, cost), attempts=ends))
    found = rolled(*records)
    assert sum(line["cost"] for line in found) == sum(record.cost or 0 for record in records)  # type: ignore[misc]
    assert sum(line["requests"] for line in found) == len(records)  # type: ignore[misc]
    assert sum(line["unpriced"] for line in found) == sum(record.cost is None for record in records)  # type: ignore[misc]
    assert sum(line["attempts"] for line in found) == sum(len(record.attempts) for record in records)  # type: ignore[misc]


def test_windows_are_charged_the_priced_rows() -> None:
    records = [record_of(uuid4(), NOW, None, cost, charges=charges) for cost, charges in ((5, (1, 2)), (7, (2,)), (None, (1,)))]
    assert charges_of(records) == {1: 5, 2: 12}


def test_foreign_text_is_cut_and_cleaned() -> None:
    assert clean("ok") == "ok"
    assert clean("a\0b") == "ab"
    assert len(clean("x" * 5000)) == 256
