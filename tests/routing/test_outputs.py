from __future__ import annotations

import random

import pytest

from gateway.routing.outputs import NAMES_MOST, Outputs


def test_the_prior_then_the_route_then_the_team() -> None:
    outputs = Outputs()
    assert outputs.expected("r", 1, None) == (256, 512)
    assert outputs.expected("r", 1, 50) == (50, 50)
    for _ in range(600):
        outputs.learn("r", 1, 20)
        outputs.learn("r", 2, 400)
    assert outputs.expected("r", 1, None)[0] < 90
    assert outputs.expected("r", 2, None)[0] > 320
    assert outputs.expected("r", 3, None)[0] == pytest.approx(210, abs=30), "a new team is like its route"
    assert outputs.expected("other", 1, None) == (256, 512)


def test_the_high_one_is_passed_by_one_in_ten() -> None:
    outputs, draw = Outputs(), random.Random(3)
    for _ in range(4000):
        outputs.learn("r", 1, draw.randrange(1, 1001))
    mean, high = outputs.expected("r", 1, None)
    assert mean == pytest.approx(500, rel=0.2)
    assert high == pytest.approx(900, rel=0.1)


def test_names_are_bounded() -> None:
    outputs = Outputs()
    for team in range(NAMES_MOST + 10):
        outputs.learn("r", team, 10)
    assert len(outputs._teams) == NAMES_MOST
    for route in range(NAMES_MOST + 10):
        outputs.learn(f"r{route}", 1, 10)
    assert len(outputs._routes) == NAMES_MOST
