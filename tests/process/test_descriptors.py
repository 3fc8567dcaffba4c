"""A service that has no file descriptor left: it says so, serves open connections, and recovers by itself."""

from __future__ import annotations

import resource
from pathlib import Path

import httpx2

from answers import ok, until_ready
from service import Service


def use_up_descriptors(pid: int) -> None:
    """Let the process have none beyond those that it has: new ones take the lowest free number (getrlimit(2))."""
    used = {int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()}
    lowest_free = next(number for number in range(len(used) + 1) if number not in used)
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free, hard))


def test_without_descriptors_a_process_is_not_ready_and_says_why_until_there_are_some(tmp_path: Path) -> None:
    with Service(tmp_path / "data") as service, httpx2.Client(base_url=service.url, trust_env=False) as client:
        until_ready(client)
        before = resource.prlimit(service.pid, resource.RLIMIT_NOFILE)

        use_up_descriptors(service.pid)
        refused = client.get("/readyz")
        assert (refused.status_code, refused.json()["code"]) == (503, "not-ready"), refused.text
        assert "Too many open files" in refused.json()["detail"]
        assert ok(client.get("/triggers")).json() == []

        resource.prlimit(service.pid, resource.RLIMIT_NOFILE, before)
        until_ready(client)
