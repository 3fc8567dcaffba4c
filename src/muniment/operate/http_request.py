"""One HTTP request by the standard library alone. It follows no redirect."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection, InvalidURL
from ssl import SSLEOFError, SSLSocket, cert_time_to_seconds
from typing import Final
from urllib.parse import urlsplit

from muniment.protocol.errors import InvalidJson
from muniment.protocol.json_text import parse_json
from muniment.protocol.visible import visible
from muniment.tls import tls_context

PING_SECONDS_MAX: Final = 5.0
# A problem document has some hundred bytes.
_BODY_BYTES_MAX: Final = 64 * 1024
# Other servers may send a detail of any length; a line of it is shown.
_DETAIL_LENGTH_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """The status, and the start of the body.

    `certificate_until_s` is the end of the certificate in Unix seconds; None without TLS.
    """

    status: int
    body: bytes
    certificate_until_s: float | None = None


def ask(
    url: str, *, method: str = "GET", pieces: Iterable[bytes] = (), headers: Mapping[str, str] | None = None,
    seconds_max: float,
) -> Answer:  # fmt: skip
    """Send one request with a body of `pieces`; return at most 64 KiB of the answer's body.

    Raises `OSError` when the complete answer does not arrive within `seconds_max`, or for a bad certificate, and
    `ValueError` for a malformed URL.
    """
    connection = _connection_to(url, seconds_max)
    outcome: list[Answer | Exception] = []

    def run() -> None:
        try:
            outcome.append(_exchange(connection, url, method, pieces, headers or {}, seconds_max))
        except Exception as error:  # noqa: BLE001 - it is raised again below
            outcome.append(error)

    # A socket's timeout starts again with each byte, and the look-up of a name has no timeout.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    is_late = True
    try:
        thread.join(seconds_max)
        is_late = thread.is_alive()
    finally:
        if is_late and (sock := connection.sock) is not None:
            with suppress(OSError):  # the connection has just ended
                sock.shutdown(socket.SHUT_RDWR)
    # A late thread may have an error of the shutdown by now, and the socket of a silent server may end the wait first.
    if is_late or isinstance(outcome[0], TimeoutError):
        raise TimeoutError(f"no complete answer within {seconds_max:g} s")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _connection_to(url: str, seconds_max: float) -> HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("a URL has the form http://host or https://host")
    try:
        if parts.scheme == "https":
            return HTTPSConnection(parts.hostname, parts.port, timeout=seconds_max, context=tls_context())
        return HTTPConnection(parts.hostname, parts.port, timeout=seconds_max)
    except InvalidURL:
        raise ValueError("the host of the URL has an invalid character") from None


def _exchange(
    connection: HTTPConnection, url: str, method: str, pieces: Iterable[bytes], headers: Mapping[str, str],
    seconds_max: float,
) -> Answer:  # fmt: skip
    parts, deadline = urlsplit(url), time.monotonic() + seconds_max
    try:
        connection.connect()
        until = _certificate_until(connection)
        connection.putrequest(method, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        # The answer may arrive before the end of the body.
        with suppress(BrokenPipeError, ConnectionResetError, SSLEOFError):
            for piece in pieces:
                if time.monotonic() > deadline:
                    raise TimeoutError("the server reads too slowly")
                connection.send(piece)
        response = connection.getresponse()
        return Answer(response.status, response.read(_BODY_BYTES_MAX), until)
    except InvalidURL:
        raise ValueError("the path of the URL has an invalid character") from None
    except HTTPException as error:
        raise OSError(f"it does not speak HTTP: {error or type(error).__name__}") from error
    finally:
        connection.close()


def _certificate_until(connection: HTTPConnection) -> float | None:
    if not isinstance(connection.sock, SSLSocket):
        return None
    certificate = connection.sock.getpeercert() or {}
    return cert_time_to_seconds(str(certificate["notAfter"]))


def detail_of(answer: Answer) -> str:
    """The detail of a problem document (RFC 9457) as one short line, or a note that another server answers."""
    try:
        detail = str(parse_json(answer.body)["detail"])[:_DETAIL_LENGTH_MAX]
        return visible(detail)[:_DETAIL_LENGTH_MAX]
    except (InvalidJson, KeyError, TypeError):
        return "not a problem document: is it a proxy?"


def ping(url: str, *, path: str, seconds_max: float = PING_SECONDS_MAX) -> str:
    """A line to print when the service at `url` answers 200 at `path`. Raises `OSError` otherwise."""
    parts = urlsplit(url.rstrip("/"))
    base = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()  # without user name and password
    try:
        answer = ask(f"{base}{path}", seconds_max=seconds_max)
    except OSError as error:
        raise OSError(f"{base} does not answer: {error}") from error
    if answer.status != HTTPStatus.OK:
        raise OSError(f"{base}{path} answers {answer.status}: {detail_of(answer)}")
    return f"{base} is ready" if path == "/readyz" else f"{base} is alive"
