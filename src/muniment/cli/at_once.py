"""Requests that wait for nothing, answered while they are read: without a task, a second scope, or another turn.

A GET that needs only a database at hand runs from its first line to its answer without giving way. It is tried where
its head is complete, through the same application as every other. If it waits after all, nothing has been done yet
that counts: it is dropped, and begins anew as uvicorn would have begun it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from muniment.cli.framing import FramesRequests
from muniment.http.reply import WRITE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.app import Application

# Put behind its head a body is copied, which for a longer one costs more than a second write.
JOINED_BYTES_MAX: Final = 64 * 1024
# One poll of libuv may tell of 1,024 sockets, and then it polls again before other callbacks run. With fewer there is
# nobody who asks later, and knows more, than those whose reads share a view of the database in this turn.
_CONNECTIONS_MAX: Final = 1_000
# Of requests that come in one read, so many are answered before others have their turn: less than a millisecond.
AT_ONCE_PER_READ: Final = 16
# Requests that may wait behind one that is not answered yet: two kilobytes each, of which one read can bring 14,000.
WAITING_MAX: Final = 1_000
_ANNOUNCES_A_BODY: Final = frozenset({b"content-length", b"transfer-encoding", b"expect"})


def whole(status: int, shared: Sequence[tuple[bytes, bytes]], lines: bytes) -> bytes:
    """The head of an answer: status line, the server's own headers, the application's, and the empty line."""
    return b"".join([STATUS_LINE[status], *[b"%b: %b\r\n" % pair for pair in shared], lines, b"\r\n"])


class AnswersAtOnce(FramesRequests):
    """A protocol that tries at once what may be. Before each read it is told how much that is."""

    _was_at_once = False
    _may_try = 0

    def on_headers_complete(self) -> None:
        """A head is complete."""
        path, _, query = self.url.partition(b"?")
        self._may_try -= 1
        self._was_at_once = self._may_be_at_once(path) and self._is_answered(path, query)
        if not self._was_at_once:
            if len(self.pipeline) >= WAITING_MAX:
                raise _TooMuchError  # stops the parser; the connection ends behind the answers that are due
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request is complete."""
        if not self._was_at_once:
            super().on_message_complete()

    def _may_be_at_once(self, path: bytes) -> bool:
        """Whether this is a plain GET, its turn has come, and the application most likely waits for nothing."""
        parser: Any = self.parser
        cycle: Any = self.cycle  # none before the first request, other than its type says
        return (
            self._may_try >= 0 and parser.get_method() == b"GET"
            and (cycle is None or cycle.response_complete)
            and path.isascii() and b"%" not in path and b"#" not in self.url
            and cast("Application", self.config.loaded_app).is_at_once(path.decode("ascii"))
            and parser.get_http_version() == "1.1" and parser.should_keep_alive() and not parser.should_upgrade()
            and _ANNOUNCES_A_BODY.isdisjoint(dict(self.headers))
            and not self.flow.write_paused and not self.transport.is_closing()
            and len(self.connections) < _CONNECTIONS_MAX
        )  # fmt: skip

    def _is_answered(self, path: bytes, query: bytes) -> bool:
        """Try to answer; False if it waits for something, or has more to say than one whole answer."""
        scope: Any = self.scope
        scope["method"] = "GET"
        scope["path"] = path.decode("ascii")
        scope["raw_path"], scope["query_string"] = path, query
        scope[WRITE] = self._write_at_once
        self._was_at_once = False
        application = cast("Application", self.config.loaded_app)
        try:
            serving = cast("Coroutine[Any, Any, None]", application.serve(scope, _nothing, _more))
            serving.send(None)
            serving.close()
        except StopIteration:
            pass
        except Exception:
            if self._was_at_once:  # else it is met again, where it is reported
                self.logger.exception("Exception in ASGI application\n")  # as uvicorn says it
        return self._was_at_once

    def _write_at_once(self, status: int, lines: bytes, body: bytes) -> bool:
        head = whole(status, self.server_state.default_headers, lines)
        if len(body) > JOINED_BYTES_MAX:
            self.transport.write(head)
            self.transport.write(body)
        else:
            self.transport.write(head + body)
        self._was_at_once = True
        self.on_response_complete()
        return True


class _TooMuchError(Exception):
    """The answer is not one whole, or too many requests wait."""


async def _nothing() -> Any:
    raise _TooMuchError


async def _more(_: Any) -> None:
    raise _TooMuchError
