"""The only table from a refusal to an HTTP status, and the problem document (RFC 9457) that carries it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Final

import msgspec

from muniment.protocol import errors
from muniment.protocol.errors import BY_CODE, Fault, Refusal
from muniment.protocol.visible import visible
from muniment.protocol.wire import encode
from muniment.service.http.reply import JSON, NO_STORE, Ready
from muniment.service.http.request import media_ranges, named_quality, quality
from muniment.service.running.limits.policies import refusal_headers

# A refusal without a line here has the status of its family.
STATUSES: Final[dict[type[Refusal], int]] = {
    errors.Invalid: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.Absent: 404,
    errors.MethodNotAllowed: 405,
    errors.NotAcceptable: 406,
    errors.RequestTimeout: 408,
    errors.Conflicting: 409,
    errors.CursorTooOld: 410,
    errors.NotCached: 412,
    errors.TooLarge: 413,
    errors.UriTooLong: 414,
    errors.UnsupportedMediaType: 415,
    errors.RangeNotSatisfiable: 416,
    errors.Limited: 429,
    errors.HeadersTooLarge: 431,
    errors.Broken: 500,
    errors.MethodNotImplemented: 501,
    errors.TransferCodingNotSupported: 501,
    errors.Unavailable: 503,
    errors.HttpVersionNotSupported: 505,
}

PROBLEM_TYPE: Final = "application/problem+json"
# `Retry-After` for an unavailable dependency: a busy database needs one second, a full disk longer.
RETRY_AFTER_S: Final = 2
# `Retry-After` for an overloaded process.
RETRY_OVERLOADED_S: Final = 1

# Refusals of every operation.
EVERYWHERE: Final[tuple[type[Refusal], ...]] = (
    errors.InvalidParameter,
    errors.UriTooLong,
    errors.HeadersTooLarge,
    errors.RateLimited,
    errors.InternalError,
    errors.DatabaseUnavailable,
    errors.Overloaded,
)


class FaultShown(msgspec.Struct, frozen=True, omit_defaults=True):
    """A faulty part of the request."""

    detail: Annotated[str, msgspec.Meta(description="The reason")]
    pointer: Annotated[str, msgspec.Meta(description="JSON pointer (RFC 6901) into the body")] | None = None
    parameter: Annotated[str, msgspec.Meta(description="Name of a path, query or header parameter")] | None = None

    example: ClassVar[dict[str, Any]] = {"detail": "a wrong EIP-55 checksum", "pointer": "/address"}


class Content(msgspec.Struct, frozen=True):
    """`message` and `errors` repeated in the form that existing clients read."""

    message: str
    errors: list[str]

    example: ClassVar[dict[str, Any]] = {
        "message": "a wrong EIP-55 checksum", "errors": ["/address: a wrong EIP-55 checksum"],
    }  # fmt: skip


class Problem(msgspec.Struct, frozen=True, rename="camel"):
    """A problem document (RFC 9457): every answer that is neither 2xx nor 3xx."""

    type: Annotated[
        str,
        msgspec.Meta(
            description="The page that explains `code`, relative to the request's URL, or absolute",
            pattern="(^|/)errors/[a-z-]+$",
        ),
    ]
    title: str
    status: Annotated[int, msgspec.Meta(ge=400, le=599)]
    code: Annotated[str, msgspec.Meta(description="Stable name of the reason", pattern="^[a-z-]+$")]
    detail: str
    errors: list[FaultShown]
    request_id: Annotated[str, msgspec.Meta(description="The same as the `x-request-id` header")]
    message: Annotated[str, msgspec.Meta(description="The same as `detail`")]
    content: Content

    example: ClassVar[dict[str, Any]] = {
        "type": "../errors/invalid-address", "title": "Invalid EVM address", "status": 400, "code": "invalid-address",
        "detail": "a wrong EIP-55 checksum", "errors": [FaultShown.example], "requestId": "8f0c2c1d",
        "message": "a wrong EIP-55 checksum", "content": Content.example,
    }  # fmt: skip


def all_refusals() -> list[type[Refusal]]:
    """Every refusal that has a code, by code."""
    return [BY_CODE[code] for code in sorted(BY_CODE)]


def status_of(refusal: type[Refusal]) -> int:
    """The status of a refusal: its own, or that of its nearest family."""
    return next(STATUSES[kind] for kind in refusal.__mro__ if kind in STATUSES)


def problem(
    refusal: Refusal, request_id: str, root: str, accept: str = "", headers: tuple[tuple[bytes, bytes], ...] = ()
) -> Ready[Problem]:
    """`refusal` as an answer, as `application/problem+json` for clients whose `Accept` prefers it, else as JSON.

    `root` is the root of the service, for a client.
    """
    status = status_of(type(refusal))
    detail = visible(refusal.detail, keeps="\n")
    faults = [FaultShown(visible(fault.detail, keeps="\n"), fault.pointer, fault.parameter) for fault in refusal.faults]
    document: dict[str, Any] = {
        "type": f"{root}errors/{refusal.code}",
        "title": refusal.title,
        "status": status,
        "code": refusal.code,
        "detail": detail,
        "errors": faults,
        "requestId": request_id,
        "message": detail,
        "content": {"message": detail, "errors": [_fault_text(fault) for fault in refusal.faults]},
        **refusal.facts,
    }
    media_type = (b"content-type", PROBLEM_TYPE.encode()) if _wants_problem(accept) else JSON
    return Ready(encode(document), (media_type, *problem_headers(refusal, status), *headers), status)


def _wants_problem(accept: str) -> bool:
    """Whether `Accept` names the media type of problems, and gives no more weight to plain JSON."""
    if PROBLEM_TYPE not in accept.lower():
        return False
    ranges = media_ranges([accept])
    named = named_quality(ranges, PROBLEM_TYPE)
    return named > 0 and named >= quality(ranges, "application/json")


def _fault_text(fault: Fault) -> str:
    place = fault.pointer or fault.parameter
    return visible(f"{place}: {fault.detail}" if place else fault.detail, keeps="\n")


def problem_headers(refusal: Refusal, status: int) -> list[tuple[bytes, bytes]]:
    """The header fields that RFC 9110 requires with a status."""
    headers: list[tuple[bytes, bytes]] = []
    if status == HTTPStatus.UNAUTHORIZED:  # section 15.5.2: a challenge; browsers show no dialogue for this scheme
        headers.append((b"www-authenticate", b'Bearer realm="muniment"'))
    if status == HTTPStatus.SERVICE_UNAVAILABLE:  # section 10.2.3
        seconds = RETRY_OVERLOADED_S if isinstance(refusal, errors.Overloaded) else RETRY_AFTER_S
        headers.append((b"retry-after", b"%d" % refusal.facts.get("retryAfter", seconds)))
    if isinstance(refusal, errors.NotLoggedYet):
        headers.append((b"retry-after", b"%d" % refusal.facts["retryAfter"]))
    if isinstance(refusal, errors.LogPartNotFound):  # it may be there in a second
        headers.append(NO_STORE)
    if isinstance(refusal, errors.Limited):
        headers += refusal_headers(refusal.facts)
    if isinstance(refusal, errors.RangeNotSatisfiable):
        headers.append((b"content-range", f"bytes */{refusal.facts['size']}".encode()))
    return headers
