"""A wallet in a browser: a page on this machine asks it, and gives the answer back.

The page is served on 127.0.0.1 for as long as a signature is awaited. Its URL ends with a secret in the fragment, which
no server and no log sees; each request of the page carries it. `Host` and `Origin` are compared, so that no other page
and no renamed host reaches it (DNS rebinding). Each request is answered once: by the page, or by a person who pastes
the answer into the terminal, since the browser may run on another machine.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import select
import sys
import time
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Event, Lock, Thread
from typing import Any, Final, cast

from muniment.client.failures import CannotSign
from muniment.client.signers import with_domain_type
from muniment.protocol.errors import InvalidAddress, InvalidJson
from muniment.protocol.evm.address import Address
from muniment.protocol.json_text import parse_json
from muniment.protocol.visible import visible

# A person finds the wallet, reads, and agrees.
_SECONDS_MAX: Final = 600.0
_BODY_BYTES_MAX: Final = 8 * 1024
# The digits of a length of at most `_BODY_BYTES_MAX`.
_LENGTH: Final = re.compile("[0-9]{1,4}")
_ANSWER_LENGTH_MAX: Final = 1_000
_POLL_SECONDS: Final = 0.1
_FILES: Final = {
    "/": ("index.html", "text/html"), "/sign.js": ("sign.js", "text/javascript"), "/sign.css": ("sign.css", "text/css"),
}  # fmt: skip
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "cache-control": "no-store",
}  # fmt: skip


class BrowserSigner:
    """A signer that asks a wallet in a browser (EIP-6963, EIP-1193). It asks the wallet for its address first."""

    def __init__(
        self,
        *,
        address: str | None = None,
        seconds_max: float = _SECONDS_MAX,
        show: Callable[[str], None] | None = None,
        opens: Callable[[str], object] | None = None,
    ) -> None:
        """`show` prints the URL, by default on standard error; `opens` opens a browser at it."""
        self._address = None if address is None else Address.parse(address)
        self._seconds_max = seconds_max
        self._show = show or _print
        self._opens = opens or _open

    @property
    def address(self) -> Address:
        """The address of the account that the wallet connects."""
        if self._address is None:
            given = self._ask({"method": "address"})
            try:
                self._address = Address.parse(given)
            except InvalidAddress as error:
                raise CannotSign(f"the wallet gave no address: {error.detail}") from error
        return self._address

    def sign_text(self, text: str) -> str:
        """As `Signer`."""
        return self._ask({"method": "text", "address": self.address, "text": text})

    def sign_typed_data(self, data: Mapping[str, Any]) -> str:
        """As `Signer`."""
        return self._ask({"method": "typedData", "address": self.address, "data": with_domain_type(data)})

    def _ask(self, asked: Mapping[str, Any]) -> str:
        exchange = _Exchange(asked)
        with _Server(exchange) as server:
            Thread(target=server.serve_forever, kwargs={"poll_interval": _POLL_SECONDS}, daemon=True).start()
            try:
                url = f"http://127.0.0.1:{server.server_port}/#{exchange.secret}"
                self._show(f"Open {url} in a browser with your wallet.{_elsewhere(asked)}")
                with suppress(OSError, webbrowser.Error):
                    self._opens(url)
                return self._answer(exchange)
            finally:
                server.shutdown()

    def _answer(self, exchange: _Exchange) -> str:
        until = time.monotonic() + self._seconds_max
        while not exchange.is_answered.wait(_POLL_SECONDS):
            if pasted := _pasted():
                exchange.answer({"result": pasted})
            if time.monotonic() > until:
                raise CannotSign(f"no answer came from the browser within {self._seconds_max:.0f} seconds")
        # The page gets the acknowledgement before the server stops.
        exchange.is_acknowledged.wait(1.0)
        if exchange.refusal is not None:
            raise CannotSign(f"the wallet refused: {exchange.refusal}")
        return exchange.result


@dataclass(slots=True)
class _Exchange:
    """A request to the wallet, and its answer."""

    asked: Mapping[str, Any]
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    result: str = ""
    refusal: str | None = None
    is_answered: Event = field(default_factory=Event)
    is_acknowledged: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)

    def answer(self, given: Mapping[str, Any]) -> bool:
        """Store the answer if it is the first, and well-formed; returns whether it was stored."""
        result, refusal = given.get("result"), given.get("refusal")
        text = result if isinstance(result, str) else refusal
        if not isinstance(text, str) or not 0 < len(text) <= _ANSWER_LENGTH_MAX:
            return False
        with self._lock:
            if self.is_answered.is_set():
                return False
            if isinstance(result, str):
                self.result = result.strip()
            else:
                self.refusal = text
            self.is_answered.set()
        return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, exchange: _Exchange) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.exchange = exchange

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a closed page is no error."""


