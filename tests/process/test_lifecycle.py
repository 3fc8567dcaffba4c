"""How the service starts and stops."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from answers import ok
from builders import Bundle, TriggerDraft, signed_in
from muniment.service.running.settings import Settings
from service import LOADED_ANEW, Service

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path / "data") as started:
        yield started


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come to pass"
        time.sleep(0.02)


class SlowUpload:
    """A POST /functions whose body stops half-way until it is finished. The service is waiting for the rest of it."""

    def __init__(self, url: str, api_key: str, version: str) -> None:
        request = httpx2.Request(
            "POST",
            f"{url}/functions",
            files=Bundle(version=version).files,
            headers={"x-api-key": api_key, "expect": "100-continue"},
        )
        body = request.read()
        head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
        self._socket = socket.create_connection((request.url.host, request.url.port or 80), timeout=60)
        self._socket.sendall(f"POST /functions HTTP/1.1\r\n{head}\r\n".encode())
        go_on = b""
        while not go_on.endswith(b"\r\n\r\n"):
            go_on += (piece := self._socket.recv(1))
            assert piece, "the connection was closed"
        assert go_on.startswith(b"HTTP/1.1 100 "), go_on
        self._socket.sendall(body[:100])
        self._rest = body[100:]

    def finish(self) -> dict[str, Any]:
        """Send the rest; the record that is answered."""
        self._socket.sendall(self._rest)
        with self._socket.makefile("rb") as answer:
            head, _, body = answer.read().partition(b"\r\n\r\n")
        self._socket.close()
        assert head.startswith(b"HTTP/1.1 200 "), head
        return json.loads(body)


@contextmanager
def load(url: str, cid: str) -> Generator[list[dict[str, Any]]]:
    """Triggers are posted until the service is gone; those that were answered."""
    answered: list[dict[str, Any]] = []

    def post() -> None:
        for number in range(2_000):
            body = TriggerDraft(cid, version=f"1.0.{number}").signed()
            try:
                response = httpx2.post(f"{url}/triggers", json=body)
            except httpx2.TransportError:
                return
            assert response.status_code == 200
            answered.append(response.json())

    thread = threading.Thread(target=post)
    thread.start()
    yield answered
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("number", SIGNALS, ids=lambda each: each.name)
def test_requests_in_flight_are_finished_and_the_status_is_0(serving: Service, number: signal.Signals) -> None:
    api_key, cid = asyncio.run(signed_in(serving.url))
    uploads = [SlowUpload(serving.url, api_key, f"2.0.{each}") for each in range(3)]
    with load(serving.url, cid) as answered:
        until(lambda: len(answered) > 5)
        os.kill(serving.pid, number)
        time.sleep(1)
        records = [upload.finish() for upload in uploads]
        assert serving.wait() == 0
    with serving:
        assert [ok(httpx2.get(f"{serving.url}/functions/{each['CID']}")).json() for each in records] == records
        for trigger in answered:
            assert ok(httpx2.get(f"{serving.url}/triggers/{trigger['sig']}")).json() == trigger


def test_a_process_that_is_to_stop_is_not_ready_first(tmp_path: Path) -> None:
    with Service(tmp_path / "data", environment={"MUNIMENT_SHUTDOWN_DELAY_S": "600"}) as service:
        os.kill(service.pid, signal.SIGTERM)
        seen = list[httpx2.Response]()  # it may hear of the signal later

        def is_refused() -> bool:
            seen.append(httpx2.get(f"{service.url}/readyz"))
            return seen[-1].status_code == 503

        until(is_refused)
        assert seen[-1].json()["code"] == "not-ready"
        assert "retry-after" in seen[-1].headers
        assert httpx2.get(f"{service.url}/healthz").status_code == 200
        assert ok(httpx2.get(f"{service.url}/triggers")).json() == []
        service.kill()  # nobody waits for the end of that delay


def test_a_process_that_is_to_stop_stops_after_the_delay(tmp_path: Path) -> None:
    delay_s = 1
    with Service(tmp_path / "data", environment={"MUNIMENT_SHUTDOWN_DELAY_S": str(delay_s)}) as service:
        started = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - started > delay_s


@pytest.mark.timed
def test_a_request_that_never_ends_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    with Service(tmp_path / "data", environment={"MUNIMENT_SHUTDOWN_TIMEOUT_S": "1"}) as service:
        api_key, _ = asyncio.run(signed_in(service.url))
        upload = SlowUpload(service.url, api_key, "2.0.0")
        started = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - started < Settings().shutdown_timeout_s, "what is said is heeded"
        with pytest.raises((AssertionError, OSError)):
            upload.finish()


# SIGTERM comes after this program has taken over the signal, and before uvicorn has.
_SIGNALLED_EARLY = """
import os, signal, uvicorn
run = uvicorn.Server.run
uvicorn.Server.run = lambda *arguments: (os.kill(os.getpid(), signal.SIGTERM), run(*arguments))
from muniment.__main__ import main
main()
"""


def test_a_signal_that_comes_before_the_server_runs_stops_it(tmp_path: Path) -> None:
    service = Service(tmp_path / "data", program=["-c", _SIGNALLED_EARLY])
    service.launch()
    assert service.wait() == 0


@pytest.mark.parametrize("pause", [0.0, 0.2, 0.4, 0.6])
def test_a_signal_while_it_starts_is_not_lost(tmp_path: Path, pause: float) -> None:
    service = Service(tmp_path / "data", program=LOADED_ANEW)
    service.launch()
    assert service.process is not None
    time.sleep(pause)
    assert service.stop() in {0, -signal.SIGTERM}  # by the system itself, as long as Python has nothing to put in order


def test_a_second_start_finds_the_data_of_the_first(serving: Service) -> None:
    api_key, cid = asyncio.run(signed_in(serving.url))
    record = ok(httpx2.get(f"{serving.url}/functions/{cid}")).json()
    assert serving.stop() == 0
    with serving:
        assert ok(httpx2.get(f"{serving.url}/functions")).json() == [record]
        assert asyncio.run(signed_in(serving.url)) == (api_key, cid)
