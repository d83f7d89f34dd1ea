"""The simulator itself: an engine that keeps its bounds, one world for all policies, arithmetic of the clairvoyant's curve."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.sim import affinity, cost, policies, summary, traces, world
from tests.bench.sim.engine import Engine, Sequence, Speed
from tests.bench.sim.run import Clock, Policy, Simulation, World, build

PUBLISHED = {(one.provider, one.model): [(0.2 + 0.01 * i, 0.01, "") for i in range(20)] for one in world.OFFERS}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 200), st.floats(0, 0.5), st.booleans()), min_size=1, max_size=40))
def test_an_engine_serves_everybody_within_its_cache(asked: list[tuple[int, int, float, bool]]) -> None:
    clock = Clock()
    engine = Engine(Speed(kv_tokens=5000, sequences=8), clock.at)
    seen: dict[int, list[float]] = {}

    def arrive(i: int, now: float) -> None:
        sequence = Sequence((asked[i][0], asked[i][1]), (), seen[i].append, seen[i].append)
        engine.submit(sequence, now)
        assert engine.kv_used <= 5000 and engine.running <= 8
        if asked[i][3]:
            clock.at(now + 1.0, lambda _: engine.cancel(sequence))

    at = 0.0
    for i, (_, _, gap, _) in enumerate(asked):
        at += gap
        seen[i] = []
        clock.at(at, lambda now, i=i: arrive(i, now))  # type: ignore[misc]
    clock.run()
    assert all(len(seen[i]) == 2 for i in range(len(asked)) if not asked[i][3])
    assert engine.kv_used == engine.running == engine.outstanding == 0


def test_a_known_prefix_is_not_computed_again() -> None:
    clock = Clock()
    engine = Engine(Speed(prefix_blocks=10), clock.at)
    first: list[float] = []
    for n in range(2):
        clock.at(10.0 * n, lambda now: engine.submit(Sequence((2000, 2), (1, 2, 3), first.append, lambda _: None), now))
    clock.run()
    assert first[1] - 10.0 < 0.5 * first[0]


def play(make: type, scenario: str, seed: int = 1) -> list[tuple[float, int, str]]:
    trace = traces.cut(traces.load("calm", seed), 0.0, 60.0)
    clock = Clock()
    where: World = build(PUBLISHED, seed, world.spells(scenario, "", 0.0, 60.0), clock)
    policy: Policy = make(where, seed)
    return [(one.ttft_s, one.cost, one.backend) for one in Simulation(where, clock, policy, seed).run(trace)]


@pytest.mark.parametrize("make", [policies.Ours, *policies.PEERS, policies.LocalFirst, policies.Clairvoyant])
@pytest.mark.parametrize("scenario", ["normal", "hang"])
def test_a_run_is_determined_by_its_seed_and_answers_nearly_all(make: type, scenario: str) -> None:
    once, again = play(make, scenario), play(make, scenario)
    assert once == again
    assert sum(one[2] != "" for one in once) > 0.5 * len(once)
    assert play(make, scenario, 2) != once


def test_an_engine_that_dies_fails_what_it_held_and_comes_back() -> None:
    trace = [traces.Asked(i, 1.0 * i, 500, 100) for i in range(40)]
    clock = Clock()
    where = build({}, 1, {world.LOCAL: (world.Spell("outage", 10.2, 20.0),)}, clock)
    done = Simulation(where, clock, policies.RoundRobin(where, 1), 1).run(trace)
    answered = [one.asked.at for one in done if one.met]
    assert any(at < 9 for at in answered) and any(at > 21 for at in answered)
    assert not any(10.2 < at < 19 for at in answered)


def test_cost_at_equal_attainment_is_read_off_the_frontier() -> None:
    curve = [(0.90, 1.0), (0.95, 2.0), (0.94, 3.0), (0.99, 4.0)]
    assert summary.at_attainment(curve, 0.925) == pytest.approx(1.5)
    assert summary.at_attainment(curve, 0.97) == pytest.approx(3.0)
    assert summary.at_attainment(curve, 0.999) == 4.0
    assert summary.at_attainment(curve, 0.5) == 1.0


def test_a_vendors_bucket_lets_through_what_its_limit_says() -> None:
    bucket, draw, now, passed = world.Bucket(60.0), random.Random(3), 0.0, 0
    while now < 600.0:
        now += draw.expovariate(5.0)
        if bucket.wait_s(now, 1.0) == 0.0:
            bucket.take(1.0)
            passed += 1
    assert passed == pytest.approx(600 + 15, abs=3)


def test_what_is_measured_is_a_decision_over_eight_backends_that_are_all_judged() -> None:
    told = cost.measure(turns=1, calls=5)
    assert told.choose_us > 0 and told.loop_us > 0 and 500 < told.record_bytes <= 1500
    assert f"{told.choose_us:.1f} µs" in cost.text(told)


def test_the_bound_of_affinity_computes_what_was_never_asked_before() -> None:
    prefix = tuple(range(8))
    twice = affinity.alone([traces.Asked(i, 0.0, 4096, 10, prefix=prefix) for i in range(2)])
    speed = affinity.SPEED
    assert twice == pytest.approx([speed.prefill_s + speed.step_s, 4096 * speed.prefill_s + 2 * speed.step_s]), "then a single token"
