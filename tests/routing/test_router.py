from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.catalog import Backend, Catalog, Price, Route
from gateway.errors import Forbidden
from gateway.routing.choose import differences
from gateway.routing.decision import Hedge
from gateway.routing.features import Features
from gateway.routing.router import Router
from gateway.routing.state import Call
from gateway.settings import Routing
from providers.errors import ContextTooLong, ServerFailed

MakeBackend = Callable[..., Backend]
MakeFeatures = Callable[..., Features]


def catalog(version: str, *backends: Backend) -> Catalog:
    route = Route(name="assistant", backends=tuple(b.name for b in backends))
    return Catalog(version=version, backends={b.name: b for b in backends}, routes={"assistant": route})


def test_plan_and_record(backend: MakeBackend, features: MakeFeatures) -> None:
    snapshot = catalog("v1", backend("a", price=Price(id="p", input=9, output=9)), backend("b", price=Price(id="q", input=1, output=1)))
    choice = Router().plan(features(), snapshot.routes["assistant"], snapshot, 0.0, 0.5)
    assert choice.refusal is None
    assert [b.name for b in choice.plan] == [choice.decision.candidates[i].backend for i in choice.decision.order]
    assert (choice.decision.catalog, choice.decision.margin, choice.decision.explore_share) == ("v1", 0.91, 0.03)


def test_settings_reach_the_choice_and_the_health(backend: MakeBackend, features: MakeFeatures) -> None:
    router, snapshot = Router(Routing(margin=0.5, explore_share=0.0, eject_after=1)), catalog("v1", backend("a"))
    choice = router.plan(features(), snapshot.routes["assistant"], snapshot, 0.0, 0.5)
    assert (choice.decision.margin, choice.decision.explore_share) == (0.5, 0.0)
    router.state(snapshot.backends["a"]).started(0.0, features()).failed(0.0, ServerFailed("500", answered=True))
    assert router.snapshot(0.0)[0].state == "ejected"


def test_g22_the_allow_list_binds_every_attempt(backend: MakeBackend, features: MakeFeatures) -> None:
    snapshot = catalog("v1", backend("a"), backend("b"))
    router, route = Router(), snapshot.routes["assistant"]
    asked = features(allowed=frozenset({"model-a"}))
    choice = router.plan(asked, route, snapshot, 0.0, 0.5)
    assert [b.name for b in choice.plan] == ["a"], "the failover may not leave the key's models"
    router.state(choice.plan[0]).started(0.0, asked).failed(0.1, ContextTooLong("too long", answered=True))
    assert router.exhausted([ContextTooLong("too long")], choice.plan, 0.1).code == "context_length_exceeded"
    refused = router.plan(features(allowed=frozenset({"else"})), route, snapshot, 0.0, 0.5)
    assert refused.plan == () and isinstance(refused.refusal, Forbidden)


def test_a_reload_keeps_states_by_name_and_forgets_another_machine(backend: MakeBackend, features: MakeFeatures) -> None:
    router, one = Router(), catalog("v1", backend("a"), backend("b"))
    router.plan(features(), one.routes["assistant"], one, 0.0, 0.5)
    for name in "ab":
        for _ in range(3):
            router.state(one.backends[name]).started(0.0, features()).failed(0.0, ServerFailed("500", answered=True))
    two = catalog("v2", backend("a", price=Price(id="new", input=5, output=5)), backend("b", base_url="http://elsewhere"), backend("c"))
    choice = router.plan(features(), two.routes["assistant"], two, 1.0, 0.5)
    assert [c.reason for c in choice.decision.candidates] == ["ejected", "", ""]
    assert choice.decision.candidates[0].price_id == "new"
    assert choice.decision.catalog == "v2"


def test_a_route_may_name_a_backend_that_is_gone(backend: MakeBackend, features: MakeFeatures) -> None:
    snapshot = catalog("v1", backend("a"))
    route = Route(name="assistant", backends=("gone", "a"))
    choice = Router().plan(features(), route, snapshot, 0.0, 0.5)
    assert [b.name for b in choice.plan] == ["a"]


def test_a_call_opened_after_a_reload_still_counts(backend: MakeBackend, features: MakeFeatures) -> None:
    router = Router()
    call = router.state(backend("late")).started(0.0, features())
    assert router.snapshot(0.0)[0].in_flight == 1
    call.ended(1.0, 5)
    assert router.snapshot(1.0)[0].in_flight == 0


