"""The application of one process: how it answers and logs requests, and its life from start to stop."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import structlog

from muniment.protocol.errors import Unavailable
from muniment.protocol.intents.lifecycle import INTENT_MOVES, Moment
from muniment.protocol.runs.reasons import RESULT_BYTES
from muniment.service.app.operations import OPERATIONS, MachineGauges, Readiness, checks_of, note_log
from muniment.service.app.timekeeping import Timekeeper
from muniment.service.auth.nonces import forget_nonces
from muniment.service.console.page import assets
from muniment.service.console.pages import OPERATIONS as CONSOLE
from muniment.service.context import Context, Serving
from muniment.service.http.admission import Admission
from muniment.service.http.envelope import Envelope
from muniment.service.http.operation import Router
from muniment.service.http.problems import all_refusals
from muniment.service.http.request import Limits
from muniment.service.resources.feed.hub import Hub
from muniment.service.resources.feed.reading import remove_old
from muniment.service.resources.intents.store import mark_expired
from muniment.service.resources.log.integrator import Integrator
from muniment.service.resources.log.reading import Tail
from muniment.service.resources.runs.pruning import DAY_MS, remove_old as remove_old_runs
from muniment.service.resources.triggers.store import mark_ended
from muniment.service.resources.webhooks.deliverer import Deliverer
from muniment.service.resources.webhooks.managing import are_on
from muniment.service.running.limits.overload import TICK_SECONDS, Overload
from muniment.service.running.limits.policies import NAMES as POLICY_NAMES
from muniment.service.running.log_lines import shown_path
from muniment.service.running.metrics.families import FAMILIES, Kind
from muniment.service.running.tracing.parents import read_parent
from muniment.service.storage.sql import SWEPT_PER_BATCH

if TYPE_CHECKING:
    from types import FrameType

    from muniment.service.http.envelope import Observe
    from muniment.service.http.reply import Reply
    from muniment.service.http.request import Request
    from muniment.service.running.metrics.recorder import Metrics
    from muniment.service.running.settings import Settings
    from muniment.service.running.tracing.tracer import Tracer
    from muniment.service.storage.database import Transaction

Answer = Callable[["Request"], Awaitable["Reply"]]

_FAULT: Final = 500

_access = structlog.get_logger("muniment.access")


class Observer:
    """Answers requests, logs them as `log_requests` selects, and traces them with `tracer`."""

    def __init__(self, settings: Settings, router: Router, tracer: Tracer | None) -> None:
        """`router` finds the route of a request."""
        self._wanted = settings.log_requests
        self._slow_s = settings.log_slow_ms / 1000
        self._router = router
        self._tracer = tracer

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
        _access.log(
            level, "request", method=request.method, route=route, path=shown_path(request.path), status=status,
            ms=round(seconds * 1000, 2), request_id=request.id, client=request.client.name,
            units=request.units, **{name: value for name, value in known.items() if value},
        )  # fmt: skip


# How long an ended record may stay among the rows that listings check one by one.
SWEEP_SECONDS: Final = 30.0
# Least time between two log lines about refusals under overload, of which there may be thousands a second.
_LOG_NS: Final = 1_000_000_000
# Time for cancelled tasks to end. A write takes milliseconds, unless the database does not answer.
_TASKS_SECONDS_MAX: Final = 2.0
# Outcomes that operations count.
_OUTCOMES: Final = {
    "logins_total": ("succeeded", "failed"),
    "triggers_total": ("created", "repeated", "deactivated"),
    "intent_moves_total": tuple(INTENT_MOVES),
}
# Marks due records, at most `SWEPT_PER_BATCH`; returns their number.
Sweep = Callable[["Transaction", Context], Awaitable[int]]
SWEEPS: Final[tuple[Sweep, ...]] = (
    lambda tx, _: forget_nonces(tx),
    lambda tx, context: mark_ended(tx, context.clock.now_ms()),
    lambda tx, context: mark_expired(tx, Moment(context.clock.now_ms(), context.settings.settlement_grace_s)),
    lambda tx, context: remove_old(tx, context.clock.now_ms(), context.settings.feed_days),
    lambda tx, context: remove_old_runs(tx, context.clock.now_ms() - context.settings.runs_keep_days * DAY_MS),
)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Serving(Serving):
    """With the state of resources, which `Hub.from_request` and `Tail.from_request` return."""

    hub: Hub
    log_tail: Tail = field(default_factory=Tail)


class Application:
    """The application of one process: requests in, replies out."""

    def __init__(
        self, context: Context, *, sweeps: Sequence[Sweep] = SWEEPS, sweep_seconds: float = SWEEP_SECONDS
    ) -> None:
        """Serve with `context`, and close its resources at the end.

        Each of `sweeps` pauses for `sweep_seconds` after a batch that was not full.
        """
        self._sweeps = sweeps
        self._sweep_seconds = sweep_seconds
        readiness, machine = Readiness(checks_of(context.blocks)), MachineGauges(time.monotonic)
        self.hub = Hub(context)
        serving = _Serving(
            hub=self.hub, is_stopping=lambda: self._stopping,
            check_ready=lambda: readiness.check(self.context), look_at_gauges=lambda: machine.look(self.context),
        )  # fmt: skip
        self.context = replace(context, serving=serving)
        self._stopping = False
        settings = context.settings
        router = Router((*OPERATIONS, *CONSOLE) if settings.console else OPERATIONS)
        self.admission = Admission(context.limiter, context.clients, Overload(random.random, time.monotonic_ns()))
        context.database.charge_long_reads(self.admission.owe_long_read)
        envelope = Envelope(
            router, self.context, self.admission,
            limits=Limits(settings.body_bytes_max, settings.body_timeout_s), metrics=context.metrics,
            random_bytes=context.random_bytes,
            observe=self._observe(router),
            assets=assets(settings.console_notice) if settings.console else None,
            public_url=settings.public_url,
        )  # fmt: skip
        self._describe(context.metrics)
        # The answer to a request; raises `ClientGone` when the client has gone away.
        self.respond = envelope.respond
        # The answer to a request that the server could not read.
        self.refuse = envelope.refuse

    def _observe(self, router: Router) -> Observe | None:
        """The function that logs and traces requests; None when the settings want neither."""
        settings, tracer = self.context.settings, self.context.tracer
        if settings.log_requests == "none" and tracer is None:
            return None
        return Observer(settings, router, tracer).observe

    def _describe(self, metrics: Metrics) -> None:
        """Register gauges of other packages, and counters at 0, so that their first increase is visible."""
        limiter = self.context.limiter
        metrics.read_from(lambda: self.admission.overload.in_flight, "http_requests_in_flight")
        for name in POLICY_NAMES:
            metrics.read_from(partial(limiter.units_charged, name), "rate_limit_units_total", policy=name)
            metrics.read_from(partial(limiter.refused, name), "rate_limit_refused_total", policy=name)
        for name, outcomes in _OUTCOMES.items():
            for outcome in outcomes:
                metrics.counter(name, outcome=outcome)
        for result, status in product(RESULT_BYTES, ("pending", "valid", "invalid")):
            metrics.counter("runs_total", result=result, status=status)
        for family in FAMILIES:
            if not family.labels and family.kind is Kind.COUNTER:
                metrics.counter(family.name)
            elif not family.labels and family.kind is Kind.HISTOGRAM:
                metrics.histogram(family.name)
        for refusal in all_refusals():
            metrics.counter("refused_total", code=refusal.code)

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Open and close the resources of the context; run the services in between."""
        context = self.context
        async with AsyncExitStack() as stack:
            if context.tracer is not None:
                context.tracer.start()
                stack.push_async_callback(asyncio.to_thread, context.tracer.stop)
            for resource in (context.database, context.outgoing_webhooks, context.outgoing, self.hub):
                stack.push_async_callback(resource.close)
            try:
                await context.database.check()
                if note := await note_log(context):
                    _log.error(note)
            except Unavailable as refusal:  # /readyz reports it; a process that ended here would not recover
                _log.warning("not ready", detail=refusal.detail)
            if _asks_others(context):
                await context.outgoing.load()  # other servers will be asked: the first request need not wait for it
            self._notice_stop()
            timekeeper = Timekeeper(context)
            await timekeeper.look()  # before anything is dated
            await context.number.look()  # before a nonce is given out
            tasks = [asyncio.create_task(each) for each in (timekeeper.run(), context.number.keep(), *self._services())]
            stack.push_async_callback(_cancel, tasks)
            yield

    def _services(self) -> Iterator[Coroutine[Any, Any, None]]:
        """The background services, each of which runs until it is cancelled."""
        context, settings = self.context, self.context.settings
        yield from map(self._sweep, self._sweeps)
        yield self._watch_lag()
        if context.holdings.chains:
            yield context.holdings.tokens.keep_fresh()
        if are_on(settings):
            yield Deliverer(context).run()
        if settings.tlog_name:
            yield Integrator(context).run()

    def _notice_stop(self) -> None:
        """At SIGTERM report not ready first; call the server's own handler after `shutdown_delay_s`."""
        stop = signal.getsignal(signal.SIGTERM) if threading.current_thread() is threading.main_thread() else None
        if not callable(stop):  # no server listens for the signal: an application under test
            return
        loop, delay_s = asyncio.get_running_loop(), self.context.settings.shutdown_delay_s

        def notice(number: int, frame: FrameType | None) -> None:
            self._stopping = True
            loop.call_soon_threadsafe(self.hub.stop, delay_s)
            loop.call_soon_threadsafe(loop.call_later, delay_s, stop, number, frame)

        signal.signal(signal.SIGTERM, notice)

    async def _watch_lag(self) -> None:
        """Measure event-loop lag: how late a timer fires. Log refusals under overload, at most once a second."""
        overload, logged_ns = self.admission.overload, 0
        lag = self.context.metrics.histogram("loop_lag_seconds")
        while True:
            now_ns = time.monotonic_ns()
            lag.observe(max(overload.tick(now_ns), 0) / 1e9)
            if overload.refused and now_ns - logged_ns >= _LOG_NS:
                _log.warning("overloaded", refused=overload.refused, lag_ms=overload.lag_ns // 1_000_000)
                logged_ns, overload.refused = now_ns, 0
            await asyncio.sleep(TICK_SECONDS)

    async def _sweep(self, sweep: Sweep) -> None:
        """Run a periodic sweep; a failed run is retried next time."""
        context, done = self.context, 0
        while True:
            if done < SWEPT_PER_BATCH:
                await asyncio.sleep(self._sweep_seconds)
            if context.clock.doubt():
                done = 0
                continue
            try:
                done = await context.database.write(lambda tx: sweep(tx, context))
            except Exception as error:  # noqa: BLE001 - the next run may succeed; a sweep that ended would not restart
                _log.warning("sweep failed", error=type(error).__name__, detail=str(error))
                done = 0


def _asks_others(context: Context) -> bool:
    """Whether other servers will be asked: nodes of chains and what goes with them, or witnesses."""
    return bool(context.holdings.chains or context.settings.tlog_policy)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for them; some still write."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=_TASKS_SECONDS_MAX)
