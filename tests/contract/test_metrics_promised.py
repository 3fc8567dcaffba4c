"""Names, types and labels of GET /metrics, and the page that explains them."""

from __future__ import annotations

import re

from golden import ROOT

from each_row import each_row
from muniment.service.running.metrics.families import FAMILIES, PREFIX

# Dashboards and alerts of operators name these. A name may be added; none may change or go.
PROMISED = {
    "http_requests_total": ("counter", "method", "route", "status"),
    "http_request_duration_seconds": ("histogram", "method", "route"),
    "http_connections": ("gauge",),
    "http_requests_in_flight": ("gauge",),
    "http_requests_parked": ("gauge",),
    "refused_total": ("counter", "code"),
    "rate_limit_units_total": ("counter", "policy"),
    "rate_limit_refused_total": ("counter", "policy"),
    "loop_lag_seconds": ("histogram",),
    "commit_duration_seconds": ("histogram",),
    "write_group_size": ("histogram",),
    "wasm_validation_seconds": ("histogram",),
    "writes_waiting": ("gauge",),
    "sqlite_wal_bytes": ("gauge",),
    "disk_free_bytes": ("gauge",),
    "disk_size_bytes": ("gauge",),
    "backup_age_seconds": ("gauge",),
    "ready": ("gauge",),
    "database_query_duration_seconds": ("histogram", "kind", "target"),
    "database_errors_total": ("counter", "kind", "target"),
    "replica_lag_seconds": ("gauge", "replica"),
    "logins_total": ("counter", "outcome"),
    "triggers_total": ("counter", "outcome"),
    "intent_moves_total": ("counter", "outcome"),
    "runs_total": ("counter", "result", "status"),
    "run_conflicts_total": ("counter",),
    "tlog_entries": ("gauge",),
    "tlog_signed_entries": ("gauge",),
    "tlog_checkpoint_timestamp_seconds": ("gauge",),
    "tlog_halted": ("gauge",),
    "feed_streams": ("gauge",),
    "feed_events_sent_total": ("counter",),
    "feed_streams_aborted_total": ("counter",),
    "webhook_attempts_total": ("counter", "outcome"),
    "webhooks": ("gauge", "status"),
    "webhook_backlog_seconds": ("gauge",),
    "rpc_request_duration_seconds": ("histogram", "chain"),
    "rpc_errors_total": ("counter", "chain"),
    "watcher_behind_blocks": ("gauge", "chain"),
    "watcher_step_timestamp_seconds": ("gauge", "chain"),
    "tlog_witness_answers_total": ("counter", "witness", "outcome"),
    "build_info": ("gauge", "version"),
    "process_cpu_seconds_total": ("counter",),
    "process_resident_memory_bytes": ("gauge",),
    "process_open_fds": ("gauge",),
    "process_start_time_seconds": ("gauge",),
}
_ROW = re.compile(r"^\| `(?P<name>[a-z_]+)` \| (?P<type>[a-z]+) \|(?P<labels>[^|]*)\| [^|]+ \|$", re.MULTILINE)


def test_every_promised_metric_has_its_type_and_its_labels() -> None:
    assert {family.name: (family.type, *family.labels) for family in FAMILIES} == PROMISED


def test_requests_have_the_promised_buckets() -> None:
    (family,) = (each for each in FAMILIES if each.name == "http_request_duration_seconds")
    assert len(family.buckets) == 16
    assert (family.buckets[0], family.buckets[-1]) == (0.0001, 10)


def test_the_page_explains_every_metric() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    shown = {
        row["name"]: (row["type"], *re.findall(r"`([a-z]+)`", row["labels"])) for row in _ROW.finditer(page)
    }  # fmt: skip
    assert shown == {PREFIX + name: promise for name, promise in PROMISED.items()}


@each_row("family", FAMILIES, ids=[each.name for each in FAMILIES])
def test_a_label_names_a_small_set_and_never_a_person(family: object) -> None:
    labels: tuple[str, ...] = getattr(family, "labels")  # noqa: B009 - the id of the test is the name alone
    known = {"method", "route", "status", "code", "policy", "kind", "target", "replica", "outcome", "chain", "version"}
    assert set(labels) <= known | {"witness", "result"}
