"""The spans of one process: of the requests that it serves, and of the work that these wait for.

Names and attributes are those of OpenTelemetry's stable semantic conventions for HTTP and databases. No span has the
address of a client, a wallet, a credential or a query string. A thread sends the spans to the collector from a bounded
queue, so that a collector never delays a request.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import httpx2
import structlog
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer as SpanMaker,
    set_span_in_context,
)
from opentelemetry.trace.span import TraceState

from muniment.tls import tls_context

if TYPE_CHECKING:
    from muniment.service.running.tracing.parents import Parent

# Spans that wait for the thread: a few megabytes. When there are more, the oldest are dropped.
SPANS_WAITING_MAX: Final = 2_048
_SPANS_PER_REQUEST: Final = 512
_DELAY_MS: Final = 1_000
# The collector is near the service. Only the stop of the process waits for it.
_ANSWER_SECONDS_MAX: Final = 5.0
# How long the stop of a process waits for the spans that are left.
STOP_SECONDS_MAX: Final = 2.0
# The OTLP specification, "Retryable Response Codes"; and the pauses before the next attempts.
_RETRYABLE: Final = frozenset({429, 502, 503, 504})
_PAUSES_S: Final = (0.5, 2.0)
# A stranger's text in an attribute is bounded before; this bounds every other text.
_ATTRIBUTE_LENGTH_MAX: Final = 1_024

_log = structlog.get_logger(__name__)


class Exporter(SpanExporter):
    """Sends spans by OTLP over HTTP, with the HTTP library of the rest of this software.

    OpenTelemetry's own exporter would bring a second one, which follows redirects.
    """

    def __init__(self, url: str) -> None:
        """`url` is where the collector takes spans. Raises `ValueError` for a malformed one."""
        try:
            self._url = httpx2.URL(url)
        except httpx2.InvalidURL:
            raise ValueError("trace_endpoint is not a URL") from None
        self._client = httpx2.Client(
            timeout=_ANSWER_SECONDS_MAX, follow_redirects=False, trust_env=False, verify=tls_context()
        )
        self._is_stopping = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send `spans`; retry after a temporary failure. Logs the spans that were not delivered."""
        body = encode_spans(spans).SerializeToString()
        reason = self._post(body)
        for pause_s in _PAUSES_S:
            if not reason or reason.startswith("refused") or self._is_stopping.wait(pause_s):
                break
            reason = self._post(body)
        if not reason:
            return SpanExportResult.SUCCESS
        _log.warning("spans not delivered", reason=reason, spans=len(spans))
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """End the pauses between attempts, and close the connections."""
        self._is_stopping.set()
        self._client.close()

    def hurry(self) -> None:
        """Retry no more, because the process stops."""
        self._is_stopping.set()

    def _post(self, body: bytes) -> str:
        """Empty if the collector took the spans, otherwise the reason, without the URL, which may contain a key."""
        headers = {"content-type": "application/x-protobuf"}
        try:
            # Only the head of the answer is read: its length is the collector's choice.
            with self._client.stream("POST", self._url, content=body, headers=headers) as response:
                status = response.status_code
        except (httpx2.HTTPError, RuntimeError) as error:  # RuntimeError: the client was closed
            return type(error).__name__
        if response.is_success:
            return ""
        return f"http-{status}" if status in _RETRYABLE else f"refused: http-{status}"


class Provider(TracerProvider):
    """Makes the spans of one process, all of which are sent. Its thread runs from here to `stop`."""

    def __init__(self, exporter: Exporter) -> None:
        """Start the thread."""
        # The library would log each failure and each full queue. `Exporter` logs what an operator needs.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        attributes = {"service.name": "muniment", "service.version": version("muniment"), "process.pid": os.getpid()}
        super().__init__(
            sampler=ALWAYS_ON, resource=Resource.create(attributes), shutdown_on_exit=False,
            span_limits=SpanLimits(max_span_attribute_length=_ATTRIBUTE_LENGTH_MAX),
        )  # fmt: skip
        self._exporter = exporter
        self.add_span_processor(
            BatchSpanProcessor(
                exporter, max_queue_size=SPANS_WAITING_MAX, max_export_batch_size=_SPANS_PER_REQUEST,
                schedule_delay_millis=_DELAY_MS,
            )
        )  # fmt: skip

    def stop(self, seconds_max: float = STOP_SECONDS_MAX) -> None:
        """Send the spans that are left, for at most `seconds_max` seconds."""
        self._exporter.hurry()
        # The library waits for up to half a minute. A daemon thread lets the process end earlier.
        ending = threading.Thread(target=self.shutdown, daemon=True, name="last-spans")
        ending.start()
        ending.join(seconds_max)


Attributes = dict[str, str | int]

# Traces that one process begins in a second. Any client can ask for a trace by the flag of its `traceparent`; this
# many cost some hundredths of a core.
TRACES_PER_SECOND_MAX: Final = 200
# Semantic conventions for HTTP, `http.request.method`: other methods would let strangers make names.
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
_FAULT: Final = 500

# The span of the request that the running task serves, or that started the task.
_current: ContextVar[Span | None] = ContextVar("muniment_span", default=None)


