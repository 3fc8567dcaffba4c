"""From the bytes of a connection to requests: HTTP/1.1 (RFC 9112) by llhttp, and checks that it lacks."""

from __future__ import annotations

from typing import Any, Final, NoReturn, Protocol, cast

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
    MethodNotImplemented,
    Refusal,
)
from muniment.http.request import NO_BODY, Request
from muniment.http.routing import METHODS, UNKNOWN_METHOD
from muniment.server.exchange import BodyFlow, Exchange, ReceivedBody
from muniment.server.head_checks import head_refusal, path_and_query

# Header fields and target have their own limits of 32 KiB. Beyond this limit a head, or the trailers after a body, is
# not read to its end.
HEAD_BYTES_MAX: Final = 128 * 1024
# Header fields of a request, and of its trailers. Browsers send some thirty; each takes half a microsecond.
FIELDS_MAX: Final = 256
# Chunks that each body may have, and bytes that allow one more: a chunk of any size takes a microsecond.
CHUNKS_FREE: Final = 1_000
CHUNK_BYTES_MIN: Final = 16
# Bytes that are parsed together: their requests take some hundred kilobytes as objects. The rest waits as bytes until
# few requests are left.
_SLICE_BYTES: Final = 4 * 1024
# Errors of llhttp for a request line of another version than 0.9, 1.0, 1.1 and 2.0, and for the preface of HTTP/2.
_VERSION_ERRORS: Final = frozenset({"Invalid HTTP version", "Pause on PRI/Upgrade"})


class Receiver(BodyFlow, Protocol):
    """The receiver of the requests of a connection."""

    peer: str

    @property
    def is_full(self) -> bool:
        """Whether the most requests that may wait for their answers do so."""
        ...

    def begin(self, exchange: Exchange) -> None:
        """A request's head is complete."""
        ...

    def refuse(self, refusal: Refusal) -> None:
        """Answer `refusal` after the requests before, and end the connection: no later bytes can be read."""
        ...


