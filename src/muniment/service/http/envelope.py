"""The common parts of requests and answers: an id, limits, the matched path, a log line."""

from __future__ import annotations

import re
import time
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from muniment.protocol.errors import HeadersTooLarge, RateLimited, Refusal, UriTooLong
from muniment.service.http.operation import refused
from muniment.service.http.reply import NO_CONTENT, Ready
from muniment.service.http.request import HEADER_BYTES_MAX, TARGET_BYTES_MAX, ClientGone, Limits
from muniment.service.running.limits.costs import BODY_BYTES_FREE
from muniment.service.running.metrics.recorder import UNMATCHED
from muniment.service.running.tracing.parents import read_parent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from muniment.service.http.admission import Admission
    from muniment.service.http.assets import Assets
    from muniment.service.http.operation import Found, Router
    from muniment.service.http.reply import Reply
    from muniment.service.http.request import Request
    from muniment.service.running.metrics.recorder import Metrics

    # Answers a request by the given function, logs and traces it.
    Observe: TypeAlias = Callable[[Request, Callable[[Request], Awaitable[Reply]]], Awaitable[Reply]]

# Visible ASCII that is safe in a log line and a header; longer ids are a mistake.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._~:/+=-]{1,128}")
_REFUSED: Final = 400
# The first segments of the paths that existing clients ask for, and of those that the answers to them lead to.
_DOUBLED: Final = frozenset({"errors", "functions", "intents", "triggers", "users"})
# Request ids drawn together: four kilobytes of randomness.
_IDS_PER_DRAW: Final = 256


class Envelope:
    """The layer around the router: from a server's request to its answer."""

    def __init__(  # noqa: PLR0913 - by name
        self, router: Router, context: Any, admission: Admission, *,
        limits: Limits, metrics: Metrics, random_bytes: Callable[[int], bytes],
        observe: Observe | None = None,
        assets: Assets | None = None,
        public_url: str = "",
    ) -> None:  # fmt: skip
        """Answer from `router`; `random_bytes` makes request ids.

        `observe` logs and traces requests; None if the settings select neither. `assets` are the files of the console;
        None without one.
        """
        self._router = router
        self._context = context
        self._admission = admission
        self._limits = limits
        self._metrics = metrics
        self._ids = _fresh_ids(random_bytes)
        self._observe = observe
        self._assets = assets
        self._public_url = public_url.rstrip("/")

    def respond(self, request: Request) -> Awaitable[Reply]:
        """The answer to a request. Raises `ClientGone` when the client has disconnected."""
        named = request.named
        request.context = self._context
        request.limits = self._limits
        request.assets = self._assets
        request.public_url = self._public_url
        trace_id = _trace_id(request) if b"traceparent" in named else None
        given = _given_id(named) if b"x-request-id" in named else None
        request.id = given or trace_id or next(self._ids)
        if self._observe is not None:
            return self._observe(request, self._answer)
        return self._answer(request)

    def refuse(self, refusal: Refusal, request: Request) -> Ready[Any]:
        """The answer to a request that its server could not read."""
        request.public_url = self._public_url
        request.id = next(self._ids)
        self._admission.owe_unread(request)
        reply = refused(refusal, request)
        self._count_refused(request, UNMATCHED, reply)
        return reply

    async def _answer(self, request: Request) -> Reply:
        """The answer, which is counted, unless the client disconnected without one."""
        started = time.perf_counter()
        if request.path[:1] != "/" or request.path[:2] == "//":
            request.path = _matched_path(request.path)
        found = self._router.find(request)
        reply = await self._answer_from(found, request)
        if found.operation is None:
            self._count_refused(request, found.resource.path if found.resource else UNMATCHED, reply)
            return reply
        seconds = time.perf_counter() - started
        self._metrics.requests.record(request.method, found.operation.path, reply.status, seconds)
        if request.refused:
            self._metrics.counter("refused_total", code=request.refused).add()
        return reply

    def _count_refused(self, request: Request, route: str, reply: Reply) -> None:
        """Count an answer without an operation."""
        self._metrics.requests.record_refused(request.method, route, reply.status)
        if request.refused:
            self._metrics.counter("refused_total", code=request.refused).add()

    async def _answer_from(self, found: Found, request: Request) -> Reply:
        try:
            self._admission.admit(request, found.operation)
            if request.head_bytes_max > TARGET_BYTES_MAX:
                _refuse_excess(request)
        except Refusal as refusal:
            return self._charged_refusal(request, refused(refusal, request))
        if found.operation is None:
            return found.refuse(request)
        request.overload = overload = self._admission.overload
        overload.in_flight += 1
        request.held = self._admission.held
        if found.operation.takes_turns:
            request.turns = self._admission.turns
        try:
            reply = await found.operation.answer(request)
        except ClientGone:
            self._admission.owe(request, found.operation, NO_CONTENT)  # received bytes were read
            raise
        finally:  # also if the client disconnected
            overload.in_flight -= 1
        is_short = type(reply) is Ready and len(reply.body) < found.operation.bytes_free
        if request.received > BODY_BYTES_FREE or request.due_units or not is_short:
            reply = self._admission.owe(request, found.operation, reply)
        return self._charged_refusal(request, reply) if request.wallet_units else reply

    def _charged_refusal(self, request: Request, reply: Reply) -> Reply:
        """The answer; a refusal that no wallet paid for is charged to the client, which may exceed its limit."""
        if request.wallet_units and reply.status >= _REFUSED:
            try:
                self._admission.charge_refused(request)
            except RateLimited as refusal:
                return refused(refusal, request)
        return reply


def _fresh_ids(random_bytes: Callable[[int], bytes]) -> Iterator[str]:
    """Ids of 128 random bits. They need not be secret, so one system call draws many."""
    while True:
        digits = random_bytes(16 * _IDS_PER_DRAW).hex()
        for start in range(0, len(digits), 32):
            yield digits[start : start + 32]


def _given_id(named: Mapping[bytes, bytes]) -> str | None:
    """The client's own id for the request, if it is acceptable."""
    text = named[b"x-request-id"].decode("latin-1")
    return text if _REQUEST_ID.fullmatch(text) else None


def _trace_id(request: Request) -> str | None:
    """The trace id of the request, if its `traceparent` is valid."""
    parent = read_parent(request.headers(b"traceparent"))
    return parent.trace_id if parent is not None else None


def _refuse_excess(request: Request) -> None:
    """Raises `UriTooLong` or `HeadersTooLarge`."""
    if len(request.path) + len(request.query) > TARGET_BYTES_MAX:
        raise UriTooLong(f"the request target has more than {TARGET_BYTES_MAX} bytes")
    if len(b"".join(chain.from_iterable(request.fields))) > HEADER_BYTES_MAX:
        raise HeadersTooLarge(f"the header fields have more than {HEADER_BYTES_MAX} bytes")


def _matched_path(sent: str) -> str:
    """The path to match routes on, of a target that does not begin with one slash; still percent-encoded.

    An absolute-form target (RFC 9112 section 3.2.2) loses its scheme and authority. Doubled leading slashes, which
    clients with a base URL that ends in a slash send, count as one before `_DOUBLED`.
    """
    if not sent.startswith("/"):
        sent = "/" + sent.partition("://")[2].partition("/")[2]
    plain = sent.lstrip("/")
    return f"/{plain}" if plain.partition("/")[0] in _DOUBLED else sent
