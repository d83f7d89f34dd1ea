"""Grafana's dashboards and Prometheus' rules against the metrics they name; rules and a real page against Prometheus' own checker."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.metrics import METRICS
from gateway.numbers import Numbers, Read, exposition
from tests.test_compose import GRAFANA, PROMETHEUS, SERVICES
from tests.test_telemetry import COMPLETED, FAILED, Telemetry, settled

BOARDS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(GRAFANA.glob("*.json"))}
RULES = [rule for group in yaml.safe_load((PROMETHEUS / "alerts.yml").read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]
PROMTOOL = shutil.which("promtool") or ""
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="promtool is not here: apt-get install prometheus")
NAME = re.compile(r"(?<![:\w])((?:tollway|gen_ai)_\w+)")
MANY = 1000


def expressions() -> Iterator[tuple[str, str]]:
    for rule in RULES:
        yield rule.get("alert", rule.get("record")), rule["expr"]
    for name, board in BOARDS.items():
        for panel in board["panels"]:
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", target["expr"]
        for variable in board["templating"]["list"]:
            yield f"{name}: ${variable['name']}", variable["query"]["query"]


def series() -> dict[str, tuple[str, ...]]:
    """Every name that a scrape may show, with its labels."""
    found = {}
    for name, (kind, _help, labels) in METRICS.items():
        found |= (
            {f"{name}_bucket": (*labels, "le"), f"{name}_sum": labels, f"{name}_count": labels} if kind == "histogram" else {name: labels}
        )
    return found


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric with the labels in its braces."""
    for match in re.finditer(NAME.pattern + r"(\{[^}]*\})?", expression):
        if match[1] in LABELS:
            continue
        yield match[1], set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", match[2] or ""))


LABELS = {label for _kind, _help, labels in METRICS.values() for label in labels} | {"le", "job", "instance"}


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_every_metric_and_label_exists(title: str, expression: str) -> None:
    known = series()
    named: set[str] = set()
    for name, labels in selectors(expression):
        assert name in known, title
        assert labels <= {*known[name], "job", "instance"}, title
        named |= {*known[name], "job", "instance"}
    grouped = {label.strip() for part in re.findall(r"\bby \(([^)]*)\)", expression) for label in part.split(",")}
    if not re.search(r"\btollway:", expression):
        assert grouped <= named, title
    for by, inner in re.findall(r"by \(([^)]*)\) \((?:rate|increase)\((\w+)", expression):
        assert {label.strip() for label in by.split(",")} <= set(known[inner]), title
    variables = re.findall(r"label_values\((\w+), (\w+)\)", expression)
    assert all(label in known[name] for name, label in variables), title


def test_recorded_names_are_the_ones_that_are_used() -> None:
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    used = {name for _title, expression in expressions() for name in re.findall(r"tollway:\w+:\w+", expression)}
    assert used == recorded


def test_every_metric_is_on_a_dashboard_or_in_an_alert() -> None:
    text = " ".join(expression for _title, expression in expressions())
    assert [name for name in METRICS if not re.search(rf"\b{name}(_bucket)?\b", text)] == []


def test_a_legend_and_a_summary_name_labels_that_the_expression_leaves() -> None:
    told: list[tuple[str, str, set[str]]] = [
        (rule["alert"], rule["expr"], set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])))
        for rule in RULES
        if "alert" in rule
    ]
    for name, board in BOARDS.items():
        for panel in board["panels"]:
            told += [
                (f"{name}: {panel['title']}", one["expr"], set(re.findall(r"{{(\w+)}}", one["legendFormat"]))) for one in panel["targets"]
            ]
    for title, expression, labels in told:
        grouped = re.findall(r"\bby \(([^)]*)\)", expression)
        left = {label.strip() for part in grouped for label in part.split(",")} - {"le"}
        assert labels <= (left or {"instance", "job"}), title


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_panels_do_not_overlap_and_read_the_provisioned_source(name: str) -> None:
    board, cells = BOARDS[name], set[tuple[int, int]]()
    source = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text(encoding="utf-8"))["datasources"][0]
    for panel in board["panels"]:
        sources: list[Mapping[str, Any]] = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert {one["uid"] for one in sources} == {source["uid"]}
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not mine & cells, panel["title"]
        assert at["x"] + at["w"] <= 24
        cells |= mine
    titles = [panel["title"] for panel in board["panels"]]
    assert len(set(titles)) == len(titles)
    for variable in board["templating"]["list"]:
        assert variable["datasource"]["uid"] == source["uid"]
        assert f"${variable['name']}" in json.dumps(board["panels"])


def test_the_provisioning_finds_all_boards() -> None:
    provider = yaml.safe_load((GRAFANA / "provisioning/dashboards/tollway.yml").read_text(encoding="utf-8"))["providers"][0]
    assert f"./dashboards/grafana:{provider['options']['path']}:ro" in SERVICES["grafana"]["volumes"]
    assert {"overview", "spend", "backends", "engine", "gateway"} == set(BOARDS)
    uids = [board["uid"] for board in BOARDS.values()]
    assert len(set(uids)) == len(uids)


