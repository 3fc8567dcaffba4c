"""Sends spans to the collector: in a thread, from a bounded queue, so that a collector never delays a request."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

import httpx2
import structlog
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

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
        self._client = httpx2.Client(timeout=_ANSWER_SECONDS_MAX, follow_redirects=False, trust_env=False)
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
