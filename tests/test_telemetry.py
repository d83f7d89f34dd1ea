"""Metrics that add up over workers, living or gone, and can be read by Prometheus."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.auth import Principal
from gateway.catalog import Catalog, Route
from gateway.exchange import Exchange
from gateway.money.records import AttemptEnd, UsageRecord
from gateway.numbers import Numbers, Read
from gateway.routing.features import Features
from gateway.telemetry import PRESENT_S, Telemetry
from providers.types import Request, Usage

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(telemetry: Telemetry) -> Series:
    """What Prometheus would read: (sample, labels) -> value."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(telemetry.exposition().decode())
        for sample in family.samples
    }


def test_counters_of_all_workers_add_up(tmp_path: Path) -> None:
    first, second = Telemetry(tmp_path, "0"), Telemetry(tmp_path, "1")
    first.refusal("invalid_api_key")
    second.refusal("invalid_api_key")
    second.refusal("invalid_json")
    second.tick()
    expected = {
        ("tollway_refusals_total", (("code", "invalid_api_key"),)): 2.0,
        ("tollway_refusals_total", (("code", "invalid_json"),)): 1.0,
    }
    assert scraped(first) == expected
    first.tick()
    assert scraped(second) == expected


def test_a_worker_does_not_count_its_own_file_twice(tmp_path: Path) -> None:
    one = Telemetry(tmp_path, "0")
    one.refusal("overloaded")
    one.tick()
    assert scraped(one) == {("tollway_refusals_total", (("code", "overloaded"),)): 1.0}


def test_gauges_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    one = Telemetry(tmp_path, "0")
    one.gauges = lambda: {("tollway_in_flight",): 3.0}
    assert scraped(one) == {("tollway_in_flight", ()): 3.0}


def test_a_gauge_may_have_labels_with_any_character(tmp_path: Path) -> None:
    one, name = Telemetry(tmp_path, "0"), "tollway_backend_set_aside"
    one.gauges = lambda: {(name, "eu:gpt", "ejected"): 1.0, ("tollway_backend_ready", "eu:gpt"): 0.0}
    assert scraped(one) == {
        (name, (("backend", "eu:gpt"), ("reason", "ejected"))): 1.0,
        ("tollway_backend_ready", (("backend", "eu:gpt"),)): 0.0,
    }


def test_a_histogram_is_cumulative_and_bounds_are_inclusive(tmp_path: Path) -> None:
    one = Telemetry(tmp_path, "0")
    name = "tollway_request_duration_seconds"
    for seconds in (0.01, 0.02, 400.0):
        one.numbers.observe(name, ("r", "b"), seconds)
    found = scraped(one)
    labels = (("backend", "b"), ("route", "r"))

    def bucket(bound: str) -> float:
        return found[f"{name}_bucket", tuple(sorted((*labels, ("le", bound))))]

    assert [bucket("0.01"), bucket("0.025"), bucket("300.0"), bucket("+Inf")] == [1.0, 2.0, 2.0, 3.0]
    assert found[f"{name}_count", labels] == 3.0
    assert found[f"{name}_sum", labels] == pytest.approx(400.03)


def test_histograms_of_workers_add_up(tmp_path: Path) -> None:
    first, second = Telemetry(tmp_path, "0"), Telemetry(tmp_path, "1")
    for worker in (first, second):
        worker.numbers.observe("tollway_time_to_first_token_seconds", ("r", "b"), 0.2)
    second.tick()
    found = scraped(first)
    assert found["tollway_time_to_first_token_seconds_count", (("backend", "b"), ("route", "r"))] == 2.0


def test_a_fault_is_counted_by_its_kind(tmp_path: Path) -> None:
    one = Telemetry(tmp_path, "0")
    one.fault("somewhere", ZeroDivisionError("no"))
    assert scraped(one) == {("tollway_faults_total", (("kind", "ZeroDivisionError"),)): 1.0}


def test_a_replaced_worker_carries_on_counting(tmp_path: Path) -> None:
    first = Telemetry(tmp_path, "0")
    first.numbers.add("tollway_refusals_total", ("x",), 5)
    first.tick()
    second = Telemetry(tmp_path, "0")
    second.refusal("x")
    assert b'tollway_refusals_total{code="x"} 6.0' in second.exposition()
    (tmp_path / "worker-1.msgpack").write_bytes(b"\xc1 no numbers")
    assert Telemetry(tmp_path, "1").numbers.counters == {}