class Tracer:
    """Makes the spans of one process. Before `start` and after `stop` no request is traced."""

    def __init__(
        self, exporter: Exporter, ratio: float, *, chance: Callable[[], float], now_s: Callable[[], float],
        per_second_max: int = TRACES_PER_SECOND_MAX,
    ) -> None:  # fmt: skip
        """Trace the share `ratio` of the requests without a parent, and at most `per_second_max` requests in a second.

        `chance` gives numbers from 0 up to 1.
        """
        self._exporter = exporter
        self._ratio = ratio
        self._chance = chance
        self._now_s = now_s
        self._per_second_max = per_second_max
        self._provider: Provider | None = None
        self._spans: SpanMaker | None = None
        self._second = 0
        self._begun = 0

    def start(self) -> None:
        """Start the thread that sends spans."""
        self._provider = Provider(self._exporter)
        self._spans = self._provider.get_tracer("muniment")

    def stop(self) -> None:
        """Send the spans that are left, and end; takes at most `STOP_SECONDS_MAX`."""
        self._spans = None
        if self._provider is not None:
            self._provider.stop()

    def begin(self, method: str, parent: Parent | None) -> Span | None:
        """The span of a request; None when it is not traced. The caller ends it with `finish`.

        The `sampled` flag of the caller decides (W3C Trace Context section 3.2.2.5.1); without a caller, the ratio
        does.
        """
        spans = self._spans
        wanted = parent.is_sampled if parent is not None else self._ratio > 0 and self._chance() < self._ratio
        if spans is None or not wanted or not self._has_room():
            return None
        context = set_span_in_context(NonRecordingSpan(_remote(parent))) if parent is not None else None
        known = method if method in _METHODS else "_OTHER"
        attributes: Attributes = {"http.request.method": known, "url.scheme": "http"}
        return spans.start_span(known, context, kind=SpanKind.SERVER, attributes=attributes)

    @contextmanager
    def around(self, span: Span) -> Generator[None]:
        """Make `span` the parent of the spans that the block makes."""
        token = _current.set(span)
        try:
            yield
        finally:
            _current.reset(token)

    @contextmanager
    def child(self, name: str, attributes: Attributes) -> Generator[Span | None]:
        """A span for a call to another server or to the database; None when the request is not traced.

        An exception that leaves the block ends the span as failed, with its type or, for `Unreachable`, its reason.
        """
        parent, spans = _current.get(), self._spans
        if parent is None or spans is None:
            yield None
            return
        span = spans.start_span(name, set_span_in_context(parent), kind=SpanKind.CLIENT, attributes=attributes)
        try:
            yield span
        except BaseException as error:
            _fail(span, str(getattr(error, "reason", "")) or type(error).__name__)
            raise
        finally:
            span.end()

    @contextmanager
    def call(self, method: str, scheme: str, host: str, port: int | None) -> Generator[list[tuple[str, str]]]:
        """A span for a request to another server, with the header fields that continue the trace there.

        The path and the query stay out of the span: those of RPC nodes and price APIs have keys.
        """
        attributes: Attributes = {
            "http.request.method": method,
            "server.address": host,
            "server.port": port or (443 if scheme == "https" else 80),
            "url.full": shown_url(scheme, host, port),
        }
        with self.child(method, attributes) as span:
            yield _headers(span.get_span_context()) if span is not None else []
            if span is not None:
                span.set_attribute("http.response.status_code", 200)

    def finish(self, span: Span, *, method: str, route: str, path: str, status: int, code: str) -> str:
        """End the span of a request; the id of its trace.

        `status` is 0 when the client left without an answer; `code` is that of a refusal, otherwise empty.
        """
        known = method if method in _METHODS else "HTTP"
        span.update_name(f"{known} {route}" if route else known)
        # The path of a profile has a wallet, so its template stands for it.
        span.set_attribute("url.path", route if "{address}" in route else path)
        if route:
            span.set_attribute("http.route", route)
        if status:
            span.set_attribute("http.response.status_code", status)
        if not status or status >= _FAULT:
            _fail(span, code or (str(status) if status else "ClientGone"))
        span.end()
        return f"{span.get_span_context().trace_id:032x}"

    def _has_room(self) -> bool:
        second = int(self._now_s())
        if second != self._second:
            self._second, self._begun = second, 0
        self._begun += 1
        return self._begun <= self._per_second_max


def shown_url(scheme: str, host: str, port: int | None) -> str:
    """The URL of a call without what may be secret. An IPv6 address has brackets (RFC 3986 section 3.2.2)."""
    server = f"[{host}]" if ":" in host else host
    return f"{scheme}://{server}{f':{port}' if port else ''}/REDACTED"


def _remote(parent: Parent) -> SpanContext:
    return SpanContext(
        int(parent.trace_id, 16), int(parent.span_id, 16), is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED), trace_state=TraceState(list(parent.state)),
    )  # fmt: skip


def _headers(context: SpanContext) -> list[tuple[str, str]]:
    """`traceparent` and `tracestate` (W3C Trace Context sections 3.2 and 3.3)."""
    headers = [("traceparent", f"00-{context.trace_id:032x}-{context.span_id:016x}-01")]
    if context.trace_state:
        headers.append(("tracestate", context.trace_state.to_header()))
    return headers


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))
