"""What a service does when its descriptors are used up, first by connections and then by whatever else."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path

from server import get
from stage import Stage, serving

# Below what a service needs for the connections that come, and above what it needs to start.
_DESCRIPTORS = 256
_EXISTING, _CROWD = 20, 400
_ADDRESSES = [f"127.0.4.{number}" for number in range(1, 17)]
_SECONDS_MAX = 5


def use_up() -> list[str]:
    """What was not as it must be: existing connections are served, /readyz says 503 meanwhile, and all recovers."""
    with serving(descriptors=_DESCRIPTORS) as stage:
        existing = [_connect(stage, "127.0.0.3") for _ in range(_EXISTING)]
        failures = _served(existing, stage, "before")
        crowd = [_connect(stage, _ADDRESSES[number % len(_ADDRESSES)]) for number in range(_CROWD)]
        for each in crowd:
            _send(each, stage.ones[0].encode())
        answers = [_answer(each) for each in crowd]
        failures += [f"{hung} of {_CROWD} connections hang"] if (hung := answers.count(None)) else []
        failures += [] if 200 in answers else ["no new connection was answered"]
        failures += _served(existing, stage, f"beside {_CROWD} connections")
        resource.prlimit(stage.service.pid, resource.RLIMIT_NOFILE, (_lowest_free(stage), _DESCRIPTORS))
        failures += _served(existing, stage, "without descriptors")
        failures += _becomes(lambda: _ask(existing[0], get("/readyz")), 503, "/readyz without descriptors")
        resource.prlimit(stage.service.pid, resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))
        for each in crowd:
            each.close()
        failures += _becomes(lambda: _ask(existing[0], get("/readyz")), 200, "/readyz afterwards")
        failures += _becomes(lambda: _of_new(stage), 200, "a new connection afterwards")
        for each in existing:
            each.close()
    return failures


def _lowest_free(stage: Stage) -> int:
    """The number that the next descriptor would have: with this limit there is none."""
    used = {int(each.name) for each in Path(f"/proc/{stage.service.pid}/fd").iterdir()}
    return next(number for number in range(len(used) + 1) if number not in used)


def _served(connections: list[socket.socket], stage: Stage, when: str) -> list[str]:
    answers = [_ask(each, stage.ones[0].encode()) for each in connections]
    failed = [answer for answer in answers if answer != 200]
    said = f"{len(failed)} of {len(answers)} existing connections are not served {when}: {failed[:1]}"
    return [said] if failed else []


def _becomes(ask: Callable[[], int | None], status: int, what: str) -> list[str]:
    """Nothing if it is answered so within some seconds."""
    deadline = time.monotonic() + _SECONDS_MAX
    while (answer := ask()) != status:
        if time.monotonic() > deadline:
            return [f"{what} is {answer}, not {status}"]
        time.sleep(0.5)
    return []


def _of_new(stage: Stage) -> int | None:
    with _connect(stage, "127.0.0.6") as connection:
        return _ask(connection, stage.ones[0].encode())


def _connect(stage: Stage, address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", stage.port), timeout=_SECONDS_MAX, source_address=(address, 0))


def _ask(connection: socket.socket, request: bytes) -> int | None:
    _send(connection, request)
    return _answer(connection)


def _send(connection: socket.socket, request: bytes) -> None:
    """Send, if the other side still listens: what it answers tells the rest."""
    try:
        connection.sendall(request)
    except ConnectionError:
        return


def _answer(connection: socket.socket) -> int | None:
    """The status of an answer; 0 when the connection ended, None when nothing came."""
    received = b""
    try:
        while (head := received.partition(b"\r\n\r\n"))[1] == b"" or len(head[2]) < _body_length(head[0]):
            data = connection.recv(65_536)
            if not data:
                return 0
            received += data
    except TimeoutError:
        return None
    except ConnectionError:
        return 0
    return int(received[9:12])


def _body_length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