def test_each_gauge_is_combined_in_its_own_way(tmp_path: Path) -> None:
    one, two = Telemetry(tmp_path, "0"), Telemetry(tmp_path, "1")
    one.gauges = lambda: {
        ("tollway_ready",): 1.0,
        ("tollway_in_flight",): 3.0,
        ("tollway_ledger_lag_seconds",): 2.0,
        ("tollway_clock_offset_seconds",): -4.0,
        ("tollway_engine_waiting", "smol"): 3.0,
    }
    two.gauges = lambda: {
        ("tollway_ready",): 0.0,
        ("tollway_in_flight",): 4.0,
        ("tollway_ledger_lag_seconds",): 1.0,
        ("tollway_clock_offset_seconds",): 3.0,
        ("tollway_engine_waiting", "smol"): 3.0,
    }
    two.tick()
    text = one.exposition().decode()
    assert "tollway_ready 0.0" in text and "tollway_in_flight 7.0" in text
    assert "tollway_ledger_lag_seconds 2.0" in text and "tollway_clock_offset_seconds -4.0" in text
    assert 'tollway_engine_waiting{backend="smol"} 3.0' in text, "two workers read one engine"


REQUEST = UUID(int=7)
CATALOG = Catalog(version="1", backends={}, routes={"assistant": Route(name="assistant", backends=())})
COMPLETED = AttemptEnd(
    request_id=REQUEST, n=2, backend="eu", vendor="azure_openai", model="gpt-x", price_id="p", outcome="completed", cost=500, worst=400,
    usage=Usage(input=900, cache_read=100, output=21), ttft_ms=300, duration_ms=2300,
)  # fmt: skip
FAILED = AttemptEnd(
    request_id=REQUEST, n=1, backend="us", vendor="groq", model="llama", price_id="p", outcome="failed", cost=0, worst=400,
    usage=Usage(), error="upstream_unavailable", status=503, duration_ms=10,
)  # fmt: skip


def settled(*ends: AttemptEnd, outcome: str = "completed", **more: object) -> tuple[Exchange, UsageRecord]:
    """A request to the route `assistant` that took 2.5 s, 0.5 s of them to its first token."""
    features = Features(route="assistant", dialect="openai_chat", input_tokens=1, input_tokens_upper=1, expected_output_tokens=1)
    who = Principal(org_id=1, team_id=1, key_id=1, team="growth", key_public="AAAABBBBCCCC")
    x = Exchange(REQUEST, who, Request(dialect="openai_chat", fields={}, model="assistant", stream=True), CATALOG, features)
    last = ends[-1] if ends else None
    values = {"streamed": True, "ttft_ms": 500, "duration_ms": 2500, **more}
    record = UsageRecord(
        id=REQUEST, started_at_us=0, ended_at_us=2_500_000, team_id=1, key_id=1, org_id=1, route="assistant", charges=(), attempts=ends,
        backend=last.backend if last else "", vendor=last.vendor if last else "", model=last.model if last else "", price_id="p",
        outcome=outcome, cost=sum(end.cost or 0 for end in ends), usage=last.usage if last else Usage(), **values,  # type: ignore[arg-type]
    )  # fmt: skip
    return x, record


def of(found: Series, name: str, **labels: str) -> float | None:
    return found.get((name, tuple(sorted(labels.items()))))


def test_a_request_that_failed_over_is_counted_by_its_end_and_by_each_call(tmp_path: Path) -> None:
    one = Telemetry(tmp_path, "0")
    for _ in range(2):
        one.request(*settled(FAILED, COMPLETED))
    found = scraped(one)
    assert of(found, "tollway_requests_total", route="assistant", backend="eu", outcome="completed") == 2.0
    assert of(found, "tollway_cost_nanousd_total", route="assistant", backend="eu") == 1000.0
    assert of(found, "tollway_tokens_total", route="assistant", backend="eu", **{"class": "cache_read"}) == 200.0
    assert of(found, "tollway_attempts_total", backend="us", outcome="failed", error="upstream_unavailable") == 2.0
    assert of(found, "tollway_attempts_total", backend="eu", outcome="completed", error="") == 2.0
    assert of(found, "tollway_over_reserved_nanousd_total", backend="eu") == 200.0
    call = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "azure.ai.openai", "gen_ai_request_model": "gpt-x"}
    assert of(found, "gen_ai_client_token_usage_sum", **call, gen_ai_token_type="input") == 2 * 1000.0
    assert of(found, "gen_ai_client_token_usage_sum", **call, gen_ai_token_type="output") == 2 * 21.0
    assert of(found, "gen_ai_client_operation_duration_seconds_sum", **call, error_type="") == pytest.approx(4.6)
    failed = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "groq", "gen_ai_request_model": "llama"}
    assert of(found, "gen_ai_client_operation_duration_seconds_count", **failed, error_type="upstream_unavailable") == 2.0
    assert of(found, "gen_ai_client_token_usage_count", **failed, gen_ai_token_type="input") in (None, 0.0)


