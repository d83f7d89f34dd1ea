from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.catalog import Backend
from gateway.errors import Forbidden, GatewayError, InvalidRequest, NotReady, RateLimited, UpstreamFailed
from gateway.routing.choose import Knobs, assess, choose
from gateway.routing.decision import explain
from gateway.routing.features import Features
from gateway.routing.filters import exhausted, refusal, unfit
from gateway.routing.state import BackendState
from providers import errors as upstream

Make = Callable[..., BackendState]
MakeFeatures = Callable[..., Features]


EU = (("region", "eu"),)


@pytest.mark.parametrize(
    ("backend", "request_", "reason"),
    [
        ({}, {}, ""),
        ({}, {"allowed": frozenset({"other"})}, "not_allowed"),
        ({}, {"allowed": frozenset({"assistant"})}, ""),
        ({}, {"allowed": frozenset({"model-a"})}, ""),
        ({}, {"allowed": frozenset()}, "not_allowed"),
        ({}, {"labels": EU}, "labels"),
        ({"labels": {"region": "us"}}, {"labels": EU}, "labels"),
        ({"labels": {"region": "eu", "x": "y"}}, {"labels": EU}, ""),
        ({"labels": {"region": "eu"}}, {"labels": (*EU, ("region", "us"))}, "labels"),
        ({"dialect": "anthropic_messages"}, {"unknown": ("new_field",)}, "dialect"),
        ({}, {"unknown": ("new_field",)}, ""),
        ({"capabilities": frozenset({"tools"})}, {"needs": frozenset({"tools", "images"})}, "capability"),
        ({"capabilities": frozenset({"tools", "images"})}, {"needs": frozenset({"tools"})}, ""),
        ({"refuses": frozenset({"temperature"})}, {"asks": frozenset({"temperature", "stop"})}, "parameter"),
        ({"refuses": frozenset({"temperature"})}, {"asks": frozenset({"stop"})}, ""),
        ({"price": None}, {"budgeted": True}, "unpriced"),
        ({"price": None}, {}, ""),
        ({"context_tokens": 1000}, {"input_tokens": 1000}, "context"),
        ({"context_tokens": 1000}, {"input_tokens": 999}, ""),
        ({"context_tokens": 1000}, {"input_tokens": 900, "max_tokens": 101}, "context"),
        ({"max_output_tokens": 100}, {"max_tokens": 101}, "max_output"),
        ({"max_output_tokens": 100}, {"max_tokens": 100}, ""),
    ],
)
def test_reasons(state: Make, features: MakeFeatures, backend: dict[str, Any], request_: dict[str, Any], reason: str) -> None:
    assert unfit(features(**request_), state(**backend)) == reason


def refuse(states: list[BackendState], features: Features, now: float = 0.0) -> GatewayError:
    plan, decision = choose(features, states, now, 0.5, Knobs())
    assert plan == ()
    return refusal(features, states, decision.candidates)


def test_a_full_backend_is_passed_over(state: Make, features: MakeFeatures) -> None:
    s = state(parallel=1)
    call = s.started(0.0, features())
    assert assess(features(), s, 0.0).reason == "parallel"
    error = refuse([s], features())
    assert isinstance(error, NotReady)
    assert (error.code, error.retry_after_s) == ("backends_busy", 1.0)
    call.left(0.1)
    assert assess(features(), s, 0.2).reason == ""


def test_unknown_fields_without_a_backend_of_their_language_name_the_fields(state: Make, features: MakeFeatures) -> None:
    error = refuse([state(dialect="anthropic_messages"), state("b", dialect="gemini")], features(unknown=("foo", "bar")))
    assert isinstance(error, InvalidRequest)
    assert (error.code, error.param) == ("unknown_field", "foo")
    assert "foo, bar" in error.message


def test_a_backend_that_honours_all_unknown_fields_takes_them_in_any_language(state: Make, features: MakeFeatures) -> None:
    honouring = state(dialect="", honours=frozenset({"foo", "bar"}))
    assert assess(features(unknown=("foo", "bar")), honouring, 0.0).reason == ""
    assert assess(features(unknown=("foo", "baz")), honouring, 0.0).reason == "dialect"


def test_the_candidate_that_came_furthest_explains(state: Make, features: MakeFeatures) -> None:
    states = [state(), state("b", capabilities=frozenset({"tools"}))]
    error = refuse(states, features(allowed=frozenset({"model-b"}), needs=frozenset({"images", "tools"})))
    assert isinstance(error, InvalidRequest)
    assert error.param == "images"
    error = refuse(states, features(allowed=frozenset({"nothing"})))
    assert isinstance(error, Forbidden)
    error = refuse([state(price=None)], features(budgeted=True))
    assert (error.status, error.code) == (503, "price_unknown")


