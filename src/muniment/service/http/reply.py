"""Answers, and their header lines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

T = TypeVar("T")
Headers = Iterable[tuple[bytes, bytes]]

JSON: Final = (b"content-type", b"application/json")
NO_STORE: Final = (b"cache-control", b"no-store")
# RFC 9110 section 8.6: no Content-Length without a body; in a 304 it would describe the 200.
WITHOUT_BODY: Final = frozenset({204, 304})

_NOT_MODIFIED: Final = 304
_EXPOSED: Final = (
    b"x-request-id, link, etag, retry-after, ratelimit, ratelimit-policy, x-partial, x-unpriced, "
    b"content-range, x-ipfs-path, x-ipfs-roots, x-caught-up, idempotency-status"
)
_ALWAYS: Final = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", _EXPOSED),
    (b"x-content-type-options", b"nosniff"),
)
# Bytes of a field value (RFC 9110 section 5.5); those beyond ASCII are obsolete, but clients accept them.
_TEXT: Final = bytes({9, *range(0x20, 0x100)} - {0x7F})


class Ready(msgspec.Struct, Generic[T], frozen=True):
    """An answer in bytes: a `T` in JSON, or content of another media type named in `headers`."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = (JSON,)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer that is made while it is sent, at the client's pace. A later error aborts the connection."""

    chunks: AsyncIterator[bytes]
    headers: tuple[tuple[bytes, bytes], ...]
    status: int = 200

    def counted(self, count: Callable[[int], object]) -> Streamed:
        """The same answer; `count` is called with the length in bytes of each piece before it is sent."""
        return replace(self, chunks=_counted(self.chunks, count))


@dataclass(frozen=True, slots=True)
class Stream(Streamed):
    """An answer without an end: it waits for its next piece, and its connection serves no further request.

    When the client disconnects, the generator of `chunks` is cancelled. The server aborts a client that does not read
    for too long (`muniment.service.server.sending`), and calls `on_abort`.
    """

    on_abort: Callable[[], object] = bool


Reply = Ready[Any] | Streamed


async def _counted(chunks: AsyncIterator[bytes], count: Callable[[int], object]) -> AsyncIterator[bytes]:
    async with closed_after(chunks) as pieces:
        async for piece in pieces:
            count(len(piece))
            yield piece


def closed_after(chunks: AsyncIterator[bytes]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    """A context that closes the generator of `chunks`, which may hold a lock or a file."""
    return aclosing(cast("AsyncGenerator[bytes]", chunks))


NO_CONTENT: Final[Ready[None]] = Ready(b"", (), 204)


def header_lines(reply: Reply, request_id: str, limit_lines: bytes = b"") -> bytes:
    """The header fields of an answer as lines, but those about the connection (RFC 9110 section 7.6.1).

    `limit_lines` report the client's rate limit; answers for shared caches omit them. Raises `ValueError` for a value
    with a line end inside.
    """
    lines, is_for_caches = b"", reply.status == _NOT_MODIFIED
    for field in reply.headers:
        if field is JSON:
            lines += _JSON_LINE
            continue
        name, value = field
        # A line end in a value could inject a header field.
        if value.translate(None, _TEXT):
            raise ValueError(f"the header {name.decode()} has a value that is no field value")
        lines = b"%b%b: %b\r\n" % (lines, name, value)
        if name == b"cache-control":
            is_for_caches = is_for_caches or value.startswith(b"public")
    if not is_for_caches:
        lines += limit_lines
    if type(reply) is Ready and reply.status not in WITHOUT_BODY:
        return b"%bcontent-length: %d\r\nx-request-id: %b\r\n%b" % (
            lines, len(reply.body), request_id.encode(), _ALWAYS_LINES,
        )  # fmt: skip
    return b"%bx-request-id: %b\r\n%b" % (lines, request_id.encode(), _ALWAYS_LINES)


def _lines(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


_JSON_LINE: Final = _lines((JSON,))
_ALWAYS_LINES: Final = _lines(_ALWAYS)


def etag_matches(if_none_match: str | None, etag: str) -> bool:
    """Whether `If-None-Match` (a list, weak tags, `*`) names `etag`; compared weakly (RFC 9110 section 8.8.3.2)."""
    if if_none_match is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or etag.removeprefix("W/") in tags
