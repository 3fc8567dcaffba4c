"""One HTTP request and its answer, whatever it is, with the standard library alone; it follows no redirect."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection, InvalidURL
from ssl import SSLEOFError, SSLSocket, cert_time_to_seconds
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from muniment.errors import InvalidJson
from muniment.json_text import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable

# A problem document has some hundred bytes.
_BODY_BYTES_MAX: Final = 64 * 1024
# What is shown of a detail: a line. Other servers may write anything there.
_DETAIL_LENGTH_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """The status and the start of the body. `certificate_until_s` is Unix time in seconds; None without TLS."""

    status: int
    body: bytes
    certificate_until_s: float | None = None


def ask(
    url: str, *, method: str = "GET", pieces: Iterable[bytes] = (), headers: dict[str, str] | None = None,
    seconds_max: float,
) -> Answer:  # fmt: skip
    """The answer of `url` to one request with a body of `pieces`.

    Raises `OSError` when the whole answer does not come within `seconds_max` (a bad certificate is an OSError too), and
    `ValueError` for a malformed URL.
    """
    outcome: list[Answer | Exception] = []

    def run() -> None:
        try:
            outcome.append(_ask(url, method, pieces, headers or {}, seconds_max))
        except Exception as error:  # noqa: BLE001 - it is raised again below
            outcome.append(error)

    # A socket's timeout begins anew with each byte, and a look-up of a name has none.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds_max)
    if not outcome:
        raise TimeoutError(f"there is no whole answer within {seconds_max:g} s")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _ask(url: str, method: str, pieces: Iterable[bytes], headers: dict[str, str], seconds_max: float) -> Answer:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("a URL has the form http://host or https://host")
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    try:
        connection = kind(parts.hostname, parts.port, timeout=seconds_max)
    except InvalidURL:
        raise ValueError("the host of the URL has a character that no host may have") from None
    deadline = time.monotonic() + seconds_max
    try:
        connection.connect()
        until = _certificate_until(connection)
        connection.putrequest(method, parts.path or "/")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        # An answer may come before the end of the body.
        with suppress(BrokenPipeError, ConnectionResetError, SSLEOFError):
            for piece in pieces:
                if time.monotonic() > deadline:
                    raise TimeoutError("the server reads too slowly")
                connection.send(piece)
        response = connection.getresponse()
        return Answer(response.status, response.read(_BODY_BYTES_MAX), until)
    except InvalidURL:
        raise ValueError("the path of the URL has a character that no path may have") from None
    except HTTPException as error:
        raise OSError(f"it sends no HTTP: {type(error).__name__}") from error
    finally:
        connection.close()


def _certificate_until(connection: HTTPConnection) -> float | None:
    if not isinstance(connection.sock, SSLSocket):
        return None
    certificate = connection.sock.getpeercert() or {}
    return cert_time_to_seconds(str(certificate["notAfter"]))


def detail_of(answer: Answer) -> str:
    """The detail of a problem document, as one short line. A proxy may answer something else."""
    try:
        detail = str(parse_json(answer.body)["detail"])[:_DETAIL_LENGTH_MAX]
        return "".join(each if each.isprintable() else "?" for each in detail)
    except (InvalidJson, KeyError, TypeError):
        return "this is no problem document: a proxy answers"


def without_login(url: str) -> str:
    """The URL without the user's name and password (RFC 3986 section 3.2.1), to show it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
