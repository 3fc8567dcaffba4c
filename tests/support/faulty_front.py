"""A proxy in front of a local server that can behave like a broken one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_PIECE_BYTES = 65_536


def answer(status: int, code: str) -> bytes:
    """An error as S3 writes it."""
    body = f"<Error><Code>{code}</Code><Message>hidden-in-the-answer</Message></Error>".encode()
    return b"HTTP/1.1 %d No\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (status, len(body)) + body


SLOW_DOWN = answer(503, "SlowDown")
FORBIDDEN = answer(403, "AccessDenied")


@dataclass
class Front:
    """A proxy at `port` in front of the server at `behind`."""

    behind: int
    listener: socket.socket
    # What a new connection gets: None passes it on, bytes are the answer, "silence" and "close" are faults.
    fault: bytes | str | None = None
    # With a fault: only requests whose bytes begin so have it.
    only: bytes = b""
    requests: list[bytes] = field(default_factory=list[bytes])
    _held: list[socket.socket] = field(default_factory=list[socket.socket])

    @property
    def port(self) -> int:
        return self.listener.getsockname()[1]

    def set(self, fault: bytes | str | None, *, only: bytes = b"") -> None:
        """Set the behaviour, and close kept connections."""
        self.fault, self.only = fault, only
        self.close_all()

    def close_all(self) -> None:
        held, self._held = self._held, []
        for each in held:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self._held.append(connection)
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with suppress(OSError):
            if self.fault is None or self.only:
                self._pass_on(connection)
            elif self.fault == "close":
                connection.close()
            elif isinstance(self.fault, bytes):
                connection.recv(_PIECE_BYTES)
                connection.sendall(self.fault)
                connection.close()

    def _pass_on(self, connection: socket.socket) -> None:
        ahead = socket.create_connection(("127.0.0.1", self.behind))
        self._held.append(ahead)
        threading.Thread(target=_copy, args=(ahead, connection), daemon=True).start()
        while piece := connection.recv(_PIECE_BYTES):
            if piece[:4] in {b"GET ", b"PUT ", b"HEAD"}:
                self.requests.append(piece.partition(b"\r\n\r\n")[0])
                if self.only and piece.startswith(self.only) and isinstance(self.fault, bytes):
                    connection.sendall(self.fault)
                    break
            ahead.sendall(piece)
        ahead.close()
        connection.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(_PIECE_BYTES):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def fronted(behind: int) -> Generator[Front]:
    """A transparent proxy in front of the server at the port `behind`."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        front = Front(behind, listener)
        threading.Thread(target=front.serve, daemon=True).start()
        try:
            yield front
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            front.close_all()
