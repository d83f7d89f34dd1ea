"""One worker's memory of the last hour: what it counts, that it adds up over workers, and what a restart leaves of it."""

from __future__ import annotations

from uuid import uuid4

from gateway.backend_watch import EVENTS_KEPT, HOUR, BackendWatch, Event, added, by_minute, quantile_ms
from gateway.money.records import AttemptEnd, UsageRecord
from gateway.routing.decision import Candidate, Decision
from gateway.routing.router import BackendView, LeftView
from providers.types import Usage

NOON = 1_800_000_000.0
LEFT = LeftView(requests=None, tokens=None, input=None, output=None)
USAGE = Usage(input=900, output=100)


def view(state: str, backend: str = "a") -> BackendView:
    return BackendView(
        backend=backend,
        state=state,
        drained=state == "drained",
        ready_in_s=0.0,
        in_flight=0,
        waiting=0,
        samples=0,
        ttft95_ms=1.0,
        tpot95_ms=1.0,
        failure_odds=0.0,
        left=LEFT,
        engine=None,
    )


def end(outcome: str = "completed", ttft_ms: int | None = 500, cost: int | None = 1000, error: str = "") -> AttemptEnd:
    return AttemptEnd(
        request_id=uuid4(),
        n=1,
        backend="a",
        vendor="v",
        model="m",
        price_id="p",
        outcome=outcome,
        cost=cost,
        worst=None,
        usage=USAGE,
        error=error,
        ttft_ms=ttft_ms,
    )


def record(*ends: AttemptEnd, streamed: bool = True) -> UsageRecord:
    return UsageRecord(
        id=uuid4(),
        started_at_us=0,
        ended_at_us=0,
        team_id=1,
        key_id=1,
        org_id=1,
        route="r",
        backend="a",
        vendor="v",
        model="m",
        price_id="p",
        outcome="completed",
        cost=0,
        usage=USAGE,
        charges=(),
        attempts=ends,
        streamed=streamed,
    )


def decision(ttft95_ms: float) -> Decision:
    candidate = Candidate("a", ttft95_us=int(ttft95_ms * 1000))
    return Decision("4", "c", "r", 1, 1, 1, None, None, None, 0.9, 0.0, 0, 0.5, (candidate,))


def test_attempts_tokens_cost_and_errors_are_counted() -> None:
    watch = BackendWatch()
    watch.settled(record(end(), end("failed", None, 0, "upstream_timeout"), end(cost=None)), decision(600), NOON)
    (minute,) = watch.recent()["a"]
    assert (minute.attempts, minute.failed, minute.output, minute.errors) == (3, 1, 300, {"upstream_timeout": 1})
    assert (minute.cost, minute.tokens, minute.unpriced) == (1000, 2000, 1), "tokens that nobody priced are not in the average"


def test_the_first_token_is_compared_with_what_was_predicted_of_this_request() -> None:
    watch = BackendWatch()
    for seen_ms in [500] * 95 + [5000] * 5:
        watch.settled(record(end(ttft_ms=seen_ms)), decision(600), NOON)
    watch.settled(record(end(), streamed=False), decision(600), NOON)  # shows its first token with its last
    watch.settled(record(end()), None, NOON)
    (minute,) = watch.recent()["a"]
    assert (minute.judged, minute.inside, minute.attempts) == (100, 95, 102)
    seen, predicted = quantile_ms(minute.seen, 0.95), quantile_ms(minute.predicted, 0.95)
    assert seen is not None and abs(seen / 500 - 1) < 0.03 and predicted is not None and abs(predicted / 600 - 1) < 0.03
    late = quantile_ms(minute.seen, 0.96)
    assert late is not None and abs(late / 5000 - 1) < 0.03
    assert quantile_ms({}, 0.95) is None


def test_minutes_of_workers_add_up_and_the_hour_is_bounded() -> None:
    one, two = BackendWatch(), BackendWatch()
    for minute in range(HOUR + 10):
        one.settled(record(end()), None, NOON + 60 * minute)
    now = NOON + 60 * (HOUR + 9)
    two.settled(record(end(), end("failed", error="e")), None, now)
    assert len(one.hour()["a"]) == HOUR
    minutes = by_minute([one.hour()["a"], two.hour()["a"]], now, 3)
    assert [each.attempts for each in minutes] == [1, 1, 3] and minutes[-1].errors == {"e": 1}
    assert added(minutes).attempts == 5 and by_minute([], now, 2)[0].attempts == 0


def test_time_that_it_was_not_up_is_kept_with_why() -> None:
    watch = BackendWatch()
    watch.settled(record(end("failed", error="upstream_timeout")), None, NOON)
    for second, state in enumerate(["ready", "ready", "ejected", "probing", "ejected", "ready", "rate_limited", "drained", "parallel"]):
        watch.look([view(state)], NOON + second)
    assert watch.events()["a"] == [
        Event("ejected", NOON + 2, NOON + 5, "upstream_timeout"),
        Event("waits", NOON + 6, NOON + 7),
        Event("drained", NOON + 7, NOON + 8),
    ]
    states = added(watch.recent()["a"]).states
    assert states == {"up": 3.0, "ejected": 3.0, "waits": 1.0, "drained": 1.0}
    watch.look([view("ready", "b")], NOON + 9)
    assert set(watch.recent()) == {"b"}, "a backend that is gone is forgotten"


def test_a_restart_carries_on_and_ends_what_was_open() -> None:
    watch, after = BackendWatch(), BackendWatch()
    for second in range(2 * EVENTS_KEPT):
        watch.look([view("ejected" if second % 2 else "ready")], NOON + second)
    assert len(watch.events()["a"]) == EVENTS_KEPT
    ended = NOON + 2 * EVENTS_KEPT
    after.carry_on(watch.hour(), watch.events(), ended, ended + 5)
    assert after.events()["a"][-1].until == ended and [m.at for m in after.hour()["a"]] == [m.at for m in watch.hour()["a"]]
    late = BackendWatch()
    late.carry_on(watch.hour(), watch.events(), ended, ended + 7200)
    assert late.events()["a"] == []
