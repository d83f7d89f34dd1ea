"""Spans as a collector gets them over a real socket: one per request, one per attempt, no prompt unless it is asked for."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import msgspec
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway.exchange import Attempt
from gateway.settings import ConfigError, Settings, TraceSettings, load
from gateway.traces import Traces, open_traces
from providers.signers import CredentialError, conceal
from tests.fakes.otlp import Collector, attributes
from tests.test_telemetry import COMPLETED, FAILED, settled

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PROMPT, ANSWER, SECRET = "the moon over Lisbon", "a poem of the moon", "sk-otel-test-0123456789"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector().threaded() as made:
        yield made


def sent(collector: Collector, *, content: bool = False, failing: bool = False) -> list[Span]:
    """What arrives of one request that failed over."""
    collector.spans.clear()
    traces = open_traces(TraceSettings(endpoint=collector.endpoint, content=content))
    assert isinstance(traces, Traces)
    x, record = settled(FAILED, COMPLETED) if not failing else settled(FAILED, outcome="failed", error="upstream_unavailable", status=502)
    x.request.fields = {"messages": msgspec.Raw(msgspec.json.encode([{"role": "user", "content": f"{PROMPT} {SECRET}"}]))}
    answered = Attempt.__new__(Attempt)
    answered.meter = type("Said", (), {"text": [ANSWER[:5], ANSWER[5:]]})()  # type: ignore[assignment]
    x.answered_by = answered
    trace = traces.begin({b"traceparent": PARENT.encode()})
    traces.ended(x, trace, record)
    traces.close()
    return list(collector.spans)


def test_a_request_and_each_of_its_attempts_has_a_span(collector: Collector) -> None:
    request, *attempts = sent(collector)
    assert request.trace_id.hex() == PARENT[3:35] and request.parent_span_id.hex() == PARENT[36:52]
    assert (request.name, request.kind) == ("chat assistant", Span.SPAN_KIND_SERVER)
    assert [(one.name, one.kind) for one in attempts] == [("chat llama", Span.SPAN_KIND_CLIENT), ("chat gpt-x", Span.SPAN_KIND_CLIENT)]
    assert {one.parent_span_id for one in attempts} == {request.span_id}
    assert len({one.span_id for one in (request, *attempts)}) == 3
    assert request.end_time_unix_nano - request.start_time_unix_nano == 2_500_000_000
    told = attributes(request)
    assert told["gen_ai.operation.name"] == "chat" and told["gen_ai.provider.name"] == "azure.ai.openai"
    assert (told["gen_ai.request.model"], told["gen_ai.response.model"]) == ("assistant", "gpt-x")
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (1000, 21)
    assert (told["tollway.cost_nanousd"], told["tollway.attempts"], told["tollway.outcome"]) == (500, 2, "completed")
    failed, completed = (attributes(one) for one in attempts)
    assert (failed["error.type"], failed["http.response.status_code"]) == ("upstream_unavailable", 503)
    assert "error.type" not in completed and completed["gen_ai.response.time_to_first_chunk"] == 0.3
    assert [one.status.code for one in (request, *attempts)] == [
        Status.STATUS_CODE_UNSET,
        Status.STATUS_CODE_ERROR,
        Status.STATUS_CODE_UNSET,
    ]


def test_a_request_that_fails_says_so(collector: Collector) -> None:
    request, _attempt = sent(collector, failing=True)
    assert attributes(request)["error.type"] == "upstream_unavailable"
    assert request.status.code == Status.STATUS_CODE_ERROR


def test_what_was_said_is_told_on_demand_alone_and_never_a_secret(collector: Collector) -> None:
    conceal(SECRET)
    collector.bodies.clear()
    sent(collector)
    quiet = b"".join(collector.bodies)
    assert PROMPT.encode() not in quiet and ANSWER.encode() not in quiet and SECRET.encode() not in quiet
    told = attributes(sent(collector, content=True)[0])
    assert PROMPT in told["gen_ai.input.messages"] and ANSWER in told["gen_ai.output.messages"]
    assert SECRET.encode() not in b"".join(collector.bodies)


def test_text_is_made_beside_the_loop_and_what_is_too_much_is_dropped(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.otel.WAITING_MOST", 2)
    collector.spans.clear()
    traces = open_traces(TraceSettings(endpoint=collector.endpoint, content=True))
    assert isinstance(traces, Traces)
    held, threads = threading.Event(), set()

    def redacting(text: str) -> str:
        threads.add(threading.get_ident())
        held.wait(30)
        return text

    monkeypatch.setattr("gateway.otel.redact", redacting)
    for _ in range(5):
        x, record = settled(COMPLETED)
        x.request.fields = {}
        traces.ended(x, traces.begin({}), record)
    held.set()
    x.request = None  # type: ignore[assignment]
    traces.close()
    assert len(collector.spans) == 2 * 2 and threading.get_ident() not in threads
    traces = open_traces(TraceSettings(endpoint=collector.endpoint, content=True))
    assert isinstance(traces, Traces)
    traces.ended(x, traces.begin({}), record)
    traces.close()
    assert [one.getMessage() for one in caplog.records if one.name == "tollway.traces"] == [
        "a request's trace could not be made: AttributeError"
    ]


def test_a_collectors_credential_comes_from_a_reference(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLECTOR", "Authorization=Bearer abc,x-scope=team 1".replace(" 1", "1").replace("Bearer abc", "Bearer-abc"))
    traces = open_traces(TraceSettings(endpoint=collector.endpoint, headers="env:COLLECTOR"))
    assert traces is not None
    x, record = settled(COMPLETED)
    traces.ended(x, traces.begin({}), record)
    traces.close()
    assert (collector.headers[-1]["authorization"], collector.headers[-1]["x-scope"]) == ("Bearer-abc", "team1")
    monkeypatch.setenv("COLLECTOR", "no-equals-sign")
    with pytest.raises(CredentialError, match=r"traces\.headers"):
        open_traces(TraceSettings(endpoint=collector.endpoint, headers="env:COLLECTOR"))


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"TOLLWAY_TRACES__ENDPOINT": "collector:4318"}, r"traces\.endpoint: must begin"),
        ({"TOLLWAY_TRACES__HEADERS": "authorization=secret"}, r"traces\.headers: must be a reference"),
        ({"TOLLWAY_TRACES__PASS_TO": "nobody"}, r'traces\.pass_to: "nobody" is not a backend'),
    ],
)
def test_settings_that_cannot_work_are_told(environ: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=said):
        load(None, environ)


def test_without_the_extra_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match="tollway\\[otel\\]"):
        load(None, {"TOLLWAY_TRACES__ENDPOINT": "http://collector:4318/v1/traces"})
    assert Settings().traces.endpoint == ""
