"""Requests from the bytes of a connection: HTTP/1.1 (RFC 9112) by llhttp, and checks that it lacks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, Self, cast

from httptools import (
    HttpParserError,
    HttpParserInvalidMethodError,
    HttpParserInvalidURLError,
    HttpParserUpgrade,
    HttpRequestParser,
)

from muniment.protocol.errors import (
    HeadersTooLarge,
    HttpVersionNotSupported,
    MalformedRequest,
    MethodNotImplemented,
    Refusal,
    TransferCodingNotSupported,
)
from muniment.service.http.operation import METHODS, UNKNOWN_METHOD
from muniment.service.http.request import NO_BODY, ClientGone, Request

if TYPE_CHECKING:
    from muniment.protocol.errors import Refusal
    from muniment.service.http.reply import Reply

# Bytes of a body that wait for the handler before the connection pauses reading.
BODY_BYTES_WAITING_MAX: Final = 64 * 1024


class Exchange:
    """One request and its answer."""

    __slots__ = ("body", "has_chunks", "is_offer", "is_persistent", "is_started", "is_whole", "reply", "request")

    request: Request

    def __init__(self, *, is_persistent: bool, has_chunks: bool, body: ReceivedBody | None = None) -> None:
        """Begin an exchange; the caller sets `request` afterwards.

        `is_persistent`: another request may follow on the connection. `has_chunks`: the client understands chunks
        (HTTP/1.0 has none).
        """
        self.is_persistent = is_persistent
        self.has_chunks = has_chunks
        self.body = body
        self.is_whole = False
        self.is_started = False
        # Whether the client offered another protocol: it may have sent requests after this one, which are not answered.
        self.is_offer = False
        # The answer to a malformed request, which bypasses the application; None for other requests.
        self.reply: Reply | None = None

    @classmethod
    def unread(cls, peer: str) -> Self:
        """An exchange for a malformed request."""
        exchange = cls(is_persistent=False, has_chunks=False)
        exchange.request = Request("GET", "", b"", (), NO_BODY, peer=peer, named={}, head_bytes_max=0)
        return exchange

    def fail(self) -> None:
        """Fail the body: its client has disconnected."""
        if self.body is not None:
            self.body.fail(ClientGone)

    def finish(self) -> None:
        """The request is complete."""
        self.is_whole = True
        if self.body is not None:
            self.body.finish()


class ReceivedBody:
    """The `Body` of a request on a connection."""

    __slots__ = ("_expects_continue", "_failure", "_flow", "_is_whole", "_pieces", "_size", "_waiter")

    def __init__(self, flow: Receiver, *, expects_continue: bool) -> None:
        """`expects_continue`: the client waits with the body for 100 Continue."""
        self._flow = flow
        self._expects_continue = expects_continue
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_whole = False
        self._waiter: asyncio.Future[None] | None = None
        self._failure: type[ClientGone] | Refusal | None = None

    def receive(self, piece: bytes) -> None:
        """Add a piece."""
        self._pieces.append(piece)
        self._size += len(piece)
        self._wake()
        if self._size > BODY_BYTES_WAITING_MAX:
            self._flow.pause_body()

    def finish(self) -> None:
        """The body is complete."""
        self._is_whole = True
        self._wake()

    def fail(self, failure: type[ClientGone] | Refusal) -> None:
        """Make `take` raise `failure`; the first failure stays."""
        self._failure = self._failure or failure
        self._wake()

    def take(self) -> tuple[bytes, bool] | None:
        """As `Body.take`."""
        if self._failure is not None:
            raise self._failure
        if not self._pieces:
            return (b"", False) if self._is_whole else None
        pieces, self._pieces = self._pieces, []
        size, self._size = self._size, 0
        if size > BODY_BYTES_WAITING_MAX:
            self._flow.resume_body()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), not self._is_whole

    async def wait(self) -> None:
        """As `Body.wait`."""
        if self._expects_continue:
            self._expects_continue = False
            self._flow.say_continue()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


VERSIONS: Final = frozenset({"1.0", "1.1"})


def head_refusal(
    target: bytes, fields: list[tuple[bytes, bytes]], named: dict[bytes, bytes], version: str
) -> Refusal | None:
    """The refusal of a well-formed head that cannot be served; None for others."""
    if version not in VERSIONS:
        return HttpVersionNotSupported("this server speaks HTTP/1.1")
    if version == "1.1" and (
        b"host" not in named or (len(named) != len(fields) and [name for name, _ in fields].count(b"host") != 1)
    ):
        return MalformedRequest("a request needs exactly one Host field (RFC 9112 section 3.2)")
    if target[:1] != b"/" and b"://" in target and b"/" not in target.partition(b"://")[2]:
        return MalformedRequest("the request target has no path (RFC 9112 section 3.2.2)")
    coding = named.get(b"transfer-encoding")
    if coding is not None:
        if version == "1.0":
            return MalformedRequest("HTTP/1.0 has no Transfer-Encoding (RFC 9112 section 6.1)")
        if coding.strip().lower() != b"chunked" or sum(name == b"transfer-encoding" for name, _ in fields) > 1:
            return TransferCodingNotSupported("chunked is the only supported transfer coding (RFC 9112 section 6.1)")
    return None


def path_and_query(target: bytes) -> tuple[str, bytes]:
    """Path and query of a request target, without fragment, scheme and authority."""
    if target[:1] == b"/" and b"#" not in target:
        path, _, query = target.partition(b"?")
        return path.decode("latin-1"), query
    before, _, _ = target.partition(b"#")
    path, _, query = before.partition(b"?")
    if path[:1] != b"/" and b"://" in path:
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return path.decode("latin-1"), query


# Header fields and target have their own limits of 32 KiB. A longer head, or longer trailers after a body, are not read
# to their end.
HEAD_BYTES_MAX: Final = 128 * 1024
# Header fields of a request, and of its trailers. Browsers send some thirty.
FIELDS_MAX: Final = 256
# Free chunks of each body, and the bytes that allow one more: a chunk of any size takes a microsecond.
CHUNKS_FREE: Final = 1_000
CHUNK_BYTES_MIN: Final = 16
# Bytes that are parsed together: their requests take some hundred kilobytes as objects. The rest waits as bytes. A body
# of announced length has no further requests in it, so as much of it as has arrived is parsed together.
_SLICE_BYTES: Final = 4 * 1024
_METHODS: Final = {each.encode(): each for each in METHODS}
# Errors of llhttp for a request line of another version than 0.9, 1.0, 1.1 and 2.0, and for the preface of HTTP/2.
_VERSION_ERRORS: Final = frozenset({"Invalid HTTP version", "Pause on PRI/Upgrade"})


class Receiver(Protocol):
    """The connection as its reader sees it."""

    peer: str

    @property
    def is_full(self) -> bool:
        """Whether as many requests wait as may."""
        ...

    def begin(self, exchange: Exchange) -> None:
        """Take a request whose head is complete."""

    def refuse(self, refusal: Refusal) -> None:
        """Answer `refusal` after the earlier requests, and end the connection: later bytes cannot be parsed."""

    def pause_body(self) -> None:
        """Stop reading from the client."""

    def resume_body(self) -> None:
        """Read from the client again."""

    def say_continue(self) -> None:
        """Send 100 Continue, for a client that waits with its body (RFC 9110 section 10.1.1)."""


class RequestReader:
    """The parser of one connection. After a refusal it ignores further bytes."""

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
        # Bytes of slices since the head, or the trailers, began: an upper bound of their own bytes.
        self._head_bytes = 0
        # Whether a request's head is incomplete. A new connection is within a head from its beginning.
        self.is_in_head = True
        self._is_in_trailers = False
        # Whether a request has ended in this read.
        self._is_read_parted = False
        self._chunks = self._body_bytes = self._announced_bytes = 0

    @property
    def rest_bytes(self) -> int:
        """The number of received bytes that are not parsed."""
        return len(self._rest)

    def feed(self, data: bytes) -> None:
        """Parse `data`, until too many requests wait."""
        if self._is_broken:
            return
        if len(data) <= _SLICE_BYTES and not self._rest:
            self._parse(data)
            return
        data, at = self._rest + data, 0
        while at < len(data) and not self._receiver.is_full and not self._is_broken:
            size = max(_SLICE_BYTES, self._announced_bytes - self._body_bytes)
            self._parse(data[at : at + size])
            at += size
        self._rest = data[at:]

    def _parse(self, data: bytes) -> None:
        self._is_read_parted = False
        if self.is_in_head or self._is_in_trailers:
            self._head_bytes += len(data)
        else:
            self._head_bytes = len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as stopped:
            self._read_body_of_offer(data[stopped.args[0] :])
        except HttpParserError as error:
            if not self._is_broken:  # else `_stop` made the error
                self._refuse(_refusal_of(error))
        if self.is_in_head and self._is_read_parted:
            self._head_bytes = len(data)
        if (self.is_in_head or self._is_in_trailers) and self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(HeadersTooLarge(f"the request's head has more than {HEAD_BYTES_MAX} bytes"))

    def close(self) -> None:
        """Drop all references: the parser and this reader refer to each other."""
        self._is_broken = True
        self._parser = self._receiver = self._open = cast("Any", None)

    # Called by llhttp.

    def on_message_begin(self) -> None:
        """A request begins, perhaps after another."""
        self._fields = []
        self._target = []
        self.is_in_head = True

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
        self.is_in_head = False
        if self._open is None:  # else this is the head of `_read_body_of_offer`
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
            if self._open.body is not None and self._parser.should_upgrade():
                return  # the body follows, see `_read_body_of_offer`
            self._open.finish()
            self._is_broken = not self._open.is_persistent  # no request can follow
            self._open = None

    def _begin(self, parser: HttpRequestParser) -> None:
        fields, version = self._fields, parser.get_http_version()
        self._fields = []  # for trailers
        named = dict(fields)
        target = b"".join(self._target)
        if refusal := head_refusal(target, fields, named, version):
            self._stop(refusal)
        self._chunks = self._body_bytes = self._announced_bytes = 0
        method = _METHODS.get(parser.get_method())
        if method is None:
            self._stop(MethodNotImplemented(UNKNOWN_METHOD))
        if method == "CONNECT":
            self._stop(MalformedRequest("CONNECT is not supported: this server is not a proxy"))
        body: ReceivedBody | None = None
        if b"content-length" in named or b"transfer-encoding" in named:
            # HTTP/1.0 knows no 100 (RFC 9110 section 10.1.1).
            expects_continue = version == "1.1" and named.get(b"expect", b"").lower() == b"100-continue"
            self._announced_bytes = int(named.get(b"content-length", 0))  # llhttp accepts only digits
            body = ReceivedBody(self._receiver, expects_continue=expects_continue)
        is_http_1_1 = version == "1.1"
        # An offer of another protocol is ignored, and the connection ends after the answer (RFC 9110 section 7.8).
        is_offer = parser.should_upgrade()
        is_persistent = is_http_1_1 and parser.should_keep_alive() and not is_offer
        exchange = Exchange(is_persistent=is_persistent, has_chunks=is_http_1_1, body=body)
        exchange.is_offer = is_offer
        path, query = path_and_query(target)
        exchange.request = Request(
            method, path, query, fields, body or NO_BODY,
            peer=self._receiver.peer, named=named, head_bytes_max=self._head_bytes,
        )  # fmt: skip
        self._open = exchange
        self._receiver.begin(exchange)

    def _read_body_of_offer(self, rest: bytes) -> None:
        """Read the body of a request that offers another protocol: llhttp takes it for bytes of that protocol."""
        if self._open is None:  # it has none
            return
        coding = self._open.request.header(b"transfer-encoding")
        framing = b"transfer-encoding: chunked" if coding else b"content-length: %d" % self._announced_bytes
        self._parser = HttpRequestParser(self)
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n\r\n" % framing)
        self._parse(rest)

    def _stop(self, refusal: Refusal) -> NoReturn:
        """Refuse from within the parser's call, and stop it."""
        self._refuse(refusal)
        raise _StoppedError

    def _refuse(self, refusal: Refusal) -> None:
        self._is_broken = True
        self.is_in_head = False
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
