"""Recording of metrics: a module that counts gets a `Metrics`, and asks it once for each series."""

from __future__ import annotations

import asyncio
import os
import time
from bisect import bisect_left
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import structlog

from muniment.service.running.metrics.families import BY_NAME, FAMILIES, SECONDS, Kind, family_of, series_name
from muniment.service.running.metrics.values import Values

if TYPE_CHECKING:
    from collections.abc import Callable

# The methods of operations; all others share one label.
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# The route of a request without an operation.
UNMATCHED: Final = "unmatched"

_log = structlog.get_logger(__name__)


class Counter:
    """A number that only goes up."""

    __slots__ = ("_place", "_values")

    def __init__(self, values: memoryview[float], place: int) -> None:
        """Count at `place`."""
        self._values = values
        self._place = place

    def add(self, count: float = 1) -> None:
        """Add `count`, which is not negative."""
        self._values[self._place] += count


class Histogram:
    """A distribution of sizes."""

    __slots__ = ("_bounds", "_place", "_sum", "_values")

    def __init__(self, values: memoryview[float], place: int, bounds: tuple[float, ...]) -> None:
        """Count at `place`: the buckets, the unbounded bucket, the sum."""
        self._values = values
        self._place = place
        self._bounds = bounds
        self._sum = place + len(bounds) + 1

    def observe(self, size: float) -> None:
        """Count `size` in the first bucket whose bound is not smaller."""
        values = self._values
        values[self._place + bisect_left(self._bounds, size)] += 1
        values[self._sum] += size


class Gauge:
    """A number that goes up and down."""

    __slots__ = ("_is_latest", "_now_s", "_place", "_values")

    def __init__(self, values: memoryview[float], place: int, now_s: Callable[[], float], *, is_latest: bool) -> None:
        """Keep the number at `place`; a gauge of the whole registry has its time after it."""
        self._values = values
        self._place = place
        self._now_s = now_s
        self._is_latest = is_latest

    def set(self, value: float) -> None:
        """Set the number."""
        self._values[self._place] = value
        if self._is_latest:
            self._values[self._place + 1] = self._now_s()

    def forget(self) -> None:
        """Remove the number, as before the first `set`."""
        self._values[self._place] = 0
        if self._is_latest:
            self._values[self._place + 1] = 0


