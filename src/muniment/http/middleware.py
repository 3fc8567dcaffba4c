"""What every request and answer have in common: an id, limits, the raw path, CORS, security headers, a log line."""

from __future__ import annotations

import re
import time
from itertools import chain
from typing import TYPE_CHECKING, Final

import structlog

from muniment.errors import HeadersTooLarge, Refusal, UriTooLong
from muniment.http.limits import HEADER_BYTES_MAX, TARGET_BYTES_MAX, Limits
from muniment.http.operation import refused
from muniment.http.reply import send_reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

# Visible ASCII that is safe in a log line and a header; longer ids are somebody's mistake.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._~:/+=-]{1,128}")
# W3C Trace Context section 3.2: version, trace-id, parent-id, flags. There is no version ff, and 00 ends there.
_TRACEPARENT: Final = re.compile(
    r"(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)

# Four kilobytes of randomness.
_IDS_DRAWN_AT_ONCE: Final = 256

_log = structlog.get_logger("muniment.access")


class Manners:
    """The one layer around the router."""

    def __init__(
        self, app: ASGIApp, *, limits: Limits, random_bytes: Callable[[int], bytes], log_requests: bool
    ) -> None:
        """Wrap `app`; `random_bytes` makes request ids."""
        self._app = app
        self._limits = limits
        self._ids = _fresh_ids(random_bytes)
        self._log_requests = log_requests

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one HTTP request; lifespan messages pass through."""
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        # The last of each name, which is all there is of most: one look at the headers serves every later one.
        scope["muniment.fields"] = fields = dict(scope["headers"])
        trace_id = _trace_id(scope, fields) if b"traceparent" in fields else None
        given = _given_id(fields) if b"x-request-id" in fields else None
        scope["muniment.id"] = given or trace_id or next(self._ids)
        scope["muniment.limits"] = self._limits
        if refusal := _excess(scope):
            served: Awaitable[None] = send_reply(refused(refusal, scope), scope, send)
        else:
            raw: bytes = scope["raw_path"]
            if b"%" in raw or raw[:1] != b"/" or raw[:2] == b"//" or not raw.isascii():
                scope["path"] = _matched_path(raw)  # else the server's reading is the same
            served = self._app(scope, receive, send)
        return _logged(served, scope, trace_id) if self._log_requests else served


async def _logged(served: Awaitable[None], scope: Scope, trace_id: str | None) -> None:
    """Serve a request, and log what came of it."""
    started = time.perf_counter()
    await served
    _log.info(
        "request", method=scope["method"], path=scope["path"], status=scope.get("muniment.status", 0),
        request_id=scope["muniment.id"], ms=round((time.perf_counter() - started) * 1000, 2),
        **({"trace_id": trace_id} if trace_id else {}),
    )  # fmt: skip


def _fresh_ids(random_bytes: Callable[[int], bytes]) -> Iterator[str]:
    """Ids of 128 random bits. They need not be secret, so many are drawn at once: each draw asks the kernel."""
    while True:
        digits = random_bytes(16 * _IDS_DRAWN_AT_ONCE).hex()
        for start in range(0, len(digits), 32):
            yield digits[start : start + 32]


def _given_id(fields: Mapping[bytes, bytes]) -> str | None:
    """The client's own id for the request, if it is acceptable."""
    text = fields[b"x-request-id"].decode("latin-1")
    return text if _REQUEST_ID.fullmatch(text) else None


def _trace_id(scope: Scope, fields: Mapping[bytes, bytes]) -> str | None:
    """The W3C trace id of the request, if it is one and the only one: of two nobody can say which is meant."""
    if len(fields) != len(scope["headers"]) and sum(name == b"traceparent" for name, _ in scope["headers"]) > 1:
        return None
    match = _TRACEPARENT.fullmatch(fields[b"traceparent"].decode("latin-1"))
    return match[1] if match else None


def _excess(scope: Scope) -> Refusal | None:
    if len(scope["raw_path"]) + len(scope["query_string"]) > TARGET_BYTES_MAX:
        return UriTooLong(f"the request target has more than {TARGET_BYTES_MAX} bytes")
    if len(b"".join(chain.from_iterable(scope["headers"]))) > HEADER_BYTES_MAX:
        return HeadersTooLarge(f"the header fields have more than {HEADER_BYTES_MAX} bytes")
    return None


def _matched_path(sent: bytes) -> str:
    """The path that routes are matched on: as it was sent, so that `%2f` is not a slash.

    An absolute-form target (RFC 9112 section 3.2.2) loses its scheme and authority; doubled leading slashes are one,
    because a client whose base URL ends in a slash sends them.
    """
    raw = sent.decode("latin-1")
    if not raw.startswith("/"):
        raw = "/" + raw.partition("://")[2].partition("/")[2]
    return "/" + raw.lstrip("/") if raw.startswith("//") else raw
