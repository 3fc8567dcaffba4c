"""A request's head comes in time and within its bound, or the connection ends (bad input 66)."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from muniment.cli.connections import HEAD_BYTES_MAX
from service import Service

TIMEOUT_S = 1


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    data_dir: Path = tmp_path_factory.mktemp("heads") / "data"
    with Service(data_dir, environment={"MUNIMENT_BODY_TIMEOUT_S": str(TIMEOUT_S)}) as started:
        yield started


@pytest.fixture
def connection(running: Service) -> Iterator[socket.socket]:
    where = urlsplit(running.url)
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=20) as made:
        yield made


def end_of(connection: socket.socket) -> bytes:
    said = b""
    try:
        while data := connection.recv(65_536):
            said += data
    except ConnectionError:  # a reset is an end as well
        pass
    return said


def is_served(running: Service) -> bool:
    return httpx.get(f"{running.url}/healthz", timeout=5).status_code == 200


@pytest.mark.parametrize("begun", [b"", b"G", b"GET /healthz HTTP/1.1\r\nHost: test\r\n"], ids=["silence", "G", "half"])
def test_a_head_that_does_not_come_ends_the_connection(
    running: Service, connection: socket.socket, begun: bytes
) -> None:
    started = time.monotonic()
    connection.sendall(begun)
    assert end_of(connection).startswith(b"HTTP/1.1 408 ")
    assert TIMEOUT_S - 0.2 <= time.monotonic() - started < TIMEOUT_S + 5
    assert is_served(running)


def test_a_byte_now_and_then_gains_no_time(running: Service, connection: socket.socket) -> None:
    started = time.monotonic()
    try:
        for byte in b"GET /healthz HTTP/1.1\r\nX-Slow: " + b"x" * 100:
            connection.sendall(bytes([byte]))
            time.sleep(0.1)
    except ConnectionError:
        pass
    assert time.monotonic() - started < TIMEOUT_S + 5
    assert is_served(running)


def test_a_head_without_end_is_cut_off(running: Service, connection: socket.socket) -> None:
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: test\r\n")
    line, sent = b"X-More: " + b"x" * 1_000 + b"\r\n", 0
    try:
        while sent < 100 * 2**20:
            connection.sendall(line)
            sent += len(line)
    except ConnectionError:
        pass
    assert sent < 16 * 2**20, "what both kernels buffer, and no more"
    assert is_served(running)


def test_a_head_just_over_the_bound_of_its_fields_is_still_named(running: Service, connection: socket.socket) -> None:
    fields = b"".join(b"X-%d: " % number + b"x" * 1_000 + b"\r\n" for number in range(40))
    assert len(fields) < HEAD_BYTES_MAX
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: test\r\nConnection: close\r\n" + fields + b"\r\n")
    said = end_of(connection)
    assert said.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"headers-too-large"' in said
    assert is_served(running)


def test_requests_on_one_connection_go_on_after_pauses(connection: socket.socket) -> None:
    for _ in range(3):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n")
        said = b""
        while not said.endswith(b'{"status":"ok"}'):
            piece = connection.recv(65_536)
            assert piece, "the connection was closed"
            said += piece
        assert said.startswith(b"HTTP/1.1 200 ")
        time.sleep(TIMEOUT_S * 1.2)  # an idle connection owes nothing
