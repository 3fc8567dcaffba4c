"""One request and its answer, and the body of the request as it arrives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, Self

from muniment.http.request import NO_BODY, ClientGone, Request

if TYPE_CHECKING:
    from muniment.errors import Refusal
    from muniment.http.reply import Reply

# Bytes of a body that wait for the handler; beyond them the connection stops reading.
BODY_BYTES_WAITING_MAX: Final = 64 * 1024


class Exchange:
    """One request and its answer."""

    __slots__ = ("body", "has_chunks", "is_persistent", "is_started", "is_whole", "reply", "request")

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
        # The answer to a malformed request, which the application does not get; None for other requests.
        self.reply: Reply | None = None

    @classmethod
    def unread(cls, peer: str) -> Self:
        """An exchange for a malformed request."""
        exchange = cls(is_persistent=False, has_chunks=False)
        exchange.request = Request("GET", "", b"", (), NO_BODY, peer=peer, named={}, head_bytes_max=0)
        return exchange

    def fail(self) -> None:
        """End the body: its client is gone."""
        if self.body is not None:
            self.body.fail(ClientGone)

    def finish(self) -> None:
        """The request is complete."""
        self.is_whole = True
        if self.body is not None:
            self.body.finish()


class BodyFlow(Protocol):
    """The part of a connection that a body uses."""

    def pause_body(self) -> None:
        """Stop reading from the client."""
        ...

    def resume_body(self) -> None:
        """Read from the client again."""
        ...

    def say_continue(self) -> None:
        """Ask a client that waits with its body to send it (RFC 9110 section 10.1.1)."""
        ...


class ReceivedBody:
    """A `Body` that a connection receives."""

    __slots__ = ("_expects_continue", "_failure", "_flow", "_is_whole", "_pieces", "_size", "_waiter")

    def __init__(self, flow: BodyFlow, *, expects_continue: bool) -> None:
        """`expects_continue`: the client waits with the body until the service asks for it."""
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
        """Have `take` raise `failure` from now on. The first failure stays."""
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