def test_a_hedge_goes_to_the_cheapest_in_time_with_the_rest_and_within_its_budget(backend: MakeBackend, features: MakeFeatures) -> None:
    snapshot = catalog(
        "v1",
        backend("cheap", price=Price(id="p", input=1 * 10**9, output=1), ttft_prior_ms=850.0),
        backend("late", price=Price(id="p", input=2 * 10**9, output=2), ttft_prior_ms=700.0),
        backend("mid", price=Price(id="p", input=3 * 10**9, output=3), ttft_prior_ms=300.0),
        backend("dear", price=Price(id="p", input=9 * 10**9, output=9), ttft_prior_ms=200.0),
    )
    router, route = Router(Routing(hedge_share=0.5)), snapshot.routes["assistant"]
    asked = features(ttft_ms=1500.0)
    decision = router.plan(asked, route, snapshot, 0.0, 0.5).decision
    assert decision.candidates[decision.order[0]].backend == "cheap"
    assert router.hedge_after_s(asked, decision) == 0.9
    assert router.hedge_after_s(features(ttft_ms=1000.0), decision) == pytest.approx(0.95 * 0.85), "it was expected to wait"
    assert router.hedge_after_s(features(ttft_ms=600.0), decision) is None
    assert router.hedge_after_s(features(ttft_ms=1500.0, stream=False), decision) is None
    assert router.hedge_after_s(features(), decision) is None
    assert router.hedge_after_s(features(deadline_ms=60_000.0), decision) == 36.0
    x = (asked, route, snapshot)
    assert router.hedge(x, ("cheap",), 0.9, 0.9, decision) is None, "no request has brought a hedge yet"
    assert decision.hedge == Hedge(900_000, 900_000, "no_token") and differences(decision) == []
    for _ in range(4):
        router.hedges.request()
    for taken, other in ((("cheap",), "mid"), (("cheap", "mid"), "dear")):
        found = router.hedge(x, taken, 0.9, 0.9, decision)
        assert found is not None and found.name == other
        assert decision.hedge is not None and decision.hedge.result == "sent"
        assert decision.candidates[decision.hedge.second].backend == other
        assert differences(decision) == []
    router.hedges.request()
    router.hedges.request()
    assert router.hedge(x, ("mid", "dear"), 0.9, 0.9, decision) is None, "nobody else is in time"
    assert decision.hedge == Hedge(900_000, 900_000, "nobody")
    assert router.hedges.take(), "and what was not used is not lost"
    assert Router(Routing(hedge_share=0.0)).hedge_after_s(asked, decision) is None


def test_without_a_token_long_before_its_deadline_a_request_is_hedged_by_whoever_ends_in_time(
    backend: MakeBackend, features: MakeFeatures
) -> None:
    snapshot = catalog(
        "v1",
        backend("cheap", price=Price(id="p", input=1 * 10**9, output=1), ttft_prior_ms=850.0, tpot_prior_ms=50.0),
        backend("late", price=Price(id="p", input=2 * 10**9, output=2), ttft_prior_ms=700.0, tpot_prior_ms=200.0),
        backend("dear", price=Price(id="p", input=9 * 10**9, output=9), ttft_prior_ms=200.0, tpot_prior_ms=50.0),
    )
    router, route = Router(Routing(hedge_share=1.0)), snapshot.routes["assistant"]
    asked = features(deadline_ms=30_000.0, output_high_tokens=100)
    decision = router.plan(asked, route, snapshot, 0.0, 0.5).decision
    assert router.hedge_after_s(asked, decision) == 18.0
    router.hedges.request()
    found = router.hedge((asked, route, snapshot), ("cheap",), 18.0, 18.0, decision)
    assert found is not None and found.name == "dear", "the late one would take 20.7 s of the 12 that are left"
    assert decision.hedge is not None and decision.hedge.after_us == 18_000_000 and differences(decision) == []


def test_a_brown_out_moves_traffic_within_two_seconds_and_back_after_it(backend: MakeBackend, features: MakeFeatures) -> None:
    """50 requests a second; the cheap backend takes 4 s to its first token from t = 20 to t = 40, else 0.3 s."""
    snapshot = catalog("v1", backend("cheap", price=Price(id="p", input=10**9, output=10**9)), backend("dear"))
    route, router = snapshot.routes["assistant"], Router()
    pending: list[tuple[float, Call]] = []
    share: dict[int, list[str]] = {}
    for i in range(61 * 50):
        now = i / 50
        for at, call in [p for p in pending if p[0] <= now]:
            call.first_token(at)
            call.ended(at + 0.5, 50)
        pending = [p for p in pending if p[0] > now]
        asked = features(ttft_ms=1500.0) if i % 3 else features(deadline_ms=60_000.0)
        choice = router.plan(asked, route, snapshot, now, (i * 0.618034) % 1.0)
        name = choice.plan[0].name
        slow = name == "cheap" and 20 <= now < 40
        pending.append((now + (4.0 if slow else 0.3), router.state(choice.plan[0]).started(now, asked)))
        if i % 3:
            share.setdefault(int(now), []).append(name)
    assert set(share[19]) == {"cheap"}
    assert set(share[22]) == {"dear"}
    assert set(share[60]) == {"cheap"}
