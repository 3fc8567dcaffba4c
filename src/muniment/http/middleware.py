"""What every request and answer have in common: an id, limits, the raw path, CORS, security headers, a log line."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

import structlog

from muniment.errors import HeadersTooLarge, Refusal, UriTooLong
from muniment.http.limits import HEADER_BYTES_MAX, TARGET_BYTES_MAX, Limits
from muniment.http.operation import refused
from muniment.http.reply import send_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp, Receive, Scope, Send

# Visible ASCII that is safe in a log line and a header; longer ids are somebody's mistake.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._~:/+=-]{1,128}")
# W3C Trace Context section 3.2: version, trace-id, parent-id, flags. There is no version ff, and 00 ends there.
_TRACEPARENT: Final = re.compile(
    r"(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)

_EXPOSED: Final = (
    b"x-request-id, link, etag, retry-after, ratelimit, ratelimit-policy, x-partial, x-unpriced, "
    b"content-range, x-ipfs-path, x-ipfs-roots"
)
_ALWAYS: Final = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", _EXPOSED),
    (b"x-content-type-options", b"nosniff"),
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request; lifespan messages pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        header_bytes, given, trace_id = _read_headers(scope["headers"])
        request_id = given or trace_id or next(self._ids)
        scope["muniment.id"] = request_id
        scope["muniment.limits"] = self._limits
        scope["muniment.headers"] = ((b"x-request-id", request_id.encode()), *_ALWAYS)
        if refusal := _excess(scope, header_bytes):
            await send_reply(refused(refusal, scope), scope, send)
        else:
            scope["path"] = _matched_path(scope)
            await self._app(scope, receive, send)
        if self._log_requests:
            _log.info(
                "request", method=scope["method"], path=scope["path"], status=scope.get("muniment.status", 0),
                request_id=request_id, ms=round((time.perf_counter() - started) * 1000, 2),
                **({"trace_id": trace_id} if trace_id else {}),
            )  # fmt: skip


def _fresh_ids(random_bytes: Callable[[int], bytes]) -> Iterator[str]:
    """Ids of 128 random bits. They need not be secret, so many are drawn at once: each draw asks the kernel."""
    while True:
        digits = random_bytes(16 * _IDS_DRAWN_AT_ONCE).hex()
        for start in range(0, len(digits), 32):
            yield digits[start : start + 32]


def _read_headers(headers: list[tuple[bytes, bytes]]) -> tuple[int, str | None, str | None]:
    """The size of the header fields, the client's own id for the request if it is acceptable, its W3C trace id."""
    size, given, trace_id = 0, None, None
    for key, value in headers:
        size += len(key) + len(value)
        if key == b"x-request-id":
            text = value.decode("latin-1")
            given = text if _REQUEST_ID.fullmatch(text) else None
        elif key == b"traceparent" and (match := _TRACEPARENT.fullmatch(value.decode("latin-1"))):
            trace_id = match[1]
    return size, given, trace_id


def _excess(scope: Scope, header_bytes: int) -> Refusal | None:
    if len(scope["raw_path"]) + len(scope["query_string"]) > TARGET_BYTES_MAX:
        return UriTooLong(f"the request target has more than {TARGET_BYTES_MAX} bytes")
    if header_bytes > HEADER_BYTES_MAX:
        return HeadersTooLarge(f"the header fields have more than {HEADER_BYTES_MAX} bytes")
    return None


def _matched_path(scope: Scope) -> str:
    """The path that routes are matched on: as it was sent, so that `%2f` is not a slash.

    An absolute-form target (RFC 9112 section 3.2.2) loses its scheme and authority; doubled leading slashes are one,
    because a client whose base URL ends in a slash sends them.
    """
    raw: str = scope["raw_path"].decode("latin-1")
    if not raw.startswith("/"):
        raw = "/" + raw.partition("://")[2].partition("/")[2]
    return "/" + raw.lstrip("/") if raw.startswith("//") else raw
