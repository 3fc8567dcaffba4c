"""An OpenTelemetry collector: takes OTLP over HTTP, decoded by the official schema."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from local_server import LocalServer

# Spans leave a second after their requests; a busy machine takes longer.
_SPANS_SECONDS_MAX = 60.0
SERVER, CLIENT = 2, 3  # the kinds of spans in OTLP


@dataclass(frozen=True)
class Span:
    """A span. Ids are hexadecimal digits."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    state: str
    kind: int
    is_failed: bool
    attributes: dict[str, str | int]


class Collector:
    """An HTTP server on a free port. It keeps the headers of all requests, and the spans of those that it accepts."""

    def __init__(self, *, status: int = 200, delay_s: float = 0) -> None:
        self.status = status
        self.delay_s = delay_s
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.bodies: list[bytes] = []
        self.kept: list[Span] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                outer.paths.append(self.path)
                outer.bodies.append(body)
                if outer.status == 200 and self.headers["content-type"] == "application/x-protobuf":
                    outer.kept += _decoded(body)
                time.sleep(outer.delay_s)
                self.send_response(outer.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = LocalServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def spans(self, trace_id: str = "", *, wanted: int = 1) -> list[Span]:
        """The spans of a trace, or all, once there are `wanted`, that of the request among them: it ends last."""

        def is_whole() -> bool:
            found = self._of(trace_id)
            return len(found) >= wanted and any(span.kind == SERVER for span in found)

        self.until(is_whole)
        return self._of(trace_id)

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until `is_so`, within a bound."""
        deadline = time.monotonic() + _SPANS_SECONDS_MAX
        while not is_so():
            assert time.monotonic() < deadline, self.kept
            time.sleep(0.02)

    def _of(self, trace_id: str) -> list[Span]:
        return [span for span in self.kept if not trace_id or span.trace_id == trace_id]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _decoded(body: bytes) -> list[Span]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        _span(each) for resource in request.resource_spans for scope in resource.scope_spans for each in scope.spans
    ]


def _span(each: Any) -> Span:
    values = {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in each.attributes}
    return Span(
        each.name, each.trace_id.hex(), each.span_id.hex(), each.parent_span_id.hex(), each.trace_state, each.kind,
        each.status.code == 2, values,
    )  # fmt: skip
