"""No credential leaves by any door: G19 of the known faults, with its values, against a gateway that says all it can say."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.e2e.harness import backend, free_port, route, running
from tests.fakes.otlp import Collector, attributes
from tests.fakes.upstream import FakeUpstream, body_reply, chat_answer, chat_chunks, json_reply, sse_reply
from tests.test_dashboards import PROMTOOL, promtool

URL_KEY = "AIzaSyG19-in-the-url-0123456789abcdef"
ECHOED_KEY = "sk-proj-G19-echoed-0123456789abcdef"
USER_KEY = "G19-password-0123456789abcdef"
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def until(condition: Any, what: str, within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def everything(folder: Path) -> bytes:
    """What lies in the folder: log, journal, database, numbers of workers; not the configuration and its published copy."""
    files = [
        path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(("tollway.toml", "settings-", "current"))
    ]
    return b"".join(path.read_bytes() for path in files)


def test_g19_no_key_in_answers_logs_ledger_metrics_or_traces(tmp_path: Path) -> None:
    """A vendor that carries its key in the URL answers 400 and 503 and cannot be reached; another echoes it in its 401; log level debug.
    The same gateway's traces: a span per request and attempt, the client's trace going on to the backend that is named for it."""
    echo = json_reply({"error": {"message": f"Incorrect API key provided: {ECHOED_KEY}.", "code": ECHOED_KEY, "param": ECHOED_KEY}}, 401)
    told = f"https://upstream/v1/{URL_KEY}/chat/completions"
    with FakeUpstream().threaded() as upstream, Collector().threaded() as collector:
        host = upstream.url.removeprefix("http://")
        keyed = 'api_key = "env:URL_KEY"'
        config = (
            "".join(backend(name, f"{upstream.url}/{URL_KEY}", more=keyed) for name in ("url", "other"))
            + backend("gone", f"http://127.0.0.1:{free_port()}/{URL_KEY}", more=keyed)
            + backend("user", f"http://tollway:{USER_KEY}@{host}")
            + backend("echo", upstream.url, more='api_key = "env:ECHOED_KEY"')
            + "".join(route(name, name, more="max_attempts = 1") for name in ("url", "gone", "user", "echo"))
            + route("over", "url", "other")
            + f'[logging]\nlevel = "debug"\n[traces]\nendpoint = "{collector.endpoint}"\ncontent = true\npass_to = ["other"]\n'
        )
        with running(tmp_path, config, URL_KEY=URL_KEY, ECHOED_KEY=ECHOED_KEY) as gateway:
            key = gateway.key("alpha")
            said: list[bytes] = []

            def ask(model: str, *replies: Any, **members: Any) -> int:
                upstream.play(*replies)
                body = {"model": model, "messages": [{"role": "user", "content": f"my key is {key}"}], **members}
                status, answer, headers = gateway.call(
                    "POST", "/v1/chat/completions", json.dumps(body).encode(), key, {"traceparent": PARENT, "baggage": "user=anna"}
                )
                said.append(answer + repr(headers).encode())
                return status

            bad = json_reply({"error": {"message": f"Bad request to {told}", "type": "invalid_request_error"}}, 400)
            down = json_reply({"error": {"message": f"The service at {told} is unavailable"}}, 503)
            html = body_reply(f"<html>{told}</html>".encode(), 503, {"content-type": "text/html"})
            assert [ask("url", bad), ask("url", down), ask("url", html)] == [400, 503, 503]
            assert ask("gone", bad) in (502, 503)
            assert ask("user", json_reply({"error": {"message": f"tollway:{USER_KEY} may not do this"}}, 403)) in (403, 500, 502, 503)
            assert ask("echo", echo) in (401, 500, 502, 503)
            cut = sse_reply([*chat_chunks(["a"], finish=None), {"error": {"message": f"lost {told} {ECHOED_KEY}"}}], done=False)
            assert ask("url", cut, stream=True) == 200
            assert ask("over", down, json_reply(chat_answer())) == 200
            rows = gateway.settled(8)
            ids = [UUID(bytes=row["id"]) for row in rows]
            heard = [one.headers for one in upstream.requests]
            page = gateway.get("/metrics")[1]
            said.append(page)
            if PROMTOOL:
                assert promtool("check", "metrics", given=page).strip() == ""
            said.append(gateway.get(f"/v1/requests/{ids[0]}", key)[1])
            said.append(gateway.get("/health/ready")[1])
            for path in (
                "/admin/backends",
                "/admin/config",
                "/admin/routes",
                f"/admin/requests/{ids[-1]}",
                "/admin/requests",
                "/admin/audit",
            ):
                said.append(json.dumps(gateway.admin("GET", path, None)).encode())
            until(lambda: sum(span.name.endswith(" over") for span in collector.spans) == 1, "the spans arrive")
        said += collector.bodies
        said.append(everything(tmp_path))
        ledger = repr(rows).encode()

        secret_part = key[16:]
        for secret in (URL_KEY, ECHOED_KEY, USER_KEY, secret_part):
            assert len(secret) > 20
            found = [text[max(0, text.index(secret.encode()) - 200) :][:400] for text in (*said, ledger) if secret.encode() in text]
            assert found == []

        spans = {span.span_id: span for span in collector.spans}
        requests = [span for span in spans.values() if not span.parent_span_id or span.parent_span_id not in spans]
        assert {span.trace_id.hex() for span in spans.values()} == {PARENT[3:35]}
        assert len(requests) == 8 and {span.parent_span_id.hex() for span in requests} == {PARENT[36:52]}
        (over,) = [span for span in requests if span.name == "chat over"]
        attempts = [span for span in spans.values() if span.parent_span_id == over.span_id]
        assert sorted(attributes(span)["tollway.backend"] for span in attempts) == ["other", "url"]
        (named,) = [span for span in attempts if attributes(span)["tollway.backend"] == "other"]
        assert [headers["traceparent"] for headers in heard if "traceparent" in headers] == [f"00-{PARENT[3:35]}-{named.span_id.hex()}-01"]
        assert not any("baggage" in headers for headers in heard)
        assert "my key is" in attributes(over)["gen_ai.input.messages"], "content is on"
