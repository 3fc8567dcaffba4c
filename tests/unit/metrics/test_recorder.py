"""Counting in one process: requests, histograms, gauges that are read, names and labels."""

from __future__ import annotations

import pytest

from muniment.service.running.metrics.exposition import render
from muniment.service.running.metrics.families import FAMILIES, PREFIX, SECONDS
from muniment.service.running.metrics.recorder import Metrics
from scraped import Scraped


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def scraped(metrics: Metrics) -> Scraped:
    return Scraped(render(metrics).decode())


def test_a_request_is_counted_by_status_and_its_time_by_route(metrics: Metrics) -> None:
    for status, seconds in ((200, 0.0001), (200, 0.3), (404, 60.0)):
        metrics.requests.record("GET", "/triggers/{sig}", status, seconds)
    found = scraped(metrics)
    of = {"method": "GET", "route": "/triggers/{sig}"}
    assert found.value("http_requests_total", **of, status="200") == 2
    assert found.value("http_requests_total", **of, status="404") == 1
    name = "http_request_duration_seconds"
    assert found.value(f"{name}_bucket", **of, le="0.0001") == 1
    assert found.value(f"{name}_bucket", **of, le="0.25") == 1
    assert found.value(f"{name}_bucket", **of, le="0.5") == 2
    assert found.value(f"{name}_bucket", **of, le="10") == 2
    assert found.value(f"{name}_bucket", **of, le="+Inf") == found.value(f"{name}_count", **of) == 3
    assert found.value(f"{name}_sum", **of) == pytest.approx(60.3001)


def test_the_quick_count_of_requests_has_the_layout_of_a_histogram(metrics: Metrics) -> None:
    """It is written for speed and knows the number of buckets."""
    metrics.requests.record("GET", "/quick", 200, 0.02)
    metrics.histogram("http_request_duration_seconds", method="GET", route="/slow").observe(0.02)
    found = scraped(metrics)
    for part in ("_sum", "_count", *(f"_bucket {bound:g}" for bound in SECONDS)):
        name, _, bound = part.partition(" ")
        of = {"method": "GET", **({"le": bound} if bound else {})}
        quick, slow = (
            found.value(f"http_request_duration_seconds{name}", route=route, **of) for route in ("/quick", "/slow")
        )
        assert quick == slow is not None


@pytest.mark.parametrize("method", ["BREW", "get", "X" * 500, 'GET"\n', ""])
def test_a_method_that_no_operation_has_is_one_label(metrics: Metrics, method: str) -> None:
    metrics.requests.record_refused(method, "unmatched", 404)
    assert scraped(metrics).value("http_requests_total", method="other", route="unmatched", status="404") == 1


def test_every_metric_has_its_help_and_its_type_before_anything_is_counted(metrics: Metrics) -> None:
    lines = render(metrics).decode().splitlines()
    for family in FAMILIES:
        assert f"# TYPE {PREFIX}{family.name} {family.type}" in lines
        assert f"# HELP {PREFIX}{family.name} {family.help}" in lines


def test_a_count_begins_at_0_once_somebody_wants_to_count(metrics: Metrics) -> None:
    assert scraped(metrics).value("commit_duration_seconds_count") is None
    metrics.histogram("commit_duration_seconds")
    metrics.counter("logins_total", outcome="failed")
    assert scraped(metrics).value("commit_duration_seconds_count") == 0
    assert scraped(metrics).value("logins_total", outcome="failed") == 0


def test_who_asks_twice_for_a_series_counts_in_one(metrics: Metrics) -> None:
    for _ in range(2):
        metrics.counter("runs_total", result="intents", status="valid").add()
        metrics.counter("runs_total", status="valid", result="intents").add()
        metrics.histogram("commit_duration_seconds").observe(0.2)
        metrics.gauge("webhooks", status="active").set(7)
    found = scraped(metrics)
    assert found.value("runs_total", result="intents", status="valid") == 4
    assert found.value("commit_duration_seconds_count") == 2
    assert found.value("webhooks", status="active") == 7


def test_label_values_come_back_as_they_were_given(metrics: Metrics) -> None:
    metrics.gauge("build_info", version='1.0 "a\\b"\nc').set(1)
    assert scraped(metrics).value("build_info", version='1.0 "a\\b"\nc') == 1


def test_a_gauge_that_was_never_set_is_absent(metrics: Metrics) -> None:
    entries = metrics.gauge("tlog_entries")
    assert scraped(metrics).value("tlog_entries") is None
    entries.set(0)
    assert scraped(metrics).value("tlog_entries") == 0
    entries.forget()
    assert scraped(metrics).value("tlog_entries") is None


def test_numbers_of_other_rooms_are_read_at_every_look(metrics: Metrics) -> None:
    numbers = {"gauge": 3.0, "count": 5.0}
    metrics.read_from(lambda: numbers["gauge"], "http_connections")
    metrics.read_from(lambda: numbers["count"], "rate_limit_units_total", policy="client")
    numbers.update(gauge=2.5, count=9.0)
    for _ in range(2):
        assert scraped(metrics).value("http_connections") == 2.5
        assert scraped(metrics).value("rate_limit_units_total", policy="client") == 9


def test_a_name_or_label_that_is_not_declared_is_an_error(metrics: Metrics) -> None:
    with pytest.raises(KeyError):
        metrics.counter("no_such_metric")
    with pytest.raises(KeyError):
        metrics.counter("refused_total", reason="x")