class _Handler(BaseHTTPRequestHandler):
    # Also how long a silent connection stays open.
    timeout = 30

    def do_GET(self) -> None:
        if not self._is_for_us():
            return
        if self.path == "/request":
            if self._has_secret():
                self._send(200, json.dumps(self._exchange.asked).encode(), "application/json")
            return
        file = _FILES.get(self.path)
        if file is None:
            self._send(404, b"not found", "text/plain")
            return
        content = (files("muniment.client.signing") / "page" / file[0]).read_bytes()
        self._send(200, content, f"{file[1]}; charset=utf-8")

    def do_POST(self) -> None:
        if not self._is_for_us() or not self._has_secret():
            return
        length = self.headers.get("content-length", "")
        if self.path != "/answer" or not _LENGTH.fullmatch(length) or int(length) > _BODY_BYTES_MAX:
            self._send(400, b"not an answer", "text/plain")
            return
        try:
            given = parse_json(self.rfile.read(int(length)))
        except InvalidJson:
            given = None
        is_taken = isinstance(given, dict) and self._exchange.answer(cast("dict[str, Any]", given))
        self._send(204 if is_taken else 409, b"", "text/plain")
        if is_taken:
            self._exchange.is_acknowledged.set()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal belongs to the command."""

    @property
    def _exchange(self) -> _Exchange:
        assert isinstance(self.server, _Server)  # noqa: S101 - no other server has this handler
        return self.server.exchange

    def _is_for_us(self) -> bool:
        """Whether the request names this server as its host, and comes from no other page."""
        assert isinstance(self.server, _Server)  # noqa: S101 - no other server has this handler
        host = f"127.0.0.1:{self.server.server_port}"
        origin = self.headers.get("origin")
        is_ours = self.headers.get("host") == host and origin in {None, f"http://{host}"}
        if not is_ours or (self.command == "POST" and origin is None):
            self._send(403, b"another host or origin", "text/plain")
            return False
        return True

    def _has_secret(self) -> bool:
        given = self.headers.get("x-secret", "").encode()
        if not hmac.compare_digest(given, self._exchange.secret.encode()):
            self._send(403, b"another secret", "text/plain")
            return False
        return True

    def _send(self, status: int, content: bytes, media_type: str) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "content-type": media_type, "content-length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _elsewhere(asked: Mapping[str, Any]) -> str:
    """Instructions for signing on another machine."""
    if asked["method"] == "address":
        return "\nOr paste the address of your account here."
    if asked["method"] == "text":
        # As JSON if the text has characters that control or reorder a terminal, or show nothing.
        text = asked["text"] if visible(asked["text"]) == asked["text"] else json.dumps(asked["text"])
        return f"\nOr sign this text elsewhere (personal_sign), and paste the signature here: {text}"
    data = json.dumps(asked["data"])
    return f"\nOr sign these typed data elsewhere (eth_signTypedData_v4), and paste the signature here: {data}"


def _print(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _open(url: str) -> None:
    """Open a browser with windows. One for terminals would take the terminal of the command."""
    if sys.platform in {"darwin", "win32"} or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)


def _pasted() -> str:
    """A line that a person has typed; nothing where there is no terminal, or no line yet."""
    if not sys.stdin or not sys.stdin.isatty() or not select.select([sys.stdin], [], [], 0)[0]:
        return ""
    return sys.stdin.readline().strip()
