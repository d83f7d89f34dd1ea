"""What a worker's parts are read for, on the page that a scrape gets."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.app import Application
from gateway.catalog import Backend, Catalog
from gateway.metrics import METRICS
from gateway.money.shares import BudgetShare
from gateway.readings import gauges, totals
from gateway.settings import BackendSettings, PriceSettings, RouteSettings, Settings, Storage
from providers.errors import Unreachable
from providers.figures import NAMES, TIMES, TOLLWAY, Figures, Times, metric, read
from tests.fixtures.application import built
from tests.routing.conftest import make_features


@pytest.fixture
async def application(tmp_path: Path, sqlite_template: Path) -> AsyncIterator[Application]:
    backend = BackendSettings(name="a", vendor="scripted", model="m", price=PriceSettings(input="1", output="2"))
    settings = Settings(
        storage=Storage(state_dir=str(tmp_path)), backends=(backend,), routes=(RouteSettings(name="assistant", backends=("a",)),)
    )
    async with built(settings, sqlite_template) as (made, _):
        yield made


async def test_every_gauge_of_a_worker_is_in_the_table(application: Application) -> None:
    parts = application.parts
    parts.budget_shares.found = (BudgetShare(scope_kind="team", scope="alpha", model="", per="month", limit=10, spent=4, passed=0.5),)
    for name, *labels in gauges(parts):
        kind, _text, named = METRICS[name]
        assert kind == "gauge" and len(labels) == len(named), name
    for name, labels, count in totals(parts):
        kind, _text, named = METRICS[name]
        assert kind == "counter" and len(labels) == len(named) and count >= 0, name


async def test_a_page_can_be_read_and_every_name_of_it_is_documented(application: Application) -> None:
    page = application.parts.telemetry.exposition().decode()
    families = {family.name for family in text_string_to_metric_families(page)}
    assert families == {name.removesuffix("_total") for name in METRICS}


async def test_an_ejection_and_a_refused_retry_are_counted(application: Application) -> None:
    parts = application.parts
    state = parts.router.states(parts.catalog)["a"]
    for _ in range(3):
        call = state.started(0.0, make_features())
        call.failed(0.1, Unreachable("no"))
    while parts.router.retries.take(1000.0):
        pass
    found = {(name, labels): count for name, labels, count in totals(parts)}
    assert found["tollway_ejections_total", ("a",)] == 1
    assert found["tollway_retries_refused_total", ()] == 1


async def test_a_budget_is_shown_by_team(application: Application) -> None:
    parts = application.parts
    parts.budget_shares.found = (
        BudgetShare(
            scope_kind="team", scope='we "like" \\ quotes\n', model="", per="month", limit=10 * 10**9, spent=4 * 10**9, passed=None
        ),
    )
    families = {family.name: family for family in text_string_to_metric_families(parts.telemetry.exposition().decode())}
    (sample,) = families["tollway_budget_spent_share"].samples
    assert (sample.labels, sample.value) == ({"scope": "team", "name": 'we "like" \\ quotes\n', "model": "", "per": "month"}, 0.4)
    assert families["tollway_budget_window_share"].samples == []


async def test_an_engine_s_own_words_become_metrics(application: Application) -> None:
    own = Backend(name="own", vendor="vllm", model="m", dialect="openai_chat", own=True)
    parts = application.parts
    parts.catalog = Catalog(version="v", backends={"own": own}, routes={})
    state = parts.router.states(parts.catalog)["own"]
    told = {key: value for key, value in gauges(parts).items() if key[0].startswith("tollway_engine_")}
    assert told == {("tollway_engine_read", "own"): 0.0}
    now = time.monotonic()
    said = Figures(waiting=2, running=8, kv_share=0.5, steps=9, step=Times((0.1,), (8, 1), 0.9))
    state.engine.said(now, now + 600.0, said, (0, 0))
    told = {key: value for key, value in gauges(parts).items() if key[0].startswith("tollway_engine_")}
    assert told == {
        ("tollway_engine_read", "own"): 1.0,
        ("tollway_engine_waiting", "own"): 2.0,
        ("tollway_engine_running", "own"): 8.0,
        ("tollway_engine_kv_share", "own"): 0.5,
        ("tollway_engine_steps_total", "own"): 9.0,
    }
    page = parts.telemetry.exposition()
    assert 'tollway_engine_step_seconds_bucket{backend="own",le="0.1"} 8.0' in page.decode()
    assert read(page, TOLLWAY) == Figures(waiting=2, running=8, kv_share=0.5, steps=9), "a second Tollway reads what this one writes"


def test_every_figure_has_a_metric() -> None:
    engine = {name for name in METRICS if name.startswith("tollway_engine_")}
    assert {metric(name) for name in (*NAMES, *TIMES)} == engine - {"tollway_engine_read"}
