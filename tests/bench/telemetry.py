"""What counting and the log line of one settled request cost, in microseconds: `python -m tests.bench.telemetry`.

Three requests in turn, as a gateway sees them: streamed and answered, failed over, from the cache. The log goes nowhere.
"""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from pathlib import Path
from uuid import uuid4

from gateway.auth import Principal
from gateway.catalog import Catalog, Route
from gateway.exchange import Exchange
from gateway.log import sink
from gateway.money.records import AttemptEnd, UsageRecord
from gateway.routing.choose import Knobs, choose
from gateway.routing.features import Features
from gateway.routing.state import BackendState
from gateway.telemetry import Telemetry
from providers.types import Request, Usage
from tests.routing.conftest import make_backend

ROUNDS, REQUESTS = 15, 6000
CATALOG = Catalog(version="1", backends={}, routes={"assistant": Route(name="assistant", backends=())})


def request(n: int) -> tuple[Exchange, UsageRecord]:
    features = Features(route="assistant", dialect="openai_chat", input_tokens=900, input_tokens_upper=4000, expected_output_tokens=200)
    who = Principal(org_id=1, team_id=1, key_id=1, team="growth", key_public="AAAABBBBCCCC")
    x = Exchange(uuid4(), who, Request(dialect="openai_chat", fields={}, model="assistant", stream=True), CATALOG, features)
    states = [BackendState(make_backend(name)) for name in ("a", "b", "c", "d")]
    x.decision = choose(features, states, 0.0, 0.5, Knobs())[1]
    usage = Usage(input=900, output=180, cache_read=100)
    end = AttemptEnd(
        request_id=x.id, n=1, backend="a", vendor="openai", model="gpt-x", price_id="p", outcome="completed", cost=1234, worst=9999,
        usage=usage, ttft_ms=310, duration_ms=2210,
    )  # fmt: skip
    ends: tuple[AttemptEnd, ...] = (end,)
    outcome, cost = "completed", 1234
    if n % 3 == 1:
        bad = AttemptEnd(
            request_id=x.id, n=1, backend="b", vendor="groq", model="gpt-y", price_id="p", outcome="failed", cost=0, worst=9999,
            usage=Usage(), error="upstream_unavailable", status=503, duration_ms=12,
        )  # fmt: skip
        ends = (bad, end)
    elif n % 3 == 2:
        ends, outcome, cost, x.cache_status, x.decision, x.saved = (), "cached", 0, "hit", None, 1234
    record = UsageRecord(
        id=x.id, started_at_us=1, ended_at_us=2, team_id=1, key_id=1, org_id=1, route="assistant", backend="a" if ends else "",
        vendor="openai" if ends else "", model="gpt-x" if ends else "", price_id="p", outcome=outcome, cost=cost, usage=usage, charges=(),
        attempts=ends, streamed=True, saved=x.saved, ttft_ms=310, duration_ms=2210,
    )  # fmt: skip
    return x, record


def main() -> None:
    sink.stream = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        telemetry = Telemetry(Path(folder), "0")
        mix = [request(n) for n in range(3)]
        found = []
        for _ in range(ROUNDS):
            sink.lines.clear()
            sink.size = 0
            started = time.perf_counter()
            for n in range(REQUESTS):
                telemetry.request(*mix[n % 3])
                if n % 500 == 0:
                    sink.lines.clear()
                    sink.size = 0
            found.append((time.perf_counter() - started) / REQUESTS * 1e6)
    print(f"one settled request: {min(found):.2f} us at best, {statistics.median(found):.2f} us in the middle of {ROUNDS} rounds")


if __name__ == "__main__":
    main()
