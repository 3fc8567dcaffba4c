"""One request and its answer, and the body of the request as it arrives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, Self

from muniment.http.request import NO_BODY, ClientGone, Request

if TYPE_CHECKING:
    from muniment.errors import Refusal
    from muniment.http.reply import Reply

# Bytes of a body that are kept for a handler that does not take them; then the connection reads no more.
BODY_BYTES_WAITING_MAX: Final = 64 * 1024


class Exchange:
    """One request and its answer."""

    __slots__ = ("body", "has_chunks", "is_persistent", "is_started", "is_whole", "reply", "request")

    request: Request

    def __init__(self, *, is_persistent: bool, has_chunks: bool, body: ReceivedBody | None = None) -> None:
        """Begin an exchange; whoever makes it sets `request`.

        `is_persistent` tells whether another request may follow on the connection, `has_chunks` whether the client
        understands chunks (HTTP/1.0 has none).
        """
        self.is_persistent = is_persistent
        self.has_chunks = has_chunks
        self.body = body
        self.is_whole = False
        self.is_started = False
        # The answer, where it is known before the application is asked: to a request that cannot be read.
        self.reply: Reply | None = None

    @classmethod
    def unread(cls, peer: str) -> Self:
        """Begin an exchange for what cannot be read as a request."""
        exchange = cls(is_persistent=False, has_chunks=False)
        exchange.request = Request("GET", "", b"", (), NO_BODY, peer=peer, named={}, head_bytes_max=0)
        return exchange

    def fail(self) -> None:
        """Nothing follows of the request's body: its client is gone."""
        if self.body is not None:
            self.body.fail(ClientGone)

    def finish(self) -> None:
        """The request is complete."""
        self.is_whole = True
        if self.body is not None:
            self.body.finish()


class BodyFlow(Protocol):
    """What a body needs of its connection."""

    def pause_body(self) -> None:
        """Read no more for now."""
        ...

    def resume_body(self) -> None:
        """Read on."""
        ...

    def say_continue(self) -> None:
        """Tell a client that waits before its body to send it (RFC 9110 section 10.1.1)."""
        ...


class ReceivedBody:
    """A `Body` that a connection receives."""

    __slots__ = ("_expects_continue", "_failure", "_flow", "_is_whole", "_pieces", "_size", "_waiter")

    def __init__(self, flow: BodyFlow, *, expects_continue: bool) -> None:
        """`expects_continue` tells whether the client waits to be asked for the body."""
        self._flow = flow
        self._expects_continue = expects_continue
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_whole = False
        self._waiter: asyncio.Future[None] | None = None
        self._failure: type[ClientGone] | Refusal | None = None

    def receive(self, piece: bytes) -> None:
        """Take a piece."""
        self._pieces.append(piece)
        self._size += len(piece)
        self._wake()
        if self._size > BODY_BYTES_WAITING_MAX:
            self._flow.pause_body()

    def finish(self) -> None:
        """Nothing follows."""
        self._is_whole = True
        self._wake()

    def fail(self, failure: type[ClientGone] | Refusal) -> None:
        """Whoever takes of the body from now on is told of `failure`, unless of another one before."""
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