class Metrics:
    """The metrics of one process.

    Methods are called in the thread of the event loop: two threads that count the same series lose counts.
    """

    def __init__(self, values: Values, *, role: str = "serve", now_s: Callable[[], float] = time.monotonic) -> None:
        """Count in `values`. `now_s` is a clock that the machine's processes have in common."""
        self.values = values
        # The value of the label `worker`: what the process does, and its region.
        self.worker = f"{role}-{values.region}"
        self._now_s = now_s
        # By name and labels, which are few.
        self._known: dict[tuple[str | tuple[str, str], ...], Counter] = {}
        self._gauges: list[tuple[Gauge, Callable[[], float]]] = []
        # The third element is the part that its counter has counted already.
        self._counters: list[tuple[Counter, Callable[[], float], float]] = []
        self.requests = Requests(self)
        self._forget_gauges()
        for family in FAMILIES:  # a count of 0 differs from a missing count
            if not family.labels:
                self.place(family.name, {})
        self.values.save()  # the other processes see at once that the gauges are removed

    @classmethod
    def of_process(cls) -> Self:
        """Metrics of this process alone: of a command or a test."""
        return cls(Values.of_process())

    def counter(self, name: str, **labels: str) -> Counter:
        """The counter of the metric `name` with these labels. Raises `KeyError` for a name that no metric has."""
        key = name, *labels.items()
        if (counter := self._known.get(key)) is None:
            counter = self._known[key] = Counter(self.values.own, self.place(name, labels))
        return counter

    def histogram(self, name: str, **labels: str) -> Histogram:
        """The histogram, likewise."""
        return Histogram(self.values.own, self.place(name, labels), BY_NAME[name].buckets)

    def gauge(self, name: str, **labels: str) -> Gauge:
        """The gauge, likewise."""
        is_latest = BY_NAME[name].kind is Kind.LATEST
        return Gauge(self.values.own, self.place(name, labels), self._now_s, is_latest=is_latest)

    def node_asked(self, chain_id: int, seconds: float) -> None:
        """Count a request to a node of a chain that took `seconds`."""
        self.histogram("rpc_request_duration_seconds", chain=str(chain_id)).observe(seconds)

    def node_failed(self, chain_id: int) -> None:
        """Count a request to a node that was unreachable, sent garbage, or serves another chain."""
        self.counter("rpc_errors_total", chain=str(chain_id)).add()

    def read_from(self, read: Callable[[], float], name: str, **labels: str) -> None:
        """Set a gauge to what `read` returns, at every `refresh`."""
        self._gauges.append((self.gauge(name, **labels), read))

    def count_from(self, read: Callable[[], float], name: str, **labels: str) -> None:
        """Count by how much the number that `read` returns has grown, at every `refresh`.

        Code that must count in nanoseconds keeps its own number.
        """
        self._counters.append((self.counter(name, **labels), read, read()))

    def refresh(self) -> None:
        """Update the gauges and counters that are read from functions, and show all numbers to the other processes."""
        for gauge, read in self._gauges:
            gauge.set(read())
        for index, (counter, read, counted) in enumerate(self._counters):
            number = read()
            counter.add(number - counted)
            self._counters[index] = counter, read, number
        self.values.save()

    def close(self) -> None:
        """Stop counting for this process; its counts stay."""
        self.values.close()

    def place(self, name: str, labels: dict[str, str]) -> int:
        """The place of the series in the memory of this process, likewise."""
        family = BY_NAME[name]
        return self.values.place(series_name(family, labels), family.width)

    def _forget_gauges(self) -> None:
        """Zero the gauges of the previous process of this region."""
        for each in self.values.series():
            family = family_of(each.name)
            if family is not None and family.kind in (Kind.SUM, Kind.LATEST):
                for place in range(each.place, each.place + each.width):
                    self.values.own[place] = 0