class RequestReader:
    """The parser of one connection. After a refusal it ignores all bytes."""

    def __init__(self, receiver: Receiver) -> None:
        """Hand every request to `receiver`."""
        self._receiver = receiver
        self._parser = HttpRequestParser(self)
        self._open: Exchange | None = None
        self._fields: list[tuple[bytes, bytes]] = []
        self._target: list[bytes] = []
        self._is_broken = False
        # Bytes after the requests that wait.
        self._rest = b""
        # Bytes of slices since the head, or the trailers, began: no fewer than its own bytes.
        self._head_bytes = 0
        self._is_in_head = True
        self._is_in_trailers = False
        # Whether a request has ended in this read.
        self._is_read_parted = False
        self._chunks = self._body_bytes = 0

    @property
    def is_in_head(self) -> bool:
        """Whether a request has begun whose head is not complete. A new connection owes one from the beginning."""
        return self._is_in_head

    @property
    def is_in_body(self) -> bool:
        """Whether a request's body is not complete."""
        return self._open is not None

    @property
    def rest_bytes(self) -> int:
        """The number of received bytes that are not parsed."""
        return len(self._rest)

    def feed(self, data: bytes) -> None:
        """Parse `data`, until the most requests wait."""
        if self._is_broken:
            return
        if len(data) <= _SLICE_BYTES and not self._rest:
            self._parse(data)
            return
        data, at = self._rest + data, 0
        while at < len(data) and not self._receiver.is_full and not self._is_broken:
            self._parse(data[at : at + _SLICE_BYTES])
            at += _SLICE_BYTES
        self._rest = data[at:]

    def _parse(self, data: bytes) -> None:
        self._is_read_parted = False
        if self._is_in_head or self._is_in_trailers:
            self._head_bytes += len(data)
        else:
            self._head_bytes = len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as stopped:
            self._ignore_offer(data[stopped.args[0] :])
        except HttpParserError as error:
            if not self._is_broken:  # else `_stop` made the error
                self._refuse(_refusal_of(error))
        if self._is_in_head and self._is_read_parted:
            self._head_bytes = len(data)
        if (self._is_in_head or self._is_in_trailers) and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(HeadersTooLarge(f"the request's head has more than {HEAD_BYTES_MAX} bytes"))

    def close(self) -> None:
        """Drop all references: the parser and this reader refer to each other."""
        self._is_broken = True
        self._parser = self._receiver = self._open = cast("Any", None)

    # What llhttp calls.

    def on_message_begin(self) -> None:
        """A request begins, perhaps after another."""
        self._fields = []
        self._target = []
        self._is_in_head = True

    def on_url(self, target: bytes) -> None:
        """A piece of the target."""
        self._target.append(target)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field, or a trailer, which is dropped (RFC 9110 section 6.5.1)."""
        self._fields.append((name.lower(), value))
        if len(self._fields) > FIELDS_MAX:
            self._stop(HeadersTooLarge(f"the request has more than {FIELDS_MAX} header fields"))

    def on_headers_complete(self) -> None:
        """A head is complete."""
        self._is_in_head = False
        if not self._parser.should_upgrade():  # else the parser stops after this head, see `_ignore_offer`
            self._begin(self._parser)

    def on_chunk_header(self) -> None:
        """A chunk begins; trailers may follow the last chunk."""
        self._is_in_trailers = True
        self._head_bytes = 0
        self._chunks += 1
        if self._chunks > CHUNKS_FREE + self._body_bytes // CHUNK_BYTES_MIN:
            self._stop(MalformedRequest("the chunks of the body are too small"))

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._is_in_trailers = False
        self._body_bytes += len(body)
        if self._open is not None and self._open.body is not None:
            self._open.body.receive(body)

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._is_in_trailers = False
        self._is_read_parted = True
        if self._open is not None:
            self._open.finish()
            self._is_broken = not self._open.is_persistent  # nothing that follows is a request
            self._open = None

    def _begin(self, parser: HttpRequestParser) -> None:
        fields, version = self._fields, parser.get_http_version()
        self._fields = []  # for trailers
        named = dict(fields)
        target = b"".join(self._target)
        if refusal := head_refusal(target, fields, named, version):
            self._stop(refusal)
        self._chunks = self._body_bytes = 0
        method = parser.get_method().decode("ascii")
        if method not in METHODS:
            self._stop(MethodNotImplemented(UNKNOWN_METHOD))
        body: ReceivedBody | None = None
        if b"content-length" in named or b"transfer-encoding" in named:
            # HTTP/1.0 knows no 100 (RFC 9110 section 10.1.1).
            expects_continue = version == "1.1" and named.get(b"expect", b"").lower() == b"100-continue"
            body = ReceivedBody(self._receiver, expects_continue=expects_continue)
        is_http_1_1 = version == "1.1"
        exchange = Exchange(is_persistent=is_http_1_1 and parser.should_keep_alive(), has_chunks=is_http_1_1, body=body)
        path, query = path_and_query(target)
        exchange.request = Request(
            method, path, query, fields, body or NO_BODY,
            peer=self._receiver.peer, named=named, head_bytes_max=self._head_bytes,
        )  # fmt: skip
        self._open = exchange
        self._receiver.begin(exchange)

    def _ignore_offer(self, rest: bytes) -> None:
        """Serve a request that offers another protocol in HTTP/1.1, and close (RFC 9110 section 7.8).

        The parser would skip its body, so another parser gets the same head without the offer, and then `rest`. The
        bytes after CONNECT are of an unknown protocol.
        """
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._refuse(MalformedRequest("CONNECT is not supported: this server is not a proxy"))
            return
        kept = [field for field in self._fields if field[0] not in {b"connection", b"upgrade"}]
        lines = b"".join(b"%b: %b\r\n" % field for field in (*kept, (b"connection", b"close")))
        first = b"%b %b HTTP/%b\r\n" % (method, b"".join(self._target), self._parser.get_http_version().encode())
        self._parser = HttpRequestParser(self)
        self._parse(b"%b%b\r\n%b" % (first, lines, rest))

    def _stop(self, refusal: Refusal) -> NoReturn:
        """Refuse from within the parser's call, and stop it."""
        self._refuse(refusal)
        raise _StoppedError

    def _refuse(self, refusal: Refusal) -> None:
        self._is_broken = True
        self._is_in_head = False
        self._rest = b""
        exchange, self._open = self._open, None
        if exchange is not None and exchange.body is not None:
            exchange.body.fail(refusal)
        else:
            self._receiver.refuse(refusal)


def _refusal_of(error: HttpParserError) -> Refusal:
    """The refusal of bytes that llhttp does not accept."""
    if isinstance(error, HttpParserInvalidMethodError):
        return MethodNotImplemented(UNKNOWN_METHOD)
    if str(error) in _VERSION_ERRORS:
        return HttpVersionNotSupported("this server speaks HTTP/1.1")
    if isinstance(error, HttpParserInvalidURLError):
        return MalformedRequest("the request target is malformed (RFC 9112 section 3.2)")
    return MalformedRequest("the request is not HTTP/1.1 (RFC 9112)")


class _StoppedError(Exception):
    """Raised in the parser's call to stop it."""
