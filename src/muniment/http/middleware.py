"""What every request and answer have in common: an id, limits, the raw path, CORS, security headers, a log line."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

import structlog

from muniment.errors import HeadersTooLarge, Refusal, UriTooLong
from muniment.http.limits import HEADER_BYTES_MAX, TARGET_BYTES_MAX, Limits
from muniment.http.operation import refused
from muniment.http.reply import send_reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
_ALWAYS: Final = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", _EXPOSED),
    (b"x-content-type-options", b"nosniff"),
]

_log = structlog.get_logger("muniment.access")


class Manners:
    """The one layer around the router."""

    def __init__(
        self, app: ASGIApp, *, limits: Limits, random_bytes: Callable[[int], bytes], log_requests: bool
    ) -> None:
        """Wrap `app`; `random_bytes` makes request ids."""
        self._app = app
        self._limits = limits
        self._random_bytes = random_bytes
        self._log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request; lifespan messages pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id, trace_id = self._identify(scope)
        scope["muniment.id"] = request_id
        scope["muniment.limits"] = self._limits
        started = time.perf_counter()
        own = [(b"x-request-id", request_id.encode()), *_ALWAYS]
        status = 0

        async def send_with_manners(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *own]
            await send(message)

        if refusal := self._excess(scope):
            await send_reply(refused(refusal, scope), scope["method"], send_with_manners)
        else:
            scope["path"] = _matched_path(scope)
            await self._app(scope, receive, send_with_manners)
        if self._log_requests:
            _log.info(
                "request", method=scope["method"], path=scope["path"], status=status, request_id=request_id,
                ms=round((time.perf_counter() - started) * 1000, 2), **({"trace_id": trace_id} if trace_id else {}),
            )  # fmt: skip

    def _identify(self, scope: Scope) -> tuple[str, str | None]:
        """The request's id (the client's own when it has an acceptable one) and its W3C trace id."""
        given = trace_id = None
        for key, value in scope["headers"]:
            if key == b"x-request-id":
                given = value.decode("latin-1")
            elif key == b"traceparent" and (match := _TRACEPARENT.fullmatch(value.decode("latin-1"))):
                trace_id = match[1]
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given, trace_id
        return trace_id or self._random_bytes(16).hex(), trace_id

    @staticmethod
    def _excess(scope: Scope) -> Refusal | None:
        target_bytes = len(scope["raw_path"]) + len(scope["query_string"])
        if target_bytes > TARGET_BYTES_MAX:
            return UriTooLong(f"the request target has more than {TARGET_BYTES_MAX} bytes")
        if sum(len(key) + len(value) for key, value in scope["headers"]) > HEADER_BYTES_MAX:
            return HeadersTooLarge(f"the header fields have more than {HEADER_BYTES_MAX} bytes")
        return None


def _matched_path(scope: dict[str, Any] | Scope) -> str:
    """The path that routes are matched on: as it was sent, so that `%2f` is not a slash.

    An absolute-form target (RFC 9112 section 3.2.2) loses its scheme and authority; doubled leading slashes are one,
    because a client whose base URL ends in a slash sends them.
    """
    raw: str = scope["raw_path"].decode("latin-1")
    if not raw.startswith("/"):
        raw = "/" + raw.partition("://")[2].partition("/")[2]
    return "/" + raw.lstrip("/") if raw.startswith("//") else raw
