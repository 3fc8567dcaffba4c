"""HTTP requests to a service, with the standard library alone."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import msgspec

from muniment.deadlines import Deadline
from muniment.errors import InvalidJson
from muniment.json_text import parse_json

TIMEOUT_S = 30


@contextmanager
def ended_after(seconds: float, connection: HTTPConnection) -> Generator[None]:
    """Connect for the exchange in the block. Raises `OSError`, also when the exchange takes longer than `seconds`."""
    connection.connect()
    sock = connection.sock
    deadline = Deadline(seconds, lambda: sock.shutdown(socket.SHUT_RDWR))
    try:
        with deadline.watched():
            yield
    except (OSError, HTTPException):
        if not deadline.is_over:
            raise
    if deadline.is_over:
        raise TimeoutError(f"the answer takes longer than {seconds:.0f} seconds")


class RequestFailed(OSError):
    """The service does not answer, or answers with a problem document. The message says which."""


class _Problem(msgspec.Struct):
    code: str
    detail: str


class Client:
    """A service at a base URL."""

    def __init__(self, url: str) -> None:
        """Talk to the service at `url` (http or https)."""
        self.url = url.rstrip("/")
        self._parts = urlsplit(self.url)

    def get(self, path: str, **headers: str) -> Any:
        """The JSON at `path`."""
        return self._request("GET", path, None, headers)

    def post(self, path: str, body: object, **headers: str) -> Any:
        """The JSON answer to a JSON body; None for no content."""
        return self._request("POST", path, json.dumps(body).encode(), {"content-type": "application/json", **headers})

    def post_files(self, path: str, files: Mapping[str, bytes], **headers: str) -> Any:
        """The JSON answer to a multipart form with these files, all under the name `file`."""
        boundary = secrets.token_hex(16)
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
            + data + b"\r\n"
            for name, data in files.items()
        ]  # fmt: skip
        body = b"".join(parts) + f"--{boundary}--\r\n".encode()
        content_type = f"multipart/form-data; boundary={boundary}"
        return self._request("POST", path, body, {"content-type": content_type, **headers})

    def _request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Any:
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=TIMEOUT_S)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            with ended_after(TIMEOUT_S, connection):
                connection.request(method, self._parts.path + path, body, sent)
                response = connection.getresponse()
                data = response.read()
        except (OSError, HTTPException) as error:
            raise RequestFailed(f"{self.url} does not answer: {error}") from error
        finally:
            connection.close()
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise RequestFailed(f"{method} {path} → {response.status}{_said(data)}")
        try:
            return parse_json(data) if data else None
        except InvalidJson as error:
            raise RequestFailed(f"{method} {path} → {response.status}, and no JSON: {error}") from error


def _said(data: bytes) -> str:
    """What a problem document says, or that there is none."""
    try:
        problem = msgspec.convert(parse_json(data), _Problem)
    except (InvalidJson, msgspec.ValidationError):
        return ": no problem document"
    return f" {problem.code}: {problem.detail}"
