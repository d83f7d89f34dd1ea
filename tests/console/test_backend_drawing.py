"""Drawings of backends: places on one scale, strips whose height says how bad it was, squares of a cache, states in words."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gateway.console import backend_drawing as drawing
from gateway.routing.engine_load import LastHour
from gateway.routing.router import EngineView
from gateway.views.backends import BackendRow, EventView, FirstToken, OwnedView, Slot, WorkerView
from providers.figures import Figures
from tests.test_backend_watch import LEFT

FIRST = FirstToken(predicted_ms=500.0, seen_ms=600.0, samples=9, inside=0.9)
NONE = FirstToken(predicted_ms=None, seen_ms=None, samples=0, inside=None)
NOW_US = 1_800_000_000_000_000


def slot(**shares: float) -> Slot:
    return Slot(**({"at": 0, "predicted_ms": None, "seen_ms": None, "attempts": 0, "waits": 0.0, "ejected": 0.0, "drained": 0.0} | shares))  # type: ignore[arg-type]


def row(state: str, ready_in_s: float = 0.0, workers: int = 1, against: int = 1, **more: object) -> BackendRow:
    beliefs = tuple(
        WorkerView(worker=str(n), state=state if n < against else "ready", ready_in_s=ready_in_s, in_flight=0, ttft95_ms=1.0)
        for n in range(workers)
    )
    fields = {
        "backend": "a",
        "state": state,
        "drained": state == "drained",
        "ready_in_s": ready_in_s,
        "in_flight": 0,
        "waiting": 0,
        "samples": 0,
        "ttft95_ms": 1.0,
        "tpot95_ms": 1.0,
        "failure_odds": 0.0,
        "left": LEFT,
        "engine": None,
        "source": "file",
        "vendor": "v",
        "model": "m",
        "labels": {},
        "routes": (),
        "parallel": None,
        "objective_ms": None,
        "workers": beliefs,
        "drain": None,
        "requests_per_min": 0.0,
        "output_tokens_per_s": 2914.4,
        "first_token": FIRST,
        "attempts": 0,
        "failed": 0,
        "errors": {},
        "usd_per_million": None,
        "unpriced": 0,
        "up": None,
        "events": (),
        "hourly_usd": None,
        "owned": None,
    }
    return BackendRow(**(fields | more))  # type: ignore[arg-type]


def test_a_dumbbell_lies_on_the_page_s_one_scale() -> None:
    assert drawing.scale_ms([(FIRST, 1500.0), (NONE, None)]) == 2000.0 and drawing.scale_ms([]) == 2000.0
    bell = drawing.dumbbell(FIRST, 1500.0, 2000.0)
    assert (bell.predicted, bell.seen, bell.objective, bell.over) == (25.0, 30.0, 75.0, True)
    assert bell.label == "Predicted 500 ms, seen 600 ms, objective 1.50 s"
    assert not drawing.dumbbell(replace(FIRST, seen_ms=570.0), None, 2000.0).over, "up to 15 % over is as predicted"
    none = drawing.dumbbell(NONE, None, 2000.0)
    assert (none.predicted, none.seen, none.over) == (None, None, False)


def test_a_strip_shows_what_was_short_and_what_was_worse_is_taller() -> None:
    slots = [slot(), slot(waits=0.5), slot(ejected=0.01), slot(drained=1.0)]
    line, waited, ejected, drained = drawing.strip(slots)
    assert (line.kind, line.x, line.width) == ("up", 0.0, 100.0)
    assert (waited.kind, waited.x, waited.width) == ("wt", 25.0, 12.5)
    assert (ejected.kind, ejected.x, ejected.width) == ("dn", 50.0, 0.5) and ejected.height > waited.height > drained.height
    assert drawing.up(slots) == pytest.approx((1 + 0.5 + 0.99 + 0) / 4)
    unwatched = Slot(at=0, predicted_ms=None, seen_ms=None, attempts=0, waits=None, ejected=None, drained=None)
    assert drawing.up([unwatched]) is None and drawing.strip([unwatched]) == ()
    lines = [(one.x, one.width) for one in drawing.strip([unwatched, slot(), slot(), unwatched, slot()])]
    assert lines == [(20.0, 40.0), (80.0, 20.0)], "nothing is said of when nobody was there"
    assert (drawing.scale_words(250.0), drawing.scale_words(2000.0)) == ("250 ms", "2 s")


def test_blocks_of_a_cache_are_squares() -> None:
    drawn = drawing.blocks(Figures(kv_blocks_used=96, kv_blocks_free=160))
    assert drawn is not None and drawn.told == "96 of 256 in use"
    assert [one.kind for one in drawn.squares].count("u") == 60 and len(drawn.squares) == 160
    assert (drawn.shared, drawn.label) == (None, drawn.told), "an engine that says nothing of shared ones is not said to share none"
    shared = drawing.blocks(Figures(kv_blocks_used=3870, kv_blocks_free=1250, kv_blocks_shared=1790))
    assert shared is not None and (shared.told, shared.shared) == ("3,870 of 5,120 in use", 1790)
    assert shared.label == "3,870 of 5,120 in use, 1,790 of them shared"
    kinds = [one.kind for one in shared.squares]
    assert kinds == ["s"] * 56 + ["u"] * 65 + ["e"] * 39, "one square for each 32 blocks, the shared ones first"
    none = drawing.blocks(Figures(kv_blocks_used=0, kv_blocks_free=5, kv_blocks_shared=0))
    assert none is not None and {one.kind for one in none.squares} == {"e"} and none.shared == 0
    share = drawing.blocks(Figures(kv_share=0.001))
    assert share is not None and [one.kind for one in share.squares].count("u") == 1, "a little is not nothing"
    assert drawing.blocks(Figures(waiting=3)) is None


def test_an_engine_s_card_says_what_the_engine_said_and_no_more() -> None:
    hour = LastHour(over_s=3600.0, preemptions=2, prefix_hits=0.46)
    seen = Figures(running=41, waiting=3, batch=40, prompt_tokens=100, prefix_hit_tokens=90, preemptions=7)
    assert drawing.engine("vllm", EngineView(problem="", age_s=1.0, figures=None)) is None
    card = drawing.engine("vllm", EngineView(problem="", age_s=1.0, figures=seen, lately=hour))
    assert card is not None and dict(card.stats) == {
        "Running": "41",
        "Waiting": "3",
        "Batch": "40",
        "Prefix hits": "46\u00a0%",
        "Preempted": "2 / h",
    }
    assert card.blocks is None and card.device == (("GPU", "not told"),)
    short = EngineView(problem="", age_s=1.0, figures=seen, lately=replace(hour, over_s=720.0, prefix_hits=None))
    card = drawing.engine("vllm", short)
    assert card is not None and (dict(card.stats)["Preempted"], dict(card.stats)["Prefix hits"]) == ("2 in 12 min", "90\u00a0%")
    card = drawing.engine("vllm", EngineView(problem="", age_s=1.0, figures=seen))
    assert card is not None and dict(card.stats)["Preempted"] == "7 in all"
    silent = drawing.engine("local", EngineView(problem="", age_s=1.0, figures=Figures()))
    assert silent is not None and {words for _, words in silent.stats} == {"not told"}
    assert silent.device == (("GPU", "none, CPU alone"),)
    gpu = Figures(device_memory_used_bytes=71_400_000_000, device_memory_bytes=80_000_000_000, device_busy_share=0.83)
    card = drawing.engine("local", EngineView(problem="", age_s=1.0, figures=gpu))
    assert card is not None and card.device == (("GPU utilisation", "83\u00a0%"), ("GPU memory", "71.4 of 80.0 GB"))
    card = drawing.engine("local", EngineView(problem="", age_s=1.0, figures=replace(gpu, device_busy_share=None)))
    assert card is not None and card.device[0] == ("GPU utilisation", "not told"), "its driver's library is missing"


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (row("ready"), "ok", "Healthy"),
        (row("drained", in_flight=3), "", "Drained, 3 left"),
        (row("rate_limited", 17.2), "warn", "Waits 18 s, Retry-After"),
        (row("parallel"), "warn", "At its limit of requests"),
        (row("stalled", workers=2), "bad", "Silent, nothing answers on 1 of 2 workers"),
        (row("ejected", 12.0), "bad", "Ejected, probe in 12 s"),
    ],
)
def test_a_state_in_words(given: BackendRow, kind: str, words: str) -> None:
    found = drawing.state(given, NOW_US)
    assert (found.kind, found.words) == (kind, words)


def test_an_ejection_says_how_long_it_lasts() -> None:
    event = EventView(worker="0", kind="ejected", since_us=NOW_US - 41_200_000, until_us=None, why="timeout")
    assert drawing.state(row("ejected", 12.0, events=(event,)), NOW_US).words == "Ejected 41 s, probe in 12 s"


def test_whether_a_machine_is_worth_its_money() -> None:
    owned = OwnedView(
        hourly_usd="2.49",
        hours=24,
        utilisation="0.8300",
        full_usd_per_million="0.38",
        last_hour_usd_per_million="0.41",
        busy_usd_per_million="0.31",
        idle_usd="6.41",
        cheaper="gemini-flash",
        below="0.5200",
    )
    assert drawing.break_even(owned).replace("\u00a0", " ") == (
        "Below 52 % busy, gemini-flash would be cheaper. It was busy 83 % of the last 24 closed hours."
    )
    assert "however busy" in drawing.break_even(replace(owned, below=None))
    assert "No hosted backend" in drawing.break_even(replace(owned, cheaper=None, below=None))
    assert "No hour of it" in drawing.break_even(replace(owned, utilisation=None))


def test_the_line_above_counts_states() -> None:
    rows = [row("ready"), row("ejected"), row("drained")]
    states = [drawing.state(one, NOW_US) for one in rows]
    assert drawing.counts(states, rows) == "1 healthy, 1 ejected, 1 drained · 0 in flight · 8,743 tokens/s out"
