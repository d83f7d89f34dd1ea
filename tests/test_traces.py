"""A client's trace goes on, and only the backends that are named for it hear of it."""

from __future__ import annotations

import pytest

from gateway.exchange import Exchange
from gateway.money.records import UsageRecord
from gateway.settings import TraceSettings
from gateway.traces import Trace, Traces, open_traces, read_parent
from tests.test_telemetry import COMPLETED, settled

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Kept:
    """An exporter that keeps what it is given."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []

    def put(self, x: Exchange, trace: Trace, record: UsageRecord) -> None:
        self.traces.append(trace)

    def close(self) -> None:
        self.traces.clear()


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (f"00-{TRACE}-{SPAN}-01", (int(TRACE, 16), int(SPAN, 16), True)),
        (f"00-{TRACE}-{SPAN}-00", (int(TRACE, 16), int(SPAN, 16), False)),
        (f" 00-{TRACE}-{SPAN}-01 ", (int(TRACE, 16), int(SPAN, 16), True)),
        (f"01-{TRACE}-{SPAN}-01-later", (int(TRACE, 16), int(SPAN, 16), True)),  # a later version may say more
        (f"00-{TRACE}-{SPAN}-01-later", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        ("", None),
        ("x" * 5000, None),
    ],
)
def test_a_traceparent_is_read_as_w3c_says(header: str, found: tuple[int, int, bool] | None) -> None:
    assert read_parent(header.encode()) == found


def test_a_clients_trace_goes_on_as_it_is_sampled() -> None:
    kept = Kept()
    traces = Traces(TraceSettings(sample=0.0), kept)
    x, record = settled(COMPLETED)
    for flags in (b"00", b"01"):
        trace = traces.begin({b"traceparent": f"00-{TRACE}-{SPAN}-".encode() + flags, b"tracestate": b"vendor=a:1"})
        assert (trace.trace_id, trace.parent, trace.state) == (int(TRACE, 16), int(SPAN, 16), "vendor=a:1")
        assert trace.span_id not in (0, int(SPAN, 16))
        traces.ended(x, trace, record)
    assert [trace.sampled for trace in kept.traces] == [True]


@pytest.mark.parametrize(("share", "sampled"), [(0.0, False), (1.0, True)])
def test_without_one_a_trace_begins_and_is_sampled_by_the_settings(share: float, sampled: bool) -> None:
    traces = Traces(TraceSettings(sample=share), Kept())
    first, second = traces.begin({}), traces.begin({b"traceparent": b"nonsense", b"tracestate": b"vendor=1"})
    assert (first.sampled, second.sampled) == (sampled, sampled)
    assert first.trace_id != second.trace_id and first.parent is second.parent is None
    assert second.state == "", "a state without a parent is nobody's"


@pytest.mark.parametrize("state", [b"v=" + b"x" * 600, b"v=\xe9", b"v=\n"])
def test_a_state_that_no_header_may_hold_is_left_out(state: bytes) -> None:
    trace = Traces(TraceSettings(), Kept()).begin({b"traceparent": f"00-{TRACE}-{SPAN}-01".encode(), b"tracestate": state})
    assert trace.state == ""


def test_backends_that_are_named_are_told_the_span_of_their_attempt_and_others_nothing() -> None:
    traces = Traces(TraceSettings(pass_to=("own",)), Kept())
    trace = traces.begin({b"traceparent": f"00-{TRACE}-{SPAN}-01".encode(), b"tracestate": b"vendor=1"})
    assert traces.headers(trace, "vendor", 1) == {}
    told = traces.headers(trace, "own", 2)
    assert told == {"traceparent": f"00-{TRACE}-{trace.attempts[2]:016x}-01", "tracestate": "vendor=1"}
    assert traces.headers(trace, "own", 2) == told, "the same attempt, the same span"
    assert traces.headers(trace, "own", 3) != told


def test_without_an_endpoint_there_are_none() -> None:
    assert open_traces(TraceSettings()) is None
