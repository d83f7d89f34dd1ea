"""What would happen to a request: by priors and by what a router has learnt, and nothing changes by asking."""

from __future__ import annotations

import pytest

from gateway.catalog import Catalog, Route
from gateway.errors import InvalidRequest, NotFound
from gateway.routing.router import Router
from gateway.trial import Asked, Told, tell
from tests.routing.conftest import make_backend, make_features

CATALOG = Catalog(
    version="v",
    backends={
        "a": make_backend("a", labels={"residency": "eu"}, ttft_prior_ms=3000.0),
        "b": make_backend("b", vendor="groq", ttft_prior_ms=100.0),
    },
    routes={"r": Route(name="r", backends=("a", "b"), labels={}), "eu": Route(name="eu", backends=("a", "b"), labels={"residency": "eu"})},
)


def ask(router: Router, now: float = 0.0, **asked: object) -> Told:
    return tell(Asked(**({"route": "r", "prompt": "hello"} | asked)), CATALOG, router, now)  # type: ignore[arg-type]


def test_objectives_labels_and_priority_are_the_request_s() -> None:
    router = Router()
    assert set(ask(router).plan) == {"a", "b"}
    assert ask(router, ttft_ms=1000.0).plan[0] == "b"
    assert ask(router, labels={"residency": "eu"}).plan == ("a",)
    assert ask(router, route="eu", ttft_ms=1000.0).plan == ("a",)
    low = ask(router, ttft_ms=1.0, priority="low")
    assert low.plan == () and low.refusal is not None and "low priority" in low.refusal
    assert ask(router, max_tokens=77).decision["output_tokens"] == 77


def test_what_was_learnt_speaks_and_asking_teaches_nothing() -> None:
    router = Router()
    state = router.states(CATALOG)["b"]
    for i in range(10):
        call = state.started(float(i), make_features())
        call.first_token(i + 5.0)
        call.ended(i + 5.5, 50)
    before = router.snapshot(20.0)
    told = ask(router, 20.0, ttft_ms=4000.0)
    assert told.plan[0] == "a" and told.explanation.endswith("recomputed: agrees")
    assert [c["backend"] for c in told.decision["candidates"]] == ["a", "b"]
    assert router.snapshot(20.0) == before


def test_what_cannot_be_asked_is_named() -> None:
    with pytest.raises(NotFound, match="there is no route 'x'; there are: eu, r"):
        ask(Router(), route="x")
    with pytest.raises(InvalidRequest):
        ask(Router(), labels={"a,b": "c"})
