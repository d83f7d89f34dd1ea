from __future__ import annotations

from collections.abc import Callable

from gateway.routing.choose import Knobs, assess, choose
from gateway.routing.engine_load import EngineLoad, LastHour
from gateway.routing.features import Features
from gateway.routing.state import BackendState
from providers.figures import Figures

Make = Callable[..., BackendState]
MakeFeatures = Callable[..., Features]


def test_what_is_not_mine_is_others_as_long_as_it_is_fresh() -> None:
    load = EngineLoad()
    assert load.others(0.0) == (0, 0) and load.problem
    load.said(10.0, 20.0, Figures(waiting=3, running=5, prefill_tokens=9000), (1000, 2))
    assert load.others(19.9) == (8000, 6) and not load.problem
    assert load.fresh(19.9) is load.figures
    assert load.others(20.0) == (0, 0) and load.fresh(20.0) is None
    load.said(30.0, 40.0, Figures(running=1), (5000, 4))
    assert load.others(31.0) == (0, 0), "an engine that does not yet know of all mine owes nobody anything"


def test_a_failed_reading_leaves_the_last_one_until_it_is_old() -> None:
    load = EngineLoad()
    load.said(0.0, 10.0, Figures(running=4), (0, 0))
    load.failed("HTTP 500")
    assert load.problem == "HTTP 500" and load.others(9.0) == (0, 4)


def test_full_is_a_full_cache_that_somebody_waits_for() -> None:
    load = EngineLoad()
    load.said(0.0, 10.0, Figures(waiting=0, running=8, kv_share=1.0), (0, 0))
    assert not load.full(1.0)
    load.said(0.0, 10.0, Figures(waiting=1, running=8, kv_share=0.97), (0, 0))
    assert load.full(1.0) and not load.full(11.0)


def test_the_last_hour_is_what_totals_grew_by() -> None:
    growth = EngineLoad().growth
    assert growth.lately(0.0) is None
    growth.told(0.0, Figures(preemptions=5, prompt_tokens=1000, prefix_hit_tokens=100))
    growth.told(30.0, Figures(preemptions=6, prompt_tokens=1100, prefix_hit_tokens=150))
    assert growth.lately(30.0) is None, "half a minute is no rate"
    growth.told(90.0, Figures(preemptions=6, prompt_tokens=1200, prefix_hit_tokens=250))
    told = growth.lately(90.0)
    assert told == LastHour(over_s=90.0, preemptions=1, prefix_hits=0.75)
    growth.told(120.0, Figures(preemptions=2, prompt_tokens=100, prefix_hit_tokens=0))
    told = growth.lately(120.0)
    assert told is not None and (told.preemptions, told.prefix_hits) == (3, 0.5), "it was started anew and has done so much since"


def test_what_is_over_an_hour_ago_counts_no_more() -> None:
    growth = EngineLoad().growth
    for minute in range(200):
        growth.told(60.0 * minute, Figures(preemptions=minute))
    told = growth.lately(60.0 * 199)
    assert told == LastHour(over_s=3600.0, preemptions=60, prefix_hits=None)
    growth.told(60.0 * 400, Figures(preemptions=250))
    assert growth.lately(60.0 * 400) is None, "nothing was read for hours"
    silent = EngineLoad().growth
    silent.told(0.0, Figures())
    silent.told(60.0, Figures(prompt_tokens=5))
    silent.told(120.0, Figures(prompt_tokens=9))
    assert silent.lately(120.0) == LastHour(over_s=120.0, preemptions=None, prefix_hits=None)


def busy(state: BackendState, figures: Figures, until: float = 100.0) -> BackendState:
    state.engine.said(0.0, until, figures, (state.outstanding, state.in_flight))
    return state


def test_load_of_other_clients_is_predicted_with(state: Make, features: MakeFeatures) -> None:
    """Taught by its own requests, with others' load the same engine is later."""
    engine = state("engine", vendor="vllm", own=True)
    for i in range(200):
        others = i % 10
        busy(engine, Figures(running=others, prefill_tokens=1000 * others), i + 100.0)
        call = engine.started(float(i), features(input_tokens=100))
        call.first_token(i + 0.1 + 0.1 * others)
        call.ended(i + 0.9 + 0.1 * others, 50)
    busy(engine, Figures(), 1000.0)
    idle = assess(features(input_tokens=100), engine, 201.0)
    busy(engine, Figures(running=8, prefill_tokens=8000), 1000.0)
    loaded = assess(features(input_tokens=100), engine, 201.0)
    assert (idle.ahead, idle.in_flight, loaded.ahead, loaded.in_flight) == (0, 0, 8000, 8)
    assert loaded.ttft95_us > 2 * idle.ttft95_us


def test_among_replicas_the_one_that_others_load_is_left_alone(state: Make, features: MakeFeatures) -> None:
    a, b = state("a", vendor="vllm", own=True), state("b", vendor="vllm", own=True)
    busy(a, Figures(waiting=2, running=8))
    for draw in (0.0, 0.5, 0.99):
        assert choose(features(), [a, b], 1.0, draw, Knobs())[0][0].name == "b"
    assert {choose(features(), [a, b], 200.0, draw, Knobs())[0][0].name for draw in (0.0, 0.99)} == {"a", "b"}, (
        "old figures count for nothing"
    )


def test_low_priority_yields_where_a_cache_is_full(state: Make, features: MakeFeatures) -> None:
    full, other = busy(state("full", vendor="vllm", own=True), Figures(waiting=4, running=8, kv_share=0.99)), state("other")
    assert [assess(features(priority=p), full, 1.0).reason for p in (-1, 0, 1)] == ["yields", "", ""]
    assert choose(features(priority=-1), [full, other], 1.0, 0.5, Knobs())[0][0].name == "other"


def test_what_a_hosted_backend_cannot_say_changes_nothing(state: Make, features: MakeFeatures) -> None:
    hosted = state()
    hosted.started(0.0, features())
    seen = assess(features(), hosted, 1.0)
    assert (seen.ahead, seen.in_flight) == (0, 1)
