"""For each alert, series that make it fire and series that do not. Values are those of every minute, from minute 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MACHINE: Final = 'job="muniment", instance="registry:8787"'


@dataclass(frozen=True)
class Case:
    """`firing` and `silent`: name and further labels of a series to its values, in the notation of promtool."""

    alert: str
    summary: str
    firing: dict[str, str]
    silent: dict[str, str]
    # The labels of the alert beside those of the machine.
    labels: str = ""
    minute: int = 30

    def series(self, *, is_firing: bool) -> list[dict[str, str]]:
        """`input_series` of promtool."""
        chosen = self.firing if is_firing else self.silent
        return [{"series": _with_machine(name), "values": values} for name, values in chosen.items()]


def _with_machine(series: str, machine: str = MACHINE) -> str:
    name, _, labels = series.rstrip("}").partition("{")
    return f"{name}{{{', '.join(filter(None, (machine, labels)))}}}"


def _gauge(alert: str, summary: str, name: str, values: tuple[str, str], labels: str = "") -> Case:
    series = f"{name}{{{labels}}}"
    return Case(alert, summary, {series: values[0]}, {series: values[1]}, labels)


def _reads(within_50_ms: int, within_100_ms: int) -> dict[str, str]:
    """Reads in a minute, of which some take longer than 50 ms; a download and a poll take as long as they want."""
    labels = 'method="GET", route="/triggers", le='
    name = "muniment_http_request_duration_seconds_bucket"
    return {
        f'{name}{{{labels}"0.05"}}': f"0+{within_50_ms}x60",
        f'{name}{{{labels}"0.1"}}': f"0+{within_100_ms}x60",
        f'{name}{{{labels}"+Inf"}}': f"0+{within_100_ms}x60",
        f'{name}{{method="GET", route="/events", le="10"}}': "0x60",
        f'{name}{{method="GET", route="/events", le="+Inf"}}': "0+900x60",
        f'{name}{{method="GET", route="/ipfs/{{cid}}", le="10"}}': "0x60",
        f'{name}{{method="GET", route="/ipfs/{{cid}}", le="+Inf"}}': "0+9000x60",
    }


def _answers(of_200: int, of_503: int, unready: int, strange: int) -> dict[str, str]:
    """Answers in a minute; answers of /readyz and to a client that speaks HTTP/2 are no faults of the service."""
    name = "muniment_http_requests_total"
    return {
        f'{name}{{method="GET", route="/triggers", status="200"}}': f"0+{of_200}x60",
        f'{name}{{method="POST", route="/triggers", status="503"}}': f"0+{of_503}x60",
        f'{name}{{method="GET", route="/readyz", status="503"}}': f"0+{unready}x60",
        f'{name}{{method="other", route="unmatched", status="505"}}': f"0+{strange}x60",
    }


def _calls(failed: int, made: int) -> dict[str, str]:
    """Requests to nodes in a minute."""
    return {
        'muniment_rpc_errors_total{chain="8453"}': f"0+{failed}x60",
        'muniment_rpc_request_duration_seconds_count{chain="8453"}': f"0+{made}x60",
    }


CASES: Final = (
    _gauge("MunimentDown", "registry:8787 does not answer /metrics", "up", ("1x20 0x20", "1x20 0 1x20")),
    _gauge("MunimentNotReady", "registry:8787 is not ready", "muniment_ready", ("1x20 0x20", "1x20 0 1x20")),
    Case(
        "MunimentServerErrors", "registry:8787 answers 2% of its requests with 5xx",
        _answers(970, 20, 0, 10), _answers(895, 5, 900, 100),
    ),
    Case(
        "MunimentReadsSlow", "The 99th percentile of reads is 75ms at registry:8787",
        _reads(980, 1000), _reads(995, 1000),
    ),
    _gauge(
        "MunimentOverloaded", "registry:8787 has refused requests under overload for ten minutes",
        "muniment_refused_total", ("0+30x60", "0x20 0+30x4 150x40"), 'code="overloaded"',
    ),
    _gauge(
        "MunimentWritesWaiting", "501 writes wait for the database at registry:8787",
        "muniment_writes_waiting", ("501x60", "500x60"),
    ),
    _gauge(
        "MunimentWalLarge", "SQLite's write-ahead log has 1.5GiB at registry:8787",
        "muniment_sqlite_wal_bytes", ("1610612736x60", "1073741824x60"),
    ),
    Case(
        "MunimentDiskFull", "The disk of registry:8787 has 9% left",
        {"muniment_disk_free_bytes": "9000x60", "muniment_disk_size_bytes": "100000x60"},
        {"muniment_disk_free_bytes": "10000x60", "muniment_disk_size_bytes": "100000x60"},
    ),
    _gauge(
        "MunimentReplicaLate", "The replica second is 6s late",
        "muniment_replica_lag_seconds", ("6x60", "5x60"), 'replica="second"',
    ),
    Case(  # a replica that nobody reads from has no lag; one that was restarted failed for a minute
        "MunimentReplicaGone", "Reads of registry:8787 from replica-2 fail",
        {'muniment_database_errors_total{kind="read", target="replica-2"}': "0x5 1+30x60"},
        {
            'muniment_database_errors_total{kind="read", target="replica-2"}': "0x20 30 60x60",
            'muniment_database_errors_total{kind="read", target="primary"}': "0+30x60",
            'muniment_replica_lag_seconds{replica="2"}': "0x10 stale _x60",
        },
        'target="replica-2"',
    ),
    _gauge(
        "MunimentWatcherBehind", "Chain 8453 is not followed to its head",
        "muniment_watcher_behind_blocks", ("101x60", "100x60"), 'chain="8453"',
    ),
    Case(  # one that was restarted is back in time
        "MunimentWatcherGone", "No watcher follows chain 8453",
        {'muniment_watcher_behind_blocks{chain="8453"}': "0x10 stale _x60"},
        {'muniment_watcher_behind_blocks{chain="8453"}': "0x16 stale _x6 0x60"},
        'chain="8453"',
    ),
    Case(
        "MunimentChainUnreadable", "Chain 8453 is not read: its nodes fail, or its watcher does not ask them",
        _calls(60, 60), _calls(30, 60), 'chain="8453"',
    ),
    _gauge(
        "MunimentWebhooksLate",
        "Webhooks of registry:8787 get events 6m 40s late, although their receivers answer",
        "muniment_webhook_backlog_seconds", ("400x60", "299x60"),
    ),
    _gauge(
        "MunimentLogHalted", "The transparency log of registry:8787 has stopped: new records are not logged",
        "muniment_tlog_halted", ("1x60", "0x60"),
    ),
    Case(
        "MunimentLogLate", "The transparency log of registry:8787 was not signed for 15m 0s",
        {"muniment_tlog_checkpoint_timestamp_seconds": "900x60", "muniment_tlog_halted": "0x60"},
        {"muniment_tlog_checkpoint_timestamp_seconds": "0+60x60", "muniment_tlog_halted": "0x60"},
    ),
    _gauge(
        "MunimentBackupOld", "The newest backup of registry:8787 is 1d 2h 30m 0s old",
        "muniment_backup_age_seconds", ("95400x60", "93600x60"),
    ),
)  # fmt: skip

# The alerts about chains, and what a watcher shows that has stopped at minute 10, or that goes on.
OF_CHAINS: Final = tuple(case for case in CASES if 'chain="8453"' in case.labels)
_WATCHER: Final = 'job="muniment-watcher", instance="registry:9466"'


def _watcher(behind: str, steps: str, asked: str, failed: str, up: str) -> list[dict[str, str]]:
    values = {
        'muniment_watcher_behind_blocks{chain="8453"}': behind,
        'muniment_watcher_step_timestamp_seconds{chain="8453"}': steps,
        'muniment_rpc_request_duration_seconds_count{chain="8453"}': asked,
        'muniment_rpc_errors_total{chain="8453"}': failed,
        "up": up,
    }
    return [{"series": _with_machine(name, _WATCHER), "values": each} for name, each in values.items()]


WATCHERS: Final = {
    "its target is down": _watcher(
        "0x10 stale _x60", "0+60x10 stale _x60", "0+20x10 stale _x60", "0x10 stale _x60", "1x10 0x60"
    ),
    "it hangs": _watcher("0x70", "0+60x10 600x60", "0+20x10 200x60", "0x70", "1x70"),
    "it goes on": _watcher("0x70", "0+60x70", "0+20x70", "0x70", "1x70"),
}
