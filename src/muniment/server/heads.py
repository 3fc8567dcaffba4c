"""The heads of answers as bytes (RFC 9112 section 4)."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from muniment.http.reply import Stream, header_lines

if TYPE_CHECKING:
    from muniment.http.reply import Reply, Streamed
    from muniment.http.request import Request
    from muniment.server.exchange import Exchange

CLOSE: Final = b"connection: close\r\n"
CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_STATUS_LINES: Final = {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}


def head_of(reply: Reply, request: Request, date_line: bytes, connection_lines: bytes) -> bytes:
    """Status line and header fields, with the empty line. Raises `ValueError` as `header_lines` does."""
    return b"%b%b%b%b\r\n" % (
        _STATUS_LINES[reply.status], date_line, header_lines(reply, request.id, request.limit_lines), connection_lines,
    )  # fmt: skip


def has_length(reply: Streamed) -> bool:
    """Whether a streamed answer has a Content-Length."""
    return any(name == b"content-length" for name, _ in reply.headers)


def framing_of(reply: Streamed, exchange: Exchange, *, is_stopping: bool) -> tuple[bool, bool]:
    """How an answer in pieces ends: whether it is sent in chunks, and whether its connection must end with it."""
    is_chunked = not has_length(reply) and exchange.has_chunks
    goes_on = exchange.is_persistent and exchange.is_whole and (is_chunked or has_length(reply)) and not is_stopping
    return is_chunked, not goes_on or isinstance(reply, Stream)
