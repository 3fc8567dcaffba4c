"""Where a request ends and the next begins, in the cases that uvicorn leaves to chance.

It loses the body of a request that offers an upgrade, takes trailers for header fields, without end, and puts what it
says of malformed bytes in the place of an answer that is due to somebody else's request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

# The target and the header fields may have 32 KiB each before they are refused by their own names. Of a head that
# begins behind other bytes the first piece is not counted, which is as much as one read gives at most. The same holds
# for trailers.
HEAD_BYTES_MAX: Final = 128 * 1024
_MALFORMED: Final = "Invalid HTTP request received."


class _Discarded(list[tuple[bytes, bytes]]):
    """A list that stays empty."""

    def append(self, _: tuple[bytes, bytes]) -> None:
        """Forget it."""


_DISCARDED: Final = _Discarded()


class FramesRequests(HttpToolsProtocol):
    """uvicorn's protocol. Upgrades are ignored, trailers are dropped, and malformed bytes are refused in their turn."""

    # Bytes that have come since a chunk began that may be the last, behind which come trailers; -1 where it has just
    # begun, none where there is no such chunk.
    _trailer_bytes: int | None = None

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as stopped:
            self._ignore_upgrades(memoryview(data)[stopped.args[0] :])
        except HttpParserError:
            self._refuse_malformed()
        if self._trailer_bytes is not None:
            self._trailer_bytes = 0 if self._trailer_bytes < 0 else self._trailer_bytes + len(data)
            if self._trailer_bytes > HEAD_BYTES_MAX:
                self._refuse_malformed()

    def on_chunk_header(self) -> None:
        """A chunk begins, perhaps the last. Trailers may be discarded, not merged (RFC 9110 section 6.5.1)."""
        self.headers = _DISCARDED
        self._trailer_bytes = -1

    def on_chunk_complete(self) -> None:
        """A chunk is complete, and what came behind the last."""
        self._trailer_bytes = None

    def on_body(self, body: bytes) -> None:
        """A piece of a body has come."""
        self._trailer_bytes = None
        super().on_body(body)

    def _should_upgrade(self) -> bool:
        """Asked by uvicorn whether to leave a request that offers an upgrade alone until the parser stops behind it."""
        return True

    def _ignore_upgrades(self, rest: memoryview) -> None:
        """Read on at `rest`, where the parser stopped because it takes what follows a head for another protocol.

        A server may ignore an upgrade (RFC 9110 section 7.8), but the parser never does: so another one is shown the
        same head without it. After CONNECT nobody can say what follows.
        """
        method: bytes
        while (method := self.parser.get_method()) != b"CONNECT":
            lines = [b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade"]
            first = b"%b %b HTTP/%b\r\n" % (method, self.url, self.parser.get_http_version().encode())
            self.parser = HttpRequestParser(self)
            try:
                self.parser.feed_data(first + b"".join(lines) + b"\r\n")
                self.parser.feed_data(rest)
            except HttpParserUpgrade as stopped:
                rest = rest[stopped.args[0] :]
            except HttpParserError:
                break
            else:
                return
        self._refuse_malformed()

    def _refuse_malformed(self) -> None:
        """Answer 400 in the place of the request that is malformed, and end the connection.

        Behind requests that are whole it just ends with their answers, which tells a client that no other was served.
        """
        cycle: Any = self.cycle  # none before the first request, other than its type says
        if cycle is None or not cycle.more_body or cycle.response_complete:
            if not self._ends_behind_answers():
                self.send_400_response(_MALFORMED)
        elif self.pipeline:  # it is the last of those that wait
            cycle.keep_alive = False
            self.pipeline[0] = cycle, _malformed
        else:
            cycle.disconnected = True  # whoever serves it has nobody to answer
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.close()
            else:
                self.send_400_response(_MALFORMED)

    def _ends_behind_answers(self) -> bool:
        """Whether answers are due: then nothing more is read, and the last of them ends the connection."""
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        cycle.keep_alive = False
        self.flow.pause_reading()
        return True


async def _malformed(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """Say in its turn what `send_400_response` says at once."""
    del scope, receive
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(_MALFORMED))]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": _MALFORMED.encode()})
