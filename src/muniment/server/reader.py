"""From the bytes of a connection to requests: HTTP/1.1 (RFC 9112) by llhttp, and what that leaves to its users."""

from __future__ import annotations

import re
from typing import Any, Final, Protocol, cast

from httptools import (
    HttpParserError,
    HttpParserInvalidMethodError,
    HttpParserInvalidURLError,
    HttpParserUpgrade,
    HttpRequestParser,
)

from muniment.errors import (
    HeadersTooLarge,
    HttpVersionNotSupported,
    MalformedRequest,
    Refusal,
    TransferCodingNotSupported,
)
from muniment.http.request import NO_BODY, Request
from muniment.server.exchange import BodyFlow, Exchange, ReceivedBody

# Header fields and target may have 32 KiB each before they are refused by their own names; a head, or the trailers
# behind a body, may have this before they are cut off.
HEAD_BYTES_MAX: Final = 128 * 1024
# Requests that may wait behind one that is not answered yet: two kilobytes each, of which one read can bring 14,000.
WAITING_MAX: Final = 1_000
# RFC 9112 section 3: method, target, version. What llhttp refuses of it is answered by what it says.
_REQUEST_LINE: Final = re.compile(
    rb"(?:\r?\n)*+([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) [^ \r\n]{1,65536} HTTP/([0-9]\.[0-9])\r?\n"
)
_REQUEST_LINE_BEGUN: Final = re.compile(rb"(?:\r?\n)*+[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}(?: [^\r\n]{0,65536})?\r?")
_VERSIONS: Final = frozenset({"1.0", "1.1"})


class Receiver(BodyFlow, Protocol):
    """Who takes the requests of a connection."""

    peer: str

    def begin(self, exchange: Exchange) -> None:
        """A request's head is complete."""
        ...

    def refuse(self, refusal: Refusal) -> None:
        """Nothing that follows can be read: answer `refusal` in its turn, and end the connection."""
        ...


