"""Recording of metrics: a module that counts gets a `Metrics`, and asks it once for each series."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import defaultdict
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from muniment.service.running.metrics.families import BY_NAME, SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

# The values of a series' labels, in the order of its metric.
Labels: TypeAlias = tuple[str, ...]

# The methods of operations; all others share one label.
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# The route of a request without an operation.
UNMATCHED: Final = "unmatched"


class Counter:
    """A number that only goes up."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        """Begin at 0."""
        self.value: float = 0

    def add(self, count: float = 1) -> None:
        """Add `count`, which is not negative."""
        self.value += count


class Histogram:
    """A distribution of sizes: `counts` by the bucket, the last one without a bound, and the `sum`."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Begin without sizes; `bounds` are the upper ones of the buckets."""
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def observe(self, size: float) -> None:
        """Count `size` in the first bucket whose bound is not smaller."""
        self.counts[bisect_left(self._bounds, size)] += 1
        self.sum += size


class Gauge:
    """A number that goes up and down; None: it is not shown."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        """Begin without a number."""
        self.value: float | None = None

    def set(self, value: float) -> None:
        """Set the number."""
        self.value = value

    def forget(self) -> None:
        """Remove the number, as before the first `set`."""
        self.value = None


class Metrics:
    """The metrics of a process. They begin anew with it.

    Two threads that count the same series lose counts, so most methods are called in the thread of the event loop.
    """

    def __init__(self) -> None:
        """Begin without a series."""
        self._counters: defaultdict[str, dict[Labels, Counter]] = defaultdict(dict)
        # The same by name, labels and their values, which are found sooner.
        self._known: dict[tuple[str | tuple[str, str], ...], Counter] = {}
        self._gauges: defaultdict[str, dict[Labels, Gauge]] = defaultdict(dict)
        self._reads: defaultdict[str, dict[Labels, Callable[[], float]]] = defaultdict(dict)
        self.histograms: defaultdict[str, dict[Labels, Histogram]] = defaultdict(dict)
        self.requests = Requests(self)

    def counter(self, name: str, **labels: str) -> Counter:
        """The counter of the metric `name` with these labels. Raises `KeyError` for a name that no metric has."""
        if (counter := self._known.get((name, *labels.items()))) is None:
            counter = self._counters[name].setdefault(_labels_of(name, labels), Counter())
            self._known[name, *labels.items()] = counter
        return counter

    def histogram(self, name: str, **labels: str) -> Histogram:
        """The histogram, likewise."""
        key, known = _labels_of(name, labels), self.histograms[name]
        if (histogram := known.get(key)) is None:
            histogram = known[key] = Histogram(BY_NAME[name].buckets)
        return histogram

    def gauge(self, name: str, **labels: str) -> Gauge:
        """The gauge, likewise."""
        key, known = _labels_of(name, labels), self._gauges[name]
        if (gauge := known.get(key)) is None:
            gauge = known[key] = Gauge()
        return gauge

    def read_from(self, read: Callable[[], float], name: str, **labels: str) -> None:
        """Show what `read` returns as the number of a gauge or a counter, whenever the metrics are shown."""
        self._reads[name][_labels_of(name, labels)] = read

    def numbers(self, name: str) -> dict[Labels, float]:
        """The numbers of all series of a counter or a gauge."""
        return {
            **{labels: counter.value for labels, counter in self._counters[name].items()},
            **{labels: gauge.value for labels, gauge in self._gauges[name].items() if gauge.value is not None},
            **{labels: read() for labels, read in self._reads[name].items()},
        }

    def node_asked(self, chain_id: int, seconds: float) -> None:
        """Count a request to a node of a chain that took `seconds`."""
        self.histogram("rpc_request_duration_seconds", chain=str(chain_id)).observe(seconds)

    def node_failed(self, chain_id: int) -> None:
        """Count a request to a node that was unreachable, sent garbage, or serves another chain."""
        self.counter("rpc_errors_total", chain=str(chain_id)).add()


def _labels_of(name: str, labels: dict[str, str]) -> Labels:
    return tuple([labels[each] for each in BY_NAME[name].labels])


class Requests:
    """The counts and times of requests. Only here counting is written for speed."""

    def __init__(self, metrics: Metrics) -> None:
        """Count for `metrics`."""
        self._metrics = metrics
        # By method and route: the counts by status, and the times.
        self._known: dict[tuple[str, str], tuple[dict[int, Counter], Histogram]] = {}

    def record(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer of an operation: method, path template, status and duration."""
        try:
            statuses, times = self._known[method, route]
            statuses[status].value += 1
        except KeyError:
            times = self._enter(method, route, status)
        times.counts[bisect_left(SECONDS, seconds)] += 1
        times.sum += seconds

    def record_refused(self, method: str, route: str, status: int) -> None:
        """Count an answer without an operation; the method is any text."""
        method = method if method in _METHODS else "other"
        self._metrics.counter("http_requests_total", method=method, route=route, status=str(status)).add()

    def _enter(self, method: str, route: str, status: int) -> Histogram:
        """Count the first answer of a method and route with this status; returns the times."""
        times = self._metrics.histogram("http_request_duration_seconds", method=method, route=route)
        statuses, _ = self._known.setdefault((method, route), ({}, times))
        statuses[status] = self._metrics.counter("http_requests_total", method=method, route=route, status=str(status))
        statuses[status].add()
        return times


_OWN: Final = Path("/proc/self")


def show_process(metrics: Metrics) -> None:
    """Set CPU time, memory and descriptors of this process; the last two where the system has `/proc`.

    Counting thousands of open descriptors takes milliseconds.
    """
    metrics.gauge("process_cpu_seconds_total").set(time.process_time())
    metrics.gauge("process_start_time_seconds").set(_started_s())
    with suppress(OSError):  # the system has no /proc
        pages = int((_OWN / "statm").read_text().split()[1])  # proc(5): the second number is the resident set
        metrics.gauge("process_resident_memory_bytes").set(pages * os.sysconf("SC_PAGE_SIZE"))
        metrics.gauge("process_open_fds").set(sum(1 for _ in (_OWN / "fd").iterdir()))


@cache
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
        metrics = metrics or Metrics()
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
