"""GET /metrics of the service as a process: after a restart, a backup, gauges of the process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import httpx2

import warm
from scraped import Scraped
from service import START_SECONDS_MAX, Service

REQUESTS = 60


def scraped(service: Service) -> Scraped:
    """The metrics, on a new connection."""
    answer = httpx2.get(f"{service.url}/metrics")
    assert answer.status_code == 200
    return Scraped(answer.text)


def listed(service: Service) -> float:
    return scraped(service).value("http_requests_total", method="GET", route="/functions", status="200") or 0


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ask(service: Service) -> None:
    for _ in range(REQUESTS):
        assert httpx2.get(f"{service.url}/functions").status_code == 200


def test_counts_begin_at_0_after_a_restart_and_no_file_has_them(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service:
        ask(service)
        assert listed(service) == REQUESTS
    assert not [*(tmp_path / "data").glob("metrics*")]
    with Service(tmp_path / "data") as service:
        assert listed(service) == 0
        found = scraped(service)
        assert (found.value("http_connections"), found.value("run_conflicts_total")) == (1, 0)


def test_a_process_shows_what_it_uses(service: Service) -> None:
    found = scraped(service)
    assert 0 < (found.value("process_cpu_seconds_total") or 0) < 1_000
    assert 20e6 < (found.value("process_resident_memory_bytes") or 0) < 1e9
    assert (found.value("process_open_fds") or 0) > 3
    started_s = found.value("process_start_time_seconds") or 0
    assert abs(time.time() - started_s) < START_SECONDS_MAX + 60


def test_a_backup_shows_its_age(service: Service, tmp_path: Path) -> None:
    assert warm.run("backup", tmp_path / "backup", data=service.data_dir).returncode == 0
    age_s = scraped(service).value("backup_age_seconds")
    assert age_s is not None
    assert age_s < START_SECONDS_MAX


def test_connections_are_counted(service: Service) -> None:
    opened = [service.connect() for _ in range(3)]
    try:
        wait_for(lambda: scraped(service).value("http_connections") == 4)
    finally:
        for connection in opened:
            connection.close()
    wait_for(lambda: scraped(service).value("http_connections") == 1)


def test_a_request_that_cannot_be_read_is_counted(service: Service) -> None:
    with service.connect() as connection:
        connection.sendall(b"GET /\x00 HTTP/1.1\r\n\r\n")
        assert connection.recv(64).startswith(b"HTTP/1.1 400")
    found = scraped(service)
    assert found.value("refused_total", code="malformed-request") == 1
    assert found.value("http_requests_total", method="GET", route="unmatched", status="400") == 1