def test_a_label_that_nobody_carries_is_named_and_what_the_backends_have(state: Make, features: MakeFeatures) -> None:
    states = [state("a", labels={"residency": "us", "retention": "none"}), state("b"), state("c", labels={"residency": "eu"})]
    error = refuse(states, features(labels=(("residency", "mars"), ("retention", "none"))))
    assert (error.status, error.code, error.retry) == (400, "no_backend_with_labels", False)
    assert error.message == (
        "No backend of route 'assistant' carries the label residency=mars. "
        "Its backends have a: residency=us,retention=none; b: none; c: residency=eu."
    )
    error = refuse(states, features(labels=(("residency", "eu"), ("retention", "none"))))
    assert "carries the labels residency=eu,retention=none together." in error.message
    error = refuse([state(f"b{n}") for n in range(20)], features(labels=EU))
    assert error.message.endswith("b15: none; and 4 more.")


def test_labels_outlive_every_other_consideration(state: Make, features: MakeFeatures) -> None:
    """Whatever befalls those that carry the labels, no other backend is asked."""
    here, there = state("here", labels={"region": "eu"}, parallel=1), state("there")
    for _ in range(3):
        here.started(0.0, features()).failed(0.0, upstream.ServerFailed("500", answered=True))
    plan, decision = choose(features(labels=EU), [here, there], 0.1, 0.5, Knobs())
    assert [b.name for b in plan] == ["here"], "ejected, but never eject all"
    assert [c.reason for c in decision.candidates] == ["ejected", "labels"]
    assert decision.labels == "region=eu" and "labels asked for: region=eu" in explain(decision)
    here.started(0.1, features())
    assert refuse([here, there], features(labels=EU), 0.1).code == "backends_busy"


def test_a_route_without_backends_says_so(features: MakeFeatures) -> None:
    error = refuse([], features())
    assert (error.status, error.code) == (503, "no_backend")


def test_g32_all_rate_limited_is_429_with_the_smallest_wait_and_no_call(state: Make, features: MakeFeatures) -> None:
    states = [state("a"), state("b")]
    for s, wait in zip(states, (30.0, 12.4), strict=True):
        s.started(0.0, features()).failed(0.0, upstream.RateLimited("429", retry_after_s=wait, answered=True))
    error = refuse(states, features(), now=1.0)
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == 12.0
    plan, _ = choose(features(), states, 12.5, 0.5, Knobs())
    assert [b.name for b in plan] == ["b"]


def test_never_all_ejected(state: Make, features: MakeFeatures) -> None:
    states = [state("a"), state("b")]
    for now, s in enumerate(states):
        for _ in range(3):
            s.started(now, features()).failed(now, upstream.ServerFailed("500", answered=True))
    plan, decision = choose(features(), states, 2.0, 0.5, Knobs())
    assert [c.reason for c in decision.candidates] == ["ejected", "ejected"]
    assert [b.name for b in plan] == ["a", "b"], "the soonest ready first"


def test_size_is_a_guess_that_gives_way_last(state: Make, features: MakeFeatures) -> None:
    small, large = state("small", context_tokens=500), state("large", context_tokens=5000)
    plan, _ = choose(features(), [small, large], 0.0, 0.5, Knobs())
    assert [b.name for b in plan] == ["large"]
    plan, _ = choose(features(allowed=frozenset({"model-small"})), [small, large], 0.0, 0.5, Knobs())
    assert [b.name for b in plan] == ["small"], "its own answer to the size is better than our estimate"
    for _ in range(3):
        large.started(0.0, features()).failed(0.0, upstream.ServerFailed("500", answered=True))
    plan, _ = choose(features(), [small, large], 1.0, 0.5, Knobs())
    assert [b.name for b in plan] == ["large", "small"]


def failed_all(state: Make, *errors: upstream.ProviderError) -> GatewayError:
    s = state()
    s.started(0.0, Features(route="r", dialect="", input_tokens=1, input_tokens_upper=1, expected_output_tokens=1)).failed(0.0, errors[-1])
    return exhausted(errors, [s], 0.0)


def test_what_the_client_hears_when_every_attempt_failed(state: Make, backend: Callable[..., Backend]) -> None:
    limited = failed_all(state, upstream.RateLimited("slow down", retry_after_s=30.0, answered=True))
    assert (type(limited), limited.retry_after_s) == (RateLimited, 30.0)
    down = failed_all(state, upstream.ServerFailed("500", answered=True), upstream.Unreachable("refused"))
    assert (type(down), down.status) == (NotReady, 503)
    assert down.retry_after_s is not None and down.retry_after_s >= 1
    late = failed_all(state, upstream.TimedOut("no byte"))
    assert (type(late), late.status) == (UpstreamFailed, 504)
    key = failed_all(state, upstream.Unauthorized("bad key", answered=True))
    assert (type(key), key.status) == (UpstreamFailed, 502)
    fault = failed_all(state, upstream.ContextTooLong("9000 tokens, at most 8192", answered=True), upstream.ServerFailed("500"))
    assert (type(fault), fault.code) == (InvalidRequest, "context_length_exceeded")
