"""What a decision costs: CPU time of one choice over eight backends with its record, beside a fixed loop of plain Python in the same run.

python -m tests.bench.sim.cost. Seven hosted backends with rate limits and an engine of one's own, all with full windows and requests
in flight; the draw is spread over [0, 1). Time is the process's own; the least of many short turns, so that a busy machine counts little.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from gateway.catalog import Backend, Catalog, Price, Route
from gateway.routing.decision import encode
from gateway.routing.features import Features
from gateway.routing.router import Choice, Router
from providers.dialects import DIALECTS
from providers.parameters import note

BACKENDS = 8
TURNS, CALLS = 60, 200
AIM_US = 25.0
LOOP = 400  # steps of the reference
ASKED = DIALECTS["openai_chat"].decode_request(
    b'{"model":"chat","messages":[{"role":"user","content":"Say hello."}],"temperature":0.3,"max_tokens":512,"stream":true,'
    b'"tools":[{"type":"function","function":{"name":"look_up"}}],"tool_choice":"auto"}'
)


class Cost(Struct, frozen=True):
    """Microseconds of CPU, and bytes. loop_us: of the reference, by which other machines are compared."""

    choose_us: float
    note_us: float  # what it asked for, at the request's end
    encode_us: float
    loop_us: float
    record_bytes: int

    @property
    def ratio(self) -> float:
        return (self.choose_us + self.note_us) / self.loop_us


def catalog() -> Catalog:
    backends = {}
    for i in range(BACKENDS):
        own = i == BACKENDS - 1
        times = 1 if own else i + 2
        price = Price(id=f"config:backend-{i}", input=150_000_000 * times, output=600_000_000 * times)
        limit = None if own else 6_000
        backends[f"backend-{i}"] = Backend(
            name=f"backend-{i}",
            vendor="vllm" if own else f"vendor-{i}",
            model="m",
            dialect="openai_chat",
            own=own,
            rpm=limit,
            tpm=None if own else 6_000_000,
            price=price,
        )
    return Catalog(version="bench", backends=backends, routes={"chat": Route(name="chat", backends=tuple(backends))})


def request(interactive: bool = True) -> Features:
    return Features(
        route="chat",
        dialect="openai_chat",
        input_tokens=1200,
        input_tokens_upper=2400,
        expected_output_tokens=200,
        output_high_tokens=400,
        stream=True,
        prefix=tuple(range(4)),
        ttft_ms=1500.0 if interactive else None,
        tpot_ms=60.0 if interactive else None,
        deadline_ms=None if interactive else 60_000.0,
    )


def seasoned(where: Catalog, features: Features) -> tuple[Router, float]:
    """A router that has seen 100 answers of each backend, with four requests in flight on each, and its clock."""
    router, route, now = Router(), where.routes["chat"], 0.0
    router.plan(features, route, where, now, 0.5)
    states = [router.state(backend) for backend in where.backends.values()]
    for _ in range(100):
        now += 0.4
        for state in states:
            call = state.started(now - 0.9, features)
            call.first_token(now - 0.5 + 0.01 * (now % 7))
            call.ended(now, 150)
    for state in states:
        for age in (0.2, 0.15, 0.1, 0.05):
            state.started(now - age, features)
    return router, now


def measure(turns: int = TURNS, calls: int = CALLS) -> Cost:
    where = catalog()
    features = request()
    router, now = seasoned(where, features)
    route = where.routes["chat"]
    choices: list[Choice] = []

    def choose() -> None:
        for i in range(calls):
            choice = router.plan(features, route, where, now + 1e-5 * i, (i + 0.5) / calls)
            router.placed(choice.decision, route)
            choices.append(choice)

    def write() -> None:
        for choice in choices[-calls:]:
            encode(choice.decision)
        choices.clear()

    least = [float("inf")] * 4
    for _ in range(turns):
        for which, work in enumerate((choose, lambda: _note(calls), write, lambda: _loop(calls))):
            least[which] = min(least[which], _cpu_us(work))
    decision = router.plan(features, route, where, now, 0.5).decision
    assert not any(one.reason for one in decision.candidates), "each of them is to be judged to the end"
    record = encode(decision)
    return Cost(*(us / calls for us in least), len(record))


def _note(calls: int) -> None:
    for _ in range(calls):
        note(ASKED)


def _loop(calls: int) -> None:
    for _ in range(calls):
        total = 0
        for i in range(LOOP):
            total += i & 7


def _cpu_us(work: Callable[[], None]) -> float:
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / 1000


def text(c: Cost) -> str:
    return (
        f"A decision over {BACKENDS} backends with its record costs {c.choose_us:.1f} µs of CPU in the path, and {c.note_us:.2f} µs for "
        f"what the request asked for (the aim: {AIM_US:g}), {c.ratio:.2f} times a plain loop of {LOOP} steps in the same run "
        f"({c.loop_us:.1f} µs); its {c.record_bytes} bytes are encoded off the path in {c.encode_us:.1f} µs."
    )


if __name__ == "__main__":
    print(text(measure()))