class Requests:
    """The counts and times of requests. Only here counting is written for speed."""

    def __init__(self, metrics: Metrics) -> None:
        """Count for `metrics`."""
        self._metrics = metrics
        self._values = metrics.values.own
        # By method and route: the places of the counts by status, the place of the times.
        self._places: dict[tuple[str, str], tuple[dict[int, int], int]] = {}

    def record(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer of an operation: method, path template, status and duration."""
        values = self._values
        try:
            statuses, times = self._places[method, route]
            values[statuses[status]] += 1
        except KeyError:
            times = self._enter(method, route, status)
        values[times + bisect_left(SECONDS, seconds)] += 1
        values[times + 17] += seconds  # after 16 buckets and the unbounded bucket

    def record_refused(self, method: str, route: str, status: int) -> None:
        """Count an answer without an operation; the method is any text."""
        method = method if method in _METHODS else "other"
        self._metrics.counter("http_requests_total", method=method, route=route, status=str(status)).add()

    def _enter(self, method: str, route: str, status: int) -> int:
        """Count the first answer of a method and route; returns the place of the times."""
        metrics = self._metrics
        if (found := self._places.get((method, route))) is None:
            times = metrics.place("http_request_duration_seconds", {"method": method, "route": route})
            found = self._places[method, route] = ({}, times)
        place = metrics.place("http_requests_total", {"method": method, "route": route, "status": str(status)})
        found[0][status] = place
        self._values[place] += 1
        return found[1]


def open_metrics(directory: Path, *, role: str = "serve") -> Metrics:
    """The metrics of a process, in the file of `directory`; if that fails, of this process alone, with a warning."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Metrics(Values.at(directory), role=role)
    except OSError as error:
        _log.warning("metrics are counted by each process for itself", reason=str(error))
        return Metrics(Values.of_process(), role=role)


# Seconds between two updates. The process that answers GET /metrics updates its own gauges first.
_LOOK_SECONDS: Final = 1.0
# Counting thousands of open descriptors takes milliseconds.
_PROCESS_LOOKS: Final = 15
_OWN: Final = Path("/proc/self")


async def show_gauges(metrics: Metrics) -> None:
    """Show the gauges of this process until it is cancelled."""
    own = _Process(metrics)
    looks = 0
    while True:
        metrics.refresh()
        if looks % _PROCESS_LOOKS == 0:
            own.look()
        looks += 1
        await asyncio.sleep(_LOOK_SECONDS)


class _Process:
    """CPU time, memory and descriptors of this process; the last two where the system has `/proc`."""

    def __init__(self, metrics: Metrics) -> None:
        self._cpu = metrics.gauge("process_cpu_seconds_total", worker=metrics.worker)
        self._memory = metrics.gauge("process_resident_memory_bytes", worker=metrics.worker)
        self._descriptors = metrics.gauge("process_open_fds", worker=metrics.worker)
        metrics.gauge("process_start_time_seconds", worker=metrics.worker).set(_started_s())

    def look(self) -> None:
        self._cpu.set(time.process_time())
        with suppress(OSError):  # the system has no /proc
            pages = int((_OWN / "statm").read_text().split()[1])  # proc(5): the second number is the resident set
            self._memory.set(pages * os.sysconf("SC_PAGE_SIZE"))
            self._descriptors.set(sum(1 for _ in (_OWN / "fd").iterdir()))


def _started_s() -> float:
    """The start of this process, in seconds since 1970; where the system has no /proc, the start of its metrics."""
    with suppress(OSError, StopIteration):
        ticks = int((_OWN / "stat").read_text().rpartition(")")[2].split()[19])  # proc(5): since the machine started
        lines = Path("/proc/stat").read_text().splitlines()
        booted_s = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
        return booted_s + ticks / os.sysconf("SC_CLK_TCK")
    return time.time()


PRIMARY: Final = "primary"
_QUERIES: Final = "database_query_duration_seconds"


class DatabaseMetrics:
    """The metrics of one database of a process: the primary, or a replica.

    With SQLite, only the writer thread counts writes and commits.
    """

    def __init__(self, metrics: Metrics | None = None, target: str = PRIMARY) -> None:
        """`target` is `primary`, or the place of a replica in the settings. None: the metrics are unused."""
        metrics = metrics or Metrics.of_process()
        self._metrics = metrics
        self._target = target
        # Short reads; on PostgreSQL a batch of equal reads counts once.
        self.reads = metrics.histogram(_QUERIES, kind="read", target=target)
        # Long reads, including their wait for a reader.
        self.long_reads = metrics.histogram(_QUERIES, kind="long_read", target=target)
        self._writes = metrics.histogram(_QUERIES, kind="write", target=target)
        self.commits = metrics.histogram("commit_duration_seconds")
        self._group_sizes = metrics.histogram("write_group_size")
        self._errors = {
            kind: metrics.counter("database_errors_total", kind=kind, target=target)
            for kind in ("read", "long_read", "write")
        }

    def wrote(self, seconds: float, works: int) -> None:
        """Count a group of `works` writes, which took `seconds` with its commit."""
        self._writes.observe(seconds)
        self._group_sizes.observe(works)

    def fail(self, kind: str) -> None:
        """Count failed work: `kind` is `read`, `long_read` or `write`."""
        self._errors[kind].add()

    def show_queue(self, length: Callable[[], int]) -> None:
        """Show the number of waiting writes; 0 on a replica."""
        if self._target == PRIMARY:
            self._metrics.read_from(length, "writes_waiting")

    def of_replica(self, place: int) -> DatabaseMetrics:
        """The metrics of the replica at `place`, from 1, among those of the settings."""
        return DatabaseMetrics(self._metrics, f"replica-{place}")

    def show_lag(self, seconds: float | None) -> None:
        """Show the age of this replica's data; None: unknown."""
        gauge = self._metrics.gauge("replica_lag_seconds", replica=self._target.removeprefix("replica-"))
        if seconds is None:
            gauge.forget()
        else:
            gauge.set(seconds)
