"""All metrics, each with name, type, labels and buckets. Names and labels are a promise to operators."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

PREFIX: Final = "muniment_"


class Kind(Enum):
    """The kind of a metric."""

    COUNTER = "counter"  # only goes up
    HISTOGRAM = "histogram"  # likewise, for each bucket and for the sum
    GAUGE = "gauge"


# 16 buckets: a read takes 0.0001 s, and a request of more than 10 s is a defect.
SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# Writes of one commit; the queue has room for some thousands.
_SIZES: Final = tuple(float(2**exponent) for exponent in range(13))


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: `name` without the prefix, the names of its `labels`, the upper bounds of its `buckets`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def type(self) -> str:
        """The type in the text format. A count that the system keeps is set like a gauge, but only goes up."""
        return "counter" if self.name.endswith("_total") else self.kind.value


def _seconds(name: str, about: str, *labels: str) -> Family:
    return Family(name, Kind.HISTOGRAM, about, labels, SECONDS)


_HTTP: Final = (
    Family("http_requests_total", Kind.COUNTER, "Answered requests.", ("method", "route", "status")),
    _seconds("http_request_duration_seconds", "Time from a request's head to its answer.", "method", "route"),
    Family("http_connections", Kind.GAUGE, "Open connections."),
    Family("http_requests_in_flight", Kind.GAUGE, "Requests that are being served."),
    Family("http_requests_parked", Kind.GAUGE, "Refusals that wait before they are sent."),
    Family("refused_total", Kind.COUNTER, "Requests that were refused, by the code of the problem.", ("code",)),
    Family("rate_limit_units_total", Kind.COUNTER, "Units that were charged to rate limits.", ("policy",)),
    Family("rate_limit_refused_total", Kind.COUNTER, "Requests over a rate limit.", ("policy",)),
    _seconds("loop_lag_seconds", "Event-loop lag: how late a 10 ms timer fires."),
)
_DATABASE: Final = (
    _seconds("commit_duration_seconds", "Time of a commit, with its fsync."),
    Family("write_group_size", Kind.HISTOGRAM, "Writes that were committed together.", (), _SIZES),
    Family("writes_waiting", Kind.GAUGE, "Writes that wait for the database."),
    _seconds("database_query_duration_seconds", "Time of a piece of work in a database.", "kind", "target"),
    Family("database_errors_total", Kind.COUNTER, "Work that a database did not do.", ("kind", "target")),
    Family("replica_lag_seconds", Kind.GAUGE, "Age of the data that a replica has.", ("replica",)),
    Family("sqlite_wal_bytes", Kind.GAUGE, "Length of SQLite's write-ahead log."),
)
_REGISTRY: Final = (
    _seconds("wasm_validation_seconds", "Time in which the bundle of an upload was checked."),
    Family("logins_total", Kind.COUNTER, "Attempts to log in.", ("outcome",)),
    Family("triggers_total", Kind.COUNTER, "Triggers that were sent, and deactivations.", ("outcome",)),
    Family("intent_moves_total", Kind.COUNTER, "Reports of operators about intents, by the status.", ("outcome",)),
    Family("runs_total", Kind.COUNTER, "Runs that operators sent, by result and status.", ("result", "status")),
    Family("run_conflicts_total", Kind.COUNTER, "Verdicts on a run that another verdict contradicts."),
)
_FEED: Final = (
    Family("tlog_entries", Kind.GAUGE, "Entries of the transparency log."),
    Family("tlog_signed_entries", Kind.GAUGE, "Entries of its last checkpoint."),
    Family("tlog_checkpoint_timestamp_seconds", Kind.GAUGE, "Time of its last checkpoint."),
    Family("tlog_halted", Kind.GAUGE, "1 while the transparency log is frozen or halted, otherwise 0."),
    Family("feed_streams", Kind.GAUGE, "Streams of the change feed, and polls that wait for it."),
    Family("feed_events_sent_total", Kind.COUNTER, "Events that were sent to streams."),
    Family("feed_streams_aborted_total", Kind.COUNTER, "Streams whose clients did not read."),
)
_WEBHOOKS: Final = (
    Family("webhook_attempts_total", Kind.COUNTER, "Requests to receivers of webhooks.", ("outcome",)),
    Family("webhooks", Kind.GAUGE, "Webhooks.", ("status",)),
    Family("webhook_backlog_seconds", Kind.GAUGE, "Age of the oldest event that waits for a receiver that answers."),
)
_CHAINS: Final = (
    _seconds("rpc_request_duration_seconds", "Time of a request to a node of a chain.", "chain"),
    Family("rpc_errors_total", Kind.COUNTER, "Requests to nodes of a chain that failed.", ("chain",)),
    Family("watcher_behind_blocks", Kind.GAUGE, "Blocks that the watcher has not read yet.", ("chain",)),
    Family("watcher_step_timestamp_seconds", Kind.GAUGE, "Time of the watcher's last step with a chain.", ("chain",)),
)
_TLOG: Final = (
    Family(
        "tlog_witness_answers_total", Kind.COUNTER, "Checkpoints of the transparency log that a witness was asked for.",
        ("witness", "outcome"),
    ),
)  # fmt: skip
_MACHINE: Final = (
    Family("disk_free_bytes", Kind.GAUGE, "Free room on the disk of the data directory."),
    Family("disk_size_bytes", Kind.GAUGE, "Size of the disk of the data directory."),
    Family("backup_age_seconds", Kind.GAUGE, "Age of the newest complete backup; absent without a backup."),
    Family("ready", Kind.GAUGE, "1 if requests can be served, else 0."),
    Family("build_info", Kind.GAUGE, "Always 1.", ("version",)),
    Family("process_cpu_seconds_total", Kind.GAUGE, "CPU time of the process."),
    Family("process_resident_memory_bytes", Kind.GAUGE, "Memory of the process."),
    Family("process_open_fds", Kind.GAUGE, "Open file descriptors of the process."),
    Family("process_start_time_seconds", Kind.GAUGE, "Start of the process, in seconds since 1970."),
)

FAMILIES: Final = (*_HTTP, *_DATABASE, *_REGISTRY, *_FEED, *_WEBHOOKS, *_CHAINS, *_TLOG, *_MACHINE)
BY_NAME: Final = {each.name: each for each in FAMILIES}