# ---- Prometheus' own checker
def promtool(*arguments: str, given: bytes = b"") -> str:
    """What it says; AssertionError unless it is content."""
    run = subprocess.run([PROMTOOL, *arguments], input=given, capture_output=True, timeout=60, check=False)
    said = (run.stdout + run.stderr).decode()
    assert run.returncode == 0, said
    return said


@needs_promtool
def test_the_rules_are_rules() -> None:
    promtool("check", "rules", str(PROMETHEUS / "alerts.yml"))


def page(folder: Path) -> bytes:
    """A scrape on which every metric has a sample."""
    one = Telemetry(folder, "0")
    x, record = settled(FAILED, COMPLETED)
    one.request(x, record)
    numbers = Numbers({}, {}, {}, {})
    numbers.counted_from(one.numbers)
    for name, (kind, _help, labels) in METRICS.items():
        values = tuple(f'v "{n}"\\\n' for n in range(len(labels)))
        if kind == "gauge" or (name.startswith("tollway_engine_") and kind == "counter"):
            numbers.gauges[name, *values] = 1.5
        elif kind == "counter":
            numbers.add(name, values, MANY)
        elif name.startswith("tollway_engine_"):
            numbers.read[name] = {values: Read((0.1, 1.0), (1, 2, 3), 4.0)}
        else:
            numbers.observe(name, values, 0.2)
    return exposition(numbers)


@needs_promtool
def test_prometheus_finds_nothing_to_say_about_the_page(tmp_path: Path) -> None:
    """check metrics lints names, types, units and help, besides reading it."""
    text = page(tmp_path)
    assert all(f"\n{name}" in text.decode() for name in METRICS if METRICS[name][0] != "histogram")
    assert promtool("check", "metrics", given=text).strip() == ""


def fires(name: str, series: Mapping[str, str], at: str, minutes: int = 1) -> dict[str, Any]:
    """A test of promtool: with these series the alert fires at that time."""
    return {
        "interval": f"{minutes}m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "alert_rule_test": [],
        "promql_expr_test": [{"expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) or vector(0)', "eval_time": at}],
    }


BUDGET = '{scope="team", name="growth", model="", per="month"}'
FAILING = {
    'tollway_requests_total{route="r", backend="a", outcome="failed"}': "0+10x600",
    'tollway_requests_total{route="r", backend="a", outcome="completed"}': "0+90x600",
}
HEALTHY = {
    'tollway_requests_total{route="r", backend="a", outcome="failed"}': "0+0x600",
    'tollway_requests_total{route="r", backend="a", outcome="completed"}': "0+100x600",
}
FIRING: list[tuple[str, dict[str, str], str]] = [
    ("SloBurnsFast", FAILING, "2h"),
    ("SloBurns", FAILING, "8h"),
    ("RequestsFail", FAILING, "1h"),
    ("BackendEjected", {'tollway_backend_set_aside{backend="a", reason="ejected"}': "1x30"}, "10m"),
    ("BackendFlaps", {'tollway_ejections_total{backend="a"}': "0+1x90"}, "80m"),
    ("RetriesRefused", {"tollway_retries_refused_total": "0+60x60"}, "30m"),
    ("JournalLags", {"tollway_journal_age_seconds": "0+60x60", "tollway_ledger_lag_seconds": "0+60x60"}, "30m"),
    ("BudgetSpent", {f"tollway_budget_spent_share{BUDGET}": "1x10"}, "5m"),
    ("BudgetBurns", {f"tollway_budget_spent_share{BUDGET}": "0.5x40", f"tollway_budget_window_share{BUDGET}": "0.2x40"}, "30m"),
]
QUIET: list[tuple[str, dict[str, str], str]] = [
    ("SloBurnsFast", HEALTHY, "2h"),
    ("SloBurns", HEALTHY, "8h"),
    ("SloBurnsFast", {name: values.replace("x600", "x20") for name, values in FAILING.items()}, "2h"),  # it stopped long ago
    ("BackendEjected", {'tollway_backend_set_aside{backend="a", reason="rate_limited"}': "1x30"}, "10m"),
    ("BudgetBurns", {f"tollway_budget_spent_share{BUDGET}": "0.5x40", f"tollway_budget_window_share{BUDGET}": "0.5x40"}, "30m"),
    ("JournalLags", {"tollway_journal_age_seconds": "0+60x60", "tollway_ledger_lag_seconds": "0x60"}, "30m"),  # one long request
]


@needs_promtool
def test_alerts_fire_when_they_should_and_stay_quiet_when_not(tmp_path: Path) -> None:
    tests = []
    for wanted, cases in ((1, FIRING), (0, QUIET)):
        for name, given, at in cases:
            one = fires(name, given, at)
            one["promql_expr_test"][0]["exp_samples"] = [{"value": wanted, "labels": "{}"}]
            tests.append(one)
    file = tmp_path / "cases.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(PROMETHEUS / "alerts.yml")], "evaluation_interval": "5m", "tests": tests}))
    promtool("test", "rules", str(file))
