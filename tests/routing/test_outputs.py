from __future__ import annotations

import random

import pytest

from gateway.routing.outputs import NAMES_MOST, Outputs


def test_the_prior_then_the_route_then_the_team() -> None:
    outputs = Outputs()
    assert outputs.expected("r", 1, None, 1000) == (256, 512)
    assert outputs.expected("r", 1, 50, 1000) == (50, 50)
    for _ in range(600):
        outputs.learn("r", 1, 1000, 20)
        outputs.learn("r", 2, 1000, 400)
    assert outputs.expected("r", 1, None, 1000)[0] < 90
    assert outputs.expected("r", 2, None, 1000)[0] > 320
    assert outputs.expected("r", 3, None, 1000)[0] == pytest.approx(210, abs=30), "a new team is like its route"
    assert outputs.expected("other", 1, None, 1000) == (256, 512)


def test_the_high_one_is_passed_by_one_in_ten() -> None:
    outputs, draw = Outputs(), random.Random(3)
    means, passed = [], 0
    for i in range(4000):
        tokens = draw.randrange(1, 1001)
        if i >= 1000:
            mean, high = outputs.expected("r", 1, None, 1000)
            means.append(mean)
            passed += tokens > high
        outputs.learn("r", 1, 1000, tokens)
    assert sum(means) / len(means) == pytest.approx(500, rel=0.1)
    assert passed / len(means) == pytest.approx(0.1, abs=0.03)


def test_names_are_bounded() -> None:
    outputs = Outputs()
    for team in range(NAMES_MOST + 10):
        outputs.learn("r", team, 1000, 10)
    assert len(outputs._teams) == NAMES_MOST
    for route in range(NAMES_MOST + 10):
        outputs.learn(f"r{route}", 1, 1000, 10)
    assert len(outputs._routes) == len(outputs._sizes) == NAMES_MOST
    outputs.learn("r1", 1, 5_000_000, 900)
    assert outputs.expected("r1", 3, None, 5_000_000)[0] > 10, "a size that is not remembered is like its route"


def test_prompts_of_one_size_are_answered_alike_and_a_team_differs_from_all_by_a_factor() -> None:
    outputs = Outputs()
    for _ in range(300):
        for team, times in ((1, 1), (2, 2)):
            outputs.learn("r", team, 300, 40 * times)
            outputs.learn("r", team, 1500, 400 * times)
    small, large = (outputs.expected("r", 3, None, size) for size in (300, 1500))
    assert small[0] == pytest.approx(60, abs=10) and large[0] == pytest.approx(600, abs=100)
    assert outputs.expected("r", 3, None, 511) == small, "alike within a power of two"
    for size, of_all in ((300, small), (1500, large)):
        assert outputs.expected("r", 2, None, size)[0] > 1.15 * of_all[0] > 1.3 * outputs.expected("r", 1, None, size)[0]
    between = outputs.expected("r", 3, None, 100_000)[0]
    assert small[0] < between < large[0], "a size that was never seen is like its route"
