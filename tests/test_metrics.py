"""The table of metrics against the conventions of Prometheus and of OpenTelemetry."""

from __future__ import annotations

from gateway.gen_ai import DURATION_S, FIRST_TOKEN_S, PER_TOKEN_S, TOKENS
from gateway.metrics import BOUNDS, COMBINED, METRICS

UNITS = ("_seconds", "_bytes", "_nanousd", "_rows", "_share", "_tokens")


def test_metrics_follow_the_conventions_of_prometheus() -> None:
    for name, (kind, text, labels) in METRICS.items():
        assert name.startswith(("tollway_", "gen_ai_")), name
        assert (kind == "counter") == name.endswith("_total"), name
        assert kind in ("counter", "gauge", "histogram"), name
        assert text.endswith("."), name
        assert len(set(labels)) == len(labels)
        assert not {"key", "id", "request", "le", "quantile"} & set(labels), f"{name}: a label without bound, or one of Prometheus' own"


def test_people_are_named_by_budgets_alone_and_those_are_few() -> None:
    assert {name for name, (_kind, _text, labels) in METRICS.items() if {"team", "scope", "name"} & set(labels)} == {
        "tollway_budget_limit_nanousd",
        "tollway_budget_spent_nanousd",
        "tollway_budget_spent_share",
        "tollway_budget_window_share",
        "tollway_budget_alerts_total",
    }


def test_bounds_ascend_and_belong_to_histograms() -> None:
    own = {name for name, (kind, _text, _labels) in METRICS.items() if kind == "histogram" and not name.startswith("tollway_engine_")}
    assert set(BOUNDS) == own
    for bounds in BOUNDS.values():
        assert list(bounds) == sorted(set(bounds))


def test_bounds_are_those_that_the_conventions_give() -> None:
    """gen-ai-metrics.md of the conventions, v1.41."""
    assert tuple(round(0.01 * 2**n, 2) for n in range(14)) == DURATION_S
    assert tuple(4**n for n in range(14)) == TOKENS
    assert (FIRST_TOKEN_S[0], FIRST_TOKEN_S[-1], len(FIRST_TOKEN_S)) == (0.001, 10.0, 16)
    assert (PER_TOKEN_S[0], PER_TOKEN_S[-1], len(PER_TOKEN_S)) == (0.01, 2.5, 13)


def test_a_rule_of_combining_is_for_something_that_is_read() -> None:
    for name in COMBINED:
        assert name in METRICS
        assert METRICS[name][0] != "histogram" or name.startswith("tollway_engine_"), name
