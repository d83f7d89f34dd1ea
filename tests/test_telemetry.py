"""Metrics that add up over workers and can be read by Prometheus; a log that keeps secrets to itself."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry import LATENCY_BOUNDS_S, LOG_FIELDS, MAX_SERIES, METRICS, Line, Sink, Telemetry, redact
from providers.signers import conceal

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
    one.gauges = lambda: {"tollway_in_flight": 3.0}
    assert scraped(one) == {("tollway_in_flight", ()): 3.0}


def test_a_gauge_may_have_labels_and_the_first_a_colon(tmp_path: Path) -> None:
    one, name = Telemetry(tmp_path, "0"), "tollway_backend_set_aside"
    one.gauges = lambda: {f"{name}:eu:gpt:ejected": 1.0, "tollway_backend_ready:eu:gpt": 0.0}
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


def test_metrics_follow_the_conventions_of_prometheus() -> None:
    for name, (kind, text, labels) in METRICS.items():
        assert name.startswith("tollway_")
        assert (kind == "counter") == name.endswith("_total"), name
        assert kind in ("counter", "gauge", "histogram"), name
        assert text.endswith("."), name
        assert not {"key", "team", "id"} & set(labels), f"{name}: a label without bound"
    assert list(LATENCY_BOUNDS_S) == sorted(set(LATENCY_BOUNDS_S))


def test_the_access_line_has_the_fields_that_are_named() -> None:
    assert {field.name for field in msgspec.structs.fields(Line)} == set(LOG_FIELDS)


def test_a_key_leaves_its_public_part_alone() -> None:
    text = redact('{"authorization": "Bearer tw-AAAABBBBCCCC-0123456789abcdefghijABCDEFGHIJ0123456789abc"}')
    assert text == '{"authorization": "Bearer tw-AAAABBBBCCCC-***"}'


def test_a_credential_of_a_provider_is_masked_wherever_it_stands() -> None:
    conceal("sk-telemetry-test-0123456789")
    assert redact("Traceback: header sk-telemetry-test-0123456789 refused") == "Traceback: header *** refused"


def test_the_sink_writes_whole_lines_when_told_or_full() -> None:
    stream = io.StringIO()
    sink = Sink(stream)
    sink.write("one\n")
    assert stream.getvalue() == ""
    sink.flush()
    assert stream.getvalue() == "one\n"
    sink.write("x" * (Sink.MAX_BUFFER + 1))
    assert len(stream.getvalue()) == 4 + Sink.MAX_BUFFER + 1


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
        "tollway_ready": 1.0,
        "tollway_in_flight": 3.0,
        "tollway_ledger_lag_seconds": 2.0,
        "tollway_clock_offset_seconds": -4.0,
        "tollway_engine_waiting:smol": 3.0,
    }
    two.gauges = lambda: {
        "tollway_ready": 0.0,
        "tollway_in_flight": 4.0,
        "tollway_ledger_lag_seconds": 1.0,
        "tollway_clock_offset_seconds": 3.0,
        "tollway_engine_waiting:smol": 3.0,
    }
    two.tick()
    text = one.exposition().decode()
    assert "tollway_ready 0.0" in text and "tollway_in_flight 7.0" in text
    assert "tollway_ledger_lag_seconds 2.0" in text and "tollway_clock_offset_seconds -4.0" in text
    assert 'tollway_engine_waiting{backend="smol"} 3.0' in text, "two workers read one engine"


def test_labels_are_bounded(tmp_path: Path) -> None:
    telemetry = Telemetry(tmp_path, "0")
    for n in range(MAX_SERIES + 10):
        telemetry.refusal(f"code-{n}")
    counted = telemetry.numbers.counters["tollway_refusals_total"]
    assert len(counted) == MAX_SERIES + 1 and counted[("other",)] == 10