def test_the_server_s_times_are_told_as_the_conventions_say(tmp_path: Path) -> None:
    one = Telemetry(tmp_path, "0")
    one.request(*settled(COMPLETED))
    found = scraped(one)
    answer = {
        "gen_ai_operation_name": "chat",
        "gen_ai_provider_name": "azure.ai.openai",
        "gen_ai_request_model": "assistant",
        "gen_ai_response_model": "gpt-x",
    }
    assert of(found, "gen_ai_server_request_duration_seconds_sum", **answer, error_type="") == 2.5
    assert of(found, "gen_ai_server_time_to_first_token_seconds_sum", **answer) == 0.5
    pace = of(found, "gen_ai_server_time_per_output_token_seconds_sum", **answer)
    assert pace == pytest.approx((2.5 - 0.5) / 20), "the rest of the time over the tokens after the first"


@pytest.mark.parametrize("more", [{"streamed": False}, {"outcome": "cancelled", "status": 499}, {"ttft_ms": None}])
def test_first_tokens_and_paces_are_those_of_answered_streams(tmp_path: Path, more: dict[str, object]) -> None:
    one = Telemetry(tmp_path, "0")
    one.request(*settled(COMPLETED, **more))  # type: ignore[arg-type]
    assert not any(name.startswith("gen_ai_server_time") for name, _labels in scraped(one))


def test_an_answer_from_the_cache_is_ours(tmp_path: Path) -> None:
    one = Telemetry(tmp_path, "0")
    x, record = settled(outcome="cached", saved=70)
    x.cache_status = "hit"
    one.request(x, record)
    found = scraped(one)
    assert of(found, "tollway_saved_nanousd_total", route="assistant") == 70.0
    assert of(found, "tollway_cache_total", result="hit") == 1.0
    counted = {labels for name, labels in found if name == "gen_ai_server_request_duration_seconds_count"}
    assert [dict(labels)["gen_ai_provider_name"] for labels in counted] == ["tollway"]
    assert not any(name == "tollway_tokens_total" for name, _labels in found), "nothing was generated"


def test_a_total_that_a_part_keeps_goes_on_when_the_part_is_made_anew(tmp_path: Path) -> None:
    one, count = Telemetry(tmp_path, "0"), 5
    one.totals = lambda: [("tollway_ejections_total", ("a",), count)]
    one.tick()
    count = 7
    assert of(scraped(one), "tollway_ejections_total", backend="a") == 7.0
    count = 2
    assert of(scraped(one), "tollway_ejections_total", backend="a") == 9.0
    one.tick()
    again = Telemetry(tmp_path, "0")
    assert of(scraped(again), "tollway_ejections_total", backend="a") == 9.0


def test_of_a_worker_that_is_gone_its_counts_remain_and_not_its_gauges(tmp_path: Path) -> None:
    one, gone = Telemetry(tmp_path, "0"), Telemetry(tmp_path, "1")
    gone.gauges = lambda: {("tollway_in_flight",): 3.0}
    gone.refusal("overloaded")
    gone.tick()
    assert of(scraped(one), "tollway_in_flight") == 3.0
    left = msgspec.msgpack.decode(gone.file.read_bytes(), type=Numbers)
    left.at -= PRESENT_S + 1.0
    gone.file.write_bytes(msgspec.msgpack.encode(left))
    found = scraped(one)
    assert of(found, "tollway_in_flight") is None
    assert of(found, "tollway_refusals_total", code="overloaded") == 1.0


def test_what_another_version_left_does_not_spoil_a_scrape(tmp_path: Path) -> None:
    (tmp_path / "worker-1.msgpack").write_bytes(msgspec.msgpack.encode({"gauges": {"tollway_in_flight": 1.0}}))
    one = Telemetry(tmp_path, "0")
    one.refusal("x")
    assert of(scraped(one), "tollway_refusals_total", code="x") == 1.0


def test_times_of_an_engine_that_two_workers_read_are_not_added_up(tmp_path: Path) -> None:
    one, two = Telemetry(tmp_path, "0"), Telemetry(tmp_path, "1")
    name = "tollway_engine_step_seconds"
    one.histograms = lambda: {name: {("smol",): Read((0.1, 0.5), (3, 1, 0), 0.6)}}
    two.histograms = lambda: {name: {("smol",): Read((0.1, 0.5), (4, 1, 1), 1.6)}}
    two.tick()
    found = scraped(one)
    assert [of(found, f"{name}_bucket", backend="smol", le=le) for le in ("0.1", "0.5", "+Inf")] == [4.0, 5.0, 6.0]
    assert of(found, f"{name}_sum", backend="smol") == 1.6
