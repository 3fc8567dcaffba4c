"""A request's head comes in time and within its bound, or the connection ends."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from muniment.service.server.connection import LINGERING_BYTES_MAX
from muniment.service.server.reader import HEAD_BYTES_MAX
from service import Service

TIMEOUT_S = 1


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    data_dir: Path = tmp_path_factory.mktemp("heads") / "data"
    with Service(data_dir, environment={"MUNIMENT_BODY_TIMEOUT_S": str(TIMEOUT_S)}) as started:
        yield started


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One that gives a client the time that it takes on a busy machine."""
    with Service(tmp_path_factory.mktemp("patient") / "data") as started:
        yield started


def end_of(connection: socket.socket) -> bytes:
    said = b""
    try:
        while data := connection.recv(65_536):
            said += data
    except ConnectionError:  # a reset is an end as well
        pass
    return said


def is_served(running: Service) -> bool:
    """Whether another client is answered; one that was kept waiting between connection and request asks again."""
    while (answer := httpx2.get(f"{running.url}/healthz", timeout=60)).status_code == 408:
        pass
    return answer.status_code == 200


@pytest.mark.parametrize("begun", [b"", b"G", b"GET /healthz HTTP/1.1\r\nHost: test\r\n"], ids=["silence", "G", "half"])
def test_a_head_that_does_not_come_ends_the_connection(running: Service, begun: bytes) -> None:
    started = time.monotonic()
    with running.connect() as connection:
        connection.sendall(begun)
        assert end_of(connection).startswith(b"HTTP/1.1 408 ")
    assert TIMEOUT_S - 0.2 <= time.monotonic() - started < TIMEOUT_S + 60
    assert is_served(running)


def test_a_byte_now_and_then_gains_no_time(running: Service) -> None:
    """It takes a minute to send all of them."""
    sent, head = 0, b"GET /healthz HTTP/1.1\r\nX-Slow: " + b"x" * 600
    with running.connect() as connection, suppress(ConnectionError):
        for byte in head:
            connection.sendall(bytes([byte]))
            sent += 1
            time.sleep(0.1)
    assert sent < len(head)
    assert is_served(running)


def test_a_head_without_end_is_cut_off(patient: Service) -> None:
    line, sent = b"X-More: " + b"x" * 1_000 + b"\r\n", 0
    with patient.connect() as connection, suppress(ConnectionError):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: test\r\n")
        while sent < 100 * 2**20:
            connection.sendall(line)
            sent += len(line)
    assert sent < LINGERING_BYTES_MAX + 16 * 2**20, "what is dropped, what both kernels buffer, and no more"
    assert is_served(patient)


def test_a_head_just_over_the_bound_of_its_fields_is_still_named(patient: Service) -> None:
    fields = b"".join(b"X-%d: " % number + b"x" * 1_000 + b"\r\n" for number in range(40))
    assert len(fields) < HEAD_BYTES_MAX
    with patient.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: test\r\nConnection: close\r\n" + fields + b"\r\n")
        said = end_of(connection)
    assert said.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"headers-too-large"' in said
    assert is_served(patient)


def healthz(connection: socket.socket) -> bytes:
    """The answer, or what was said before the connection was closed."""
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n")
    said = b""
    while not said.endswith(b'{"status":"ok"}') and (piece := connection.recv(65_536)):
        said += piece
    return said


def test_requests_on_one_connection_go_on_after_pauses(running: Service) -> None:
    while healthz(connection := running.connect()).startswith(b"HTTP/1.1 408 "):
        connection.close()  # this process was kept waiting between the connection and the request
    with connection:
        for _ in range(2):
            time.sleep(TIMEOUT_S * 1.2)  # an idle connection owes nothing
            said = healthz(connection)
            assert said.startswith(b"HTTP/1.1 200 ")
            assert said.endswith(b'{"status":"ok"}')
