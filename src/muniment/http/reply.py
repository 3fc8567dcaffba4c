"""Answers whose bytes a handler has ready, and how any answer is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from starlette.types import Scope, Send

T = TypeVar("T")
Headers = Iterable[tuple[bytes, bytes]]

JSON: Final = (b"content-type", b"application/json")
NO_STORE: Final = (b"cache-control", b"no-store")
# RFC 9110 section 8.6: none in an answer that has no body; that of 304 would be the length of another one.
_WITHOUT_LENGTH: Final = frozenset({204, 304})

_EXPOSED: Final = (
    b"x-request-id, link, etag, retry-after, ratelimit, ratelimit-policy, x-partial, x-unpriced, "
    b"content-range, x-ipfs-path, x-ipfs-roots"
)
_ALWAYS: Final = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", _EXPOSED),
    (b"x-content-type-options", b"nosniff"),
)
# What the server itself has to know of (RFC 9112 sections 6.1 and 9.6).
_ABOUT_THE_CONNECTION: Final = frozenset({b"connection", b"transfer-encoding"})
# RFC 9110 section 5.5: what a field value may hold; the bytes beyond ASCII are obsolete, and servers let them pass.
_TEXT: Final = bytes({9, *range(0x20, 0x100)} - {0x7F})

# The place in an ASGI scope where a server may leave a way to write a whole answer at once: status, header lines (each
# with its end, none about the connection) and body. False means that it wants the two messages of ASGI, which cost as
# much as a read.
WRITE: Final = "muniment.write"
Write = Callable[[int, bytes, bytes], bool]


def _lines(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


_JSON_ONLY: Final = (JSON,)
_JSON_LINE: Final = _lines(_JSON_ONLY)
_ALWAYS_LINES: Final = _lines(_ALWAYS)


class Ready(msgspec.Struct, Generic[T], frozen=True):
    """An answer as bytes that spell a `T` in JSON, or content of another media type named in `headers`."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = _JSON_ONLY
    status: int = 200


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer that is made while it is sent. An error in the middle breaks the connection off."""

    chunks: AsyncIterator[bytes]
    headers: tuple[tuple[bytes, bytes], ...]
    status: int = 200


Reply = Ready[Any] | Streamed
NO_CONTENT: Final[Ready[None]] = Ready(b"", (), 204)


async def send_reply(reply: Reply, scope: Scope, send: Send) -> None:
    """Send `reply` with the headers that every answer has; to HEAD no body (RFC 9110 section 9.3.2)."""
    scope["muniment.status"] = status = reply.status
    write: Write | None = scope.pop(WRITE, None)  # it leads back to the scope: left in it, neither would be freed
    if isinstance(reply, Ready) and write is not None and _is_written(reply, scope, write):
        return
    headers = [*reply.headers]
    if isinstance(reply, Ready) and status not in _WITHOUT_LENGTH:
        headers.append((b"content-length", b"%d" % len(reply.body)))
    headers += ((b"x-request-id", scope["muniment.id"].encode()), *_ALWAYS)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if scope["method"] == "HEAD":
        await send({"type": "http.response.body", "body": b""})
    elif isinstance(reply, Ready):
        await send({"type": "http.response.body", "body": reply.body})
    else:
        async for chunk in reply.chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _is_written(reply: Ready[Any], scope: Scope, write: Write) -> bool:
    """Whether the server took the whole answer."""
    if scope["method"] == "HEAD":
        return False
    is_json = reply.headers[:1] == _JSON_ONLY
    own = _JSON_LINE if is_json else b""
    for name, value in reply.headers[is_json:]:
        # Without a line end in a value no other headers can come out than those that were given.
        if name in _ABOUT_THE_CONNECTION or value.translate(None, _TEXT):
            return False
        own = b"%b%b: %b\r\n" % (own, name, value)
    if reply.status not in _WITHOUT_LENGTH:
        own = b"%bcontent-length: %d\r\n" % (own, len(reply.body))
    lines = b"%bx-request-id: %b\r\n%b" % (own, scope["muniment.id"].encode(), _ALWAYS_LINES)
    return write(reply.status, lines, reply.body)


def etag_matches(if_none_match: str | None, etag: str) -> bool:
    """Whether `If-None-Match` (a list, weak tags, `*`) names `etag`; compared weakly (RFC 9110 section 8.8.3.2)."""
    if if_none_match is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or etag.removeprefix("W/") in tags
