"""A collector on a real loopback socket: takes OTLP over HTTP, keeps the spans and the bytes they came in."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """`spans` in the order of their arrival."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/traces"

    def take(self, headers: dict[str, str], body: bytes) -> None:
        plain = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        told = ExportTraceServiceRequest.FromString(plain)
        self.headers.append(headers)
        self.bodies.append(plain)
        self.spans += [span for resource in told.resource_spans for scope in resource.scope_spans for span in scope.spans]

    @contextlib.contextmanager
    def threaded(self) -> Iterator[Collector]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.take({name.lower(): value for name, value in self.headers.items()}, body)
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_told: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.port = server.server_address[1]
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()


def attributes(span: Span) -> dict[str, Any]:
    """Plain values by name."""
    return {one.key: _plain(one.value) for one in span.attributes}


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)