class RequestReader:
    """Reads the requests of one connection. After a refusal it reads nothing."""

    def __init__(self, receiver: Receiver) -> None:
        """Hand every request to `receiver`."""
        self._receiver = receiver
        self._parser = HttpRequestParser(self)
        self._open: Exchange | None = None
        self._fields: list[tuple[bytes, bytes]] = []
        self._target: list[bytes] = []
        # The method to report in place of the parser's, which does not know it.
        self._unknown_method: str | None = None
        self._is_broken = False
        self._waiting = 0
        # Bytes of reads since the head, or the trailers, began: at least as many as they have.
        self._head_bytes = 0
        self._is_in_head = True
        self._is_in_trailers = False
        # What came of a head that is not complete, as long as it may have to be read again.
        self._begun: list[bytes] = []
        # Why the parser stopped within a request line, until the line is complete.
        self._stopped: HttpParserError | None = None
        # Whether the head that is being read began with the first byte of this read, or before.
        self._is_first_in_read = True

    @property
    def is_in_head(self) -> bool:
        """Whether a request has begun whose head is not complete. A new connection owes one from the beginning."""
        return self._is_in_head

    @property
    def is_in_body(self) -> bool:
        """Whether a request's body is not complete."""
        return self._open is not None

    def feed(self, data: bytes) -> None:
        """Read `data`, which came at once."""
        if self._is_broken:
            return
        self._waiting = 0
        self._is_first_in_read = True
        if self._is_in_head or self._is_in_trailers:
            self._head_bytes += len(data)
        else:
            self._head_bytes = len(data)
        if self._stopped is not None:
            if b"\n" in data:  # looked at once, however many reads the line takes
                self._explain(self._stopped, data)
        else:
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as stopped:
                self._ignore_upgrades(memoryview(data)[stopped.args[0] :])
            except HttpParserError as error:
                self._explain(error, data)
        if self._is_in_head:
            if self._is_first_in_read:
                self._begun.append(data)
            else:  # of a head that begins behind other bytes this piece is not counted
                self._head_bytes = 0
        if (self._is_in_head or self._is_in_trailers) and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(HeadersTooLarge(f"the request's head has more than {HEAD_BYTES_MAX} bytes"))

    def close(self) -> None:
        """Let go of everything: the parser calls this reader, and only the garbage collector would find the two."""
        self._is_broken = True
        self._parser = self._receiver = self._open = cast("Any", None)

    # What llhttp calls.

    def on_message_begin(self) -> None:
        """A request begins, perhaps behind another."""
        self._fields = []
        self._target = []
        self._is_in_head = True

    def on_url(self, target: bytes) -> None:
        """A piece of the target."""
        self._target.append(target)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field, or a trailer, which is dropped (RFC 9110 section 6.5.1)."""
        if self._is_in_head:
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """A head is complete."""
        self._is_in_head = False
        if self._begun:
            self._begun = []
        parser = self._parser
        if parser.should_upgrade():
            return  # the parser stops behind this head, which is then shown to another one without the offer
        self._begin(parser)

    def on_chunk_header(self) -> None:
        """A chunk begins, perhaps the last one, behind which come trailers."""
        self._is_in_trailers = True
        self._head_bytes = 0

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._is_in_trailers = False
        if self._open is not None and self._open.body is not None:
            self._open.body.receive(body)

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._is_in_trailers = self._is_first_in_read = False
        if self._open is not None:
            self._open.finish()
            self._is_broken = not self._open.is_persistent  # nothing that follows is a request
            self._open = None

    def _begin(self, parser: HttpRequestParser) -> None:
        fields, version = self._fields, parser.get_http_version()
        named = dict(fields)
        target = b"".join(self._target)
        if refusal := _unfit(target, fields, named, version):
            self._refuse(refusal)
            raise _StoppedError
        self._waiting += 1
        if self._waiting > WAITING_MAX:
            self._refuse(MalformedRequest(f"more than {WAITING_MAX} requests came at once"))
            raise _StoppedError
        method, self._unknown_method = self._unknown_method or parser.get_method().decode("ascii"), None
        body: ReceivedBody | None = None
        if b"content-length" in named or b"transfer-encoding" in named:
            expects_continue = named.get(b"expect", b"").lower() == b"100-continue"
            body = ReceivedBody(self._receiver, expects_continue=expects_continue)
        is_http_1_1 = version == "1.1"
        exchange = Exchange(is_persistent=is_http_1_1 and parser.should_keep_alive(), has_chunks=is_http_1_1, body=body)
        path, query = _split(target)
        exchange.request = Request(
            method, path, query, fields, body or NO_BODY,
            peer=self._receiver.peer, named=named, head_bytes_max=self._head_bytes,
        )  # fmt: skip
        self._open = exchange
        self._receiver.begin(exchange)

    def _ignore_upgrades(self, rest: memoryview) -> None:
        """Read on at `rest`, where the parser stopped because it takes what follows a head for another protocol.

        A server may ignore an upgrade (RFC 9110 section 7.8), but the parser never does: so another one is shown the
        same head without it. After CONNECT nobody can say what follows.
        """
        while (method := self._parser.get_method()) != b"CONNECT":
            lines = [b"%b: %b\r\n" % field for field in self._fields if field[0] != b"upgrade"]
            first = b"%b %b HTTP/%b\r\n" % (method, b"".join(self._target), self._parser.get_http_version().encode())
            self._parser = HttpRequestParser(self)
            try:
                self._parser.feed_data(first + b"".join(lines) + b"\r\n")
                self._parser.feed_data(rest)
            except HttpParserUpgrade as stopped:
                rest = rest[stopped.args[0] :]
            except HttpParserError as error:
                self._explain(error, b"")
                return
            else:
                return
        self._refuse(MalformedRequest("CONNECT is for proxies"))

    def _explain(self, error: HttpParserError, data: bytes) -> None:
        """Refuse what the parser does not read, by what is wrong as far as that can be told."""
        if self._is_broken:  # it was told to stop
            return
        begun = b"".join([*self._begun, data]) if self._is_in_head and self._is_first_in_read else b""
        line = _REQUEST_LINE.match(begun)
        if line is None and _REQUEST_LINE_BEGUN.fullmatch(begun):
            self._stopped = error  # the rest of the line tells what it is
            return
        self._stopped = None
        if line and line[2].decode() not in _VERSIONS:
            self._refuse(HttpVersionNotSupported("this server speaks HTTP/1.1"))
        elif line and isinstance(error, HttpParserInvalidMethodError) and self._unknown_method is None:
            self._read_as_post(line, begun)
        elif isinstance(error, HttpParserInvalidURLError):
            self._refuse(MalformedRequest("the request target is malformed (RFC 9112 section 3.2)"))
        else:
            self._refuse(MalformedRequest("the request is not HTTP/1.1 (RFC 9112)"))

    def _read_as_post(self, line: re.Match[bytes], data: bytes) -> None:
        """Read a request whose method the parser does not know, so that it can be refused like any other."""
        self._unknown_method = line[1].decode("ascii")
        self._parser = HttpRequestParser(self)
        self._begun = []
        changed = b"POST" + data[line.end(1) :]
        try:
            self._parser.feed_data(changed)
        except HttpParserUpgrade as stopped:
            self._ignore_upgrades(memoryview(changed)[stopped.args[0] :])
        except HttpParserError as error:
            self._explain(error, b"")

    def _refuse(self, refusal: Refusal) -> None:
        self._is_broken = True
        self._is_in_head = False
        exchange, self._open = self._open, None
        if exchange is not None and exchange.body is not None:
            exchange.body.fail(refusal)
        else:
            self._receiver.refuse(refusal)


class _StoppedError(Exception):
    """Raised in the parser's call to stop it."""


def _unfit(target: bytes, fields: list[tuple[bytes, bytes]], named: dict[bytes, bytes], version: str) -> Refusal | None:
    """Why a well-formed head cannot be served."""
    if version not in _VERSIONS:
        return HttpVersionNotSupported("this server speaks HTTP/1.1")
    if version == "1.1" and (
        b"host" not in named or (len(named) != len(fields) and [name for name, _ in fields].count(b"host") != 1)
    ):
        return MalformedRequest("Host is due exactly once (RFC 9112 section 3.2)")
    if target[:1] != b"/" and b"://" in target and b"/" not in target.partition(b"://")[2]:
        return MalformedRequest("the request target has no path (RFC 9112 section 3.2.2)")
    coding = named.get(b"transfer-encoding")
    if coding is not None:
        if version == "1.0":
            return MalformedRequest("HTTP/1.0 has no Transfer-Encoding (RFC 9112 section 6.1)")
        if coding.strip().lower() != b"chunked" or sum(name == b"transfer-encoding" for name, _ in fields) > 1:
            return TransferCodingNotSupported("chunked is the only transfer coding taken (RFC 9112 section 6.1)")
    return None


def _split(target: bytes) -> tuple[str, bytes]:
    """Path and query of a request target, without a fragment; the path of an absolute one follows its authority."""
    if target[:1] == b"/" and b"#" not in target:
        path, _, query = target.partition(b"?")
        return path.decode("latin-1"), query
    before, _, _ = target.partition(b"#")
    path, _, query = before.partition(b"?")
    if path[:1] != b"/" and b"://" in path:
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return path.decode("latin-1"), query
