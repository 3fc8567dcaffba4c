"""A process whose event loop is late refuses what can wait, and goes on with what cannot."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import httpx2

from service import Service

SECONDS_MAX = 60
# `muniment`, for which a nanosecond is too late.
_IMPATIENT = """
from muniment.service.running.limits import overload
from muniment.__main__ import main
assert len(overload.LEVELS_NS) == 3
overload.LEVELS_NS = (1, 1, 1)
main()
"""


def test_a_process_that_is_late_refuses_and_says_when_to_come_again(tmp_path: Path) -> None:
    with Service(tmp_path / "data", program=["-c", _IMPATIENT], sheds=True) as service:
        deadline = time.monotonic() + SECONDS_MAX
        while (refused := httpx2.get(f"{service.url}/functions?offset=1")).status_code != 503:
            assert time.monotonic() < deadline, refused.text
            time.sleep(0.05)
        assert (refused.json()["code"], refused.headers["retry-after"]) == ("overloaded", "1")
        assert httpx2.get(f"{service.url}/healthz").status_code == 200


def test_the_service_of_other_tests_is_never_late(tmp_path: Path) -> None:
    """Stopped and continued, as a busy machine does it, so that every timer is late by a third of a second."""
    statuses: set[int] = set()
    with Service(tmp_path / "data") as service:
        for _ in range(5):
            os.kill(service.pid, signal.SIGSTOP)
            time.sleep(0.3)
            os.kill(service.pid, signal.SIGCONT)
            statuses.add(httpx2.get(f"{service.url}/functions?offset=1").status_code)
    assert statuses == {200}
