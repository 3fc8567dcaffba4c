"""The spans of one process: of the requests that it serves, and of the work that these wait for.

Names and attributes are those of OpenTelemetry's stable semantic conventions for HTTP and databases. No span has the
address of a client, a wallet, a credential or a query string.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

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

from muniment.service.running.tracing.export import Exporter, Provider

if TYPE_CHECKING:
    from muniment.service.running.tracing.parents import Parent

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
