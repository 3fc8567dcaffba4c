"""Metrics of a database: the time of its work, its commits, its failures and its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.service.running.metrics.recorder import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable

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
