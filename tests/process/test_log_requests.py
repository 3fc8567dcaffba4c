"""The lines about requests in the log of real service processes, and how an outage shows there."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from builders import TriggerDraft, Wallet, deploy
from postgres import Cluster
from service import Service

pytestmark = pytest.mark.long

FIELDS = {
    "timestamp", "level", "event", "method", "route", "path", "status", "ms", "request_id", "client", "units",
}  # fmt: skip
REQUESTS = 1_000


def lines_of(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capfd.readouterr().err.splitlines()]


def logged(capfd: pytest.CaptureFixture[str], data_dir: Path, paths: Sequence[str], **settings: str) -> list[Any]:
    """The lines about requests for `paths`, with rate limits as they are by default."""
    environment = {
        "MUNIMENT_LOG_FORMAT": "json", "MUNIMENT_LOG_LEVEL": "info", "MUNIMENT_RATE_LIMIT_CLIENT": "20000/20s",
        **settings,
    }  # fmt: skip
    with Service(data_dir, environment=environment) as service, httpx2.Client(base_url=service.url) as client:
        capfd.readouterr()
        for path in paths:
            client.get(path, headers={"x-request-id": "mine"})
    return [line for line in lines_of(capfd) if line.get("request_id") == "mine"]


def test_a_line_has_every_field(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    paths = ["/functions?limit=100", "/nowhere?token=hidden", "/triggers/0x00"]
    listed, nowhere, refused = logged(capfd, tmp_path / "data", paths, MUNIMENT_LOG_REQUESTS="all")
    assert set(listed) == FIELDS
    assert set(nowhere) == set(refused) == FIELDS | {"code"}
    assert (listed["route"], listed["path"], listed["status"]) == ("/functions", "/functions", 200)
    assert (listed["client"], listed["units"]) == ("127.0.0.1", 8)
    assert (nowhere["route"], nowhere["path"], nowhere["code"]) == ("", "/nowhere", "unknown-path")
    assert (refused["route"], refused["status"]) == ("/triggers/{sig}", 400)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, 0),
        ({"MUNIMENT_LOG_REQUESTS": "all"}, 2),
        ({"MUNIMENT_LOG_REQUESTS": "none"}, 0),
        ({"MUNIMENT_LOG_REQUESTS": "errors"}, 0),
        ({"MUNIMENT_LOG_REQUESTS": "slow", "MUNIMENT_LOG_SLOW_MS": "60000"}, 0),
    ],
)
def test_only_the_wanted_requests_are_logged(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], settings: dict[str, str], wanted: int
) -> None:
    assert len(logged(capfd, tmp_path / "data", ["/functions", "/nowhere"], **settings)) == wanted


async def test_an_outage_of_the_database_under_a_thousand_requests_is_a_handful_of_lines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Cluster() as cluster:
        environment = {
            "MUNIMENT_DATABASE_URL": cluster.url(), "MUNIMENT_MIGRATE_AT_START": "true",
            "MUNIMENT_LOG_FORMAT": "json", "MUNIMENT_LOG_REQUESTS": "errors",
        }  # fmt: skip
        with Service(tmp_path / "data", environment=environment) as service:
            async with httpx2.AsyncClient(base_url=service.url) as client:
                trigger = TriggerDraft(await deploy(client), Wallet(11)).signed()
            capfd.readouterr()
            cluster.kill()
            began = time.monotonic()
            statuses = ask(service.url, trigger)
            assert service.stop(signal.SIGTERM) == 0
            tens = int((time.monotonic() - began) / 10)
    assert set(statuses) == {503}
    lines = lines_of(capfd)
    assert len(lines) <= 20 + 8 * tens, lines  # each kind has a line in ten seconds
    assert "database-unavailable" in {line.get("code") for line in lines}
    requests = [line for line in lines if line["event"] == "request"]
    assert sum(line.get("repeated", 1) for line in requests) == REQUESTS, "the counts lose no request"


def ask(url: str, trigger: dict[str, Any]) -> list[int]:
    """The statuses of a thousand reads and creates by eight clients."""

    def some(number: int) -> list[int]:
        with httpx2.Client(base_url=url, timeout=60) as client:
            return [
                (client.post("/triggers", json=trigger) if each % 4 == number % 4 else client.get("/triggers"))
                .status_code
                for each in range(REQUESTS // 8)
            ]  # fmt: skip

    with ThreadPoolExecutor(8) as threads:
        return [status for statuses in threads.map(some, range(8)) for status in statuses]
