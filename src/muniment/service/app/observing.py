"""A log line and a trace span for each request that the settings select."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import structlog

from muniment.service.running.log_lines import shown_path
from muniment.service.running.tracing.parents import read_parent

if TYPE_CHECKING:
    from muniment.service.http.reply import Reply
    from muniment.service.http.request import Request
    from muniment.service.http.routing import Router
    from muniment.service.running.settings import Settings
    from muniment.service.running.tracing.tracer import Tracer

Answer = Callable[["Request"], Awaitable["Reply"]]

_FAULT: Final = 500

_log = structlog.get_logger("muniment.access")


class Observer:
    """Answers requests, logs them as `log_requests` selects, and traces them with `tracer`."""

    def __init__(self, settings: Settings, router: Router, tracer: Tracer | None) -> None:
        """`router` finds the route of a request."""
        self._wanted = settings.log_requests
        self._slow_s = settings.log_slow_ms / 1000
        self._router = router
        self._tracer = tracer
        self._worker = multiprocessing.current_process().name

    async def observe(self, request: Request, answer: Answer) -> Reply:
        """The answer to a request. Raises what `answer` raises."""
        parent = read_parent(request.headers(b"traceparent"), request.headers(b"tracestate"))
        span = self._tracer.begin(request.method, parent) if self._tracer is not None else None
        started, status = time.perf_counter(), 0
        try:
            with self._tracer.around(span) if self._tracer is not None and span is not None else nullcontext():
                reply = await answer(request)
            status = reply.status
        finally:
            seconds = time.perf_counter() - started
            operation = self._router.find(request).operation
            route = operation.path if operation is not None else ""
            trace_id = parent.trace_id if parent is not None else ""
            if self._tracer is not None and span is not None:
                trace_id = self._tracer.finish(
                    span, method=request.method, route=route, path=shown_path(request.path), status=status,
                    code=request.refused,
                )  # fmt: skip
            if level := self._level(seconds, status):
                self._write(level, request, route=route, status=status, seconds=seconds, trace_id=trace_id)
        return reply

    def _level(self, seconds: float, status: int) -> int:
        """The level of the request's log line; 0 for no line.

        Warnings and errors that repeat are counted; lines of all requests are not, at level INFO.
        """
        if self._wanted == "all":
            return logging.INFO
        if self._wanted == "errors" and status >= _FAULT:
            return logging.ERROR
        return logging.WARNING if self._wanted == "slow" and seconds >= self._slow_s else 0

    def _write(
        self, level: int, request: Request, *, route: str, status: int, seconds: float, trace_id: str
    ) -> None:  # fmt: skip
        known: dict[str, Any] = {"code": request.refused, "trace_id": trace_id}
        _log.log(
            level, "request", method=request.method, route=route, path=shown_path(request.path), status=status,
            ms=round(seconds * 1000, 2), request_id=request.id, client=request.client.name, worker=self._worker,
            units=request.units, **{name: value for name, value in known.items() if value},
        )  # fmt: skip
