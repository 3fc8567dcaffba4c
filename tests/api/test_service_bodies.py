"""Bodies and headers on the wire that no HTTP library would send, against the service as a process."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from builders import Wallet
from muniment.service.server.connection import LINGERING_BYTES_MAX
from service import Service

BODY_TIMEOUT_S = 1
ADDRESS = b'{"address":"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"}'


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    data_dir: Path = tmp_path_factory.mktemp("service") / "data"
    with Service(data_dir, environment={"MUNIMENT_BODY_TIMEOUT_S": str(BODY_TIMEOUT_S)}) as started:
        yield started


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One that gives a client the time that it takes on a busy machine."""
    with Service(tmp_path_factory.mktemp("patient") / "data") as started:
        yield started


@pytest.fixture
def connection(patient: Service) -> Iterator[socket.socket]:
    with patient.connect() as made:
        yield made


def head(path: str, *fields: bytes) -> bytes:
    lines = [f"POST {path} HTTP/1.1".encode(), b"Host: test", b"Content-Type: application/json", *fields]
    return b"\r\n".join([*lines, b"", b""])


def read_to_end(connection: socket.socket) -> bytes:
    """All that the service says until it closes the connection; a reset is an end as well."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(65_536):
            said += data
    return said


def is_served(service: Service) -> None:
    """Another client gets its nonce, without waiting for whoever else is connected.

    One that was itself kept waiting between the head and the body asks again.
    """
    body = {"address": Wallet(1).address}
    while (response := httpx2.post(f"{service.url}/users/nonce", json=body, timeout=60)).status_code == 408:
        pass
    assert response.status_code == 200


def push(connection: socket.socket, piece: bytes, bytes_max: int) -> int:
    """Send `piece` again and again until the service takes no more; how many bytes went away."""
    pushed = 0
    connection.settimeout(2)
    with contextlib.suppress(ConnectionError, TimeoutError):
        while pushed < bytes_max:
            pushed += connection.send(piece)
    connection.settimeout(60)
    return pushed


@pytest.mark.parametrize(
    ("fields", "piece"),
    [
        pytest.param((b"Content-Length: 52428800",), b" " * 65_536, id="length announced"),
        pytest.param((b"Transfer-Encoding: chunked",), b"10000\r\n" + b" " * 65_536 + b"\r\n", id="chunked"),
    ],
)
def test_of_50_mb_the_service_reads_little_and_answers_413(
    patient: Service, connection: socket.socket, fields: tuple[bytes, ...], piece: bytes
) -> None:
    connection.sendall(head("/users/nonce", *fields))
    pushed = push(connection, piece, 52_428_800)
    said = read_to_end(connection)
    assert said.startswith(b"HTTP/1.1 413 "), said[:200]
    assert b'"code":"body-too-large"' in said
    assert pushed < LINGERING_BYTES_MAX + 16 * 2**20, "what is dropped, what both kernels buffer, and no more"
    is_served(patient)


def test_an_ordinary_client_that_posts_50_mb_reads_the_413(patient: Service) -> None:
    response = httpx2.post(
        f"{patient.url}/triggers", content=b" " * 52_428_800, headers={"content-type": "application/json"}
    )
    assert response.status_code == 413
    assert response.json()["code"] == "body-too-large"


def test_a_byte_per_second_is_cut_off_and_others_are_served_meanwhile(running: Service) -> None:
    started = time.monotonic()
    said = b""
    with running.connect() as connection:
        connection.sendall(head("/users/nonce", b"Content-Length: 10240"))
        connection.settimeout(0.25)
        while not said and time.monotonic() - started < 60:
            connection.sendall(b" ")
            is_served(running)
            with contextlib.suppress(TimeoutError):
                said = connection.recv(65_536)
        connection.settimeout(60)
        elapsed = time.monotonic() - started
        said += read_to_end(connection)
    assert said.startswith(b"HTTP/1.1 408 "), said[:200]
    assert b"connection: close" in said
    assert b'"code":"request-timeout"' in said
    # Two clocks, which may differ by a little.
    assert BODY_TIMEOUT_S - 0.2 <= elapsed < BODY_TIMEOUT_S + 60


# Where something must be over in time, a machine that is busy with other things may take longer. If the service did it
# wrong, no attempt would succeed.
ATTEMPTS = 10


@pytest.mark.timed
def test_the_time_of_a_body_that_begins_late_does_not_begin_anew(running: Service) -> None:
    def seconds() -> float:
        started = time.monotonic()
        with running.connect() as connection:
            connection.sendall(head("/users/nonce", b"Content-Length: 10240"))
            time.sleep(0.8 * BODY_TIMEOUT_S)
            with contextlib.suppress(ConnectionError):
                connection.sendall(b" ")
            assert read_to_end(connection).startswith(b"HTTP/1.1 408 ")
        return time.monotonic() - started

    assert any(seconds() < 1.6 * BODY_TIMEOUT_S for _ in range(ATTEMPTS))


@pytest.mark.timed
def test_a_slow_body_that_keeps_its_pace_is_read(running: Service) -> None:
    content = ADDRESS.ljust(60_000)  # at 16 KiB a second it may take 3.7 s longer than the time-out

    def answer() -> bytes:
        with running.connect() as connection, contextlib.suppress(ConnectionError):
            connection.sendall(head("/users/nonce", b"Connection: close", b"Content-Length: 60000"))
            for start in range(0, 60_000, 10_000):
                connection.sendall(content[start : start + 10_000])
                time.sleep(0.35)
            return read_to_end(connection)
        return b""

    assert any(answer().startswith(b"HTTP/1.1 200 ") for _ in range(ATTEMPTS))


def test_a_body_that_ends_too_early_stores_nothing_and_harms_no_other_request(
    patient: Service, connection: socket.socket
) -> None:
    connection.sendall(head("/users/nonce", b"Content-Length: 10240") + ADDRESS)
    connection.close()
    is_served(patient)


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(b"x-auth-token: a\rb", id="CR"),
        pytest.param(b"x-auth-token: a\nx-injected b", id="LF and no field after it"),
        pytest.param(b"x-auth-token: a\r\n b", id="folded"),
        pytest.param(b"x-auth-token: a\0b", id="NUL"),
        pytest.param(b"x-auth-token : a", id="space before the colon"),
        pytest.param(b"x-auth-token: " + b"a" * 100_000, id="100 KB"),
        pytest.param(b"x-auth-token: a\r\nx-auth-token: b", id="twice"),
        pytest.param(b"x-auth-token: a\nx-auth-token: b", id="twice, by a bare LF"),
    ],
)
def test_a_token_with_line_ends_is_refused(patient: Service, connection: socket.socket, field: bytes) -> None:
    request = b"GET /users/api-key HTTP/1.1\r\nHost: test\r\nConnection: close\r\n" + field + b"\r\n\r\n"
    with contextlib.suppress(ConnectionError):
        connection.sendall(request)
    said = read_to_end(connection)
    assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 401 ", b"HTTP/1.1 431 ")), said[:200]
    assert b"x-injected" not in said
    is_served(patient)
