"""Answers whose bytes a handler has ready, and how any answer is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from starlette.types import Scope, Send

T = TypeVar("T")
Headers = Iterable[tuple[bytes, bytes]]

JSON: Final = (b"content-type", b"application/json")
NO_STORE: Final = (b"cache-control", b"no-store")
# RFC 9110 section 8.6: none in an answer that has no body; that of 304 would be the length of another one.
_WITHOUT_LENGTH: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Ready(Generic[T]):
    """An answer as bytes that spell a `T` in JSON, or content of another media type named in `headers`."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = (JSON,)
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
    status, headers = reply.status, [*reply.headers]
    if isinstance(reply, Ready) and status not in _WITHOUT_LENGTH:
        headers.append((b"content-length", b"%d" % len(reply.body)))
    headers += scope["muniment.headers"]
    scope["muniment.status"] = status
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if scope["method"] == "HEAD":
        await send({"type": "http.response.body", "body": b""})
    elif isinstance(reply, Ready):
        await send({"type": "http.response.body", "body": reply.body})
    else:
        async for chunk in reply.chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def etag_matches(if_none_match: str | None, etag: str) -> bool:
    """Whether `If-None-Match` (a list, weak tags, `*`) names `etag`; compared weakly (RFC 9110 section 8.8.3.2)."""
    if if_none_match is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or etag.removeprefix("W/") in tags
