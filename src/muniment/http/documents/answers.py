"""The answers of an operation in OpenAPI: results, refusals and their header fields."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from muniment.errors import NotLoggedYet, Refusal
from muniment.http.operation import Answer
from muniment.http.problems import status_of

Json = dict[str, Any]

_SCHEMA: Final = {"$ref": "#/components/schemas/Problem"}
_JSON: Final = "application/json"
_BYTES: Final = {"type": "string", "format": "binary"}
_TEXT: Final = {"type": "string"}

LISTED: Final = {
    200: Answer("A page", headers={
        "link": 'The next page as `<…>; rel="next"` (RFC 8288); on the page of the newest rows also later rows as '
        '`<…>; rel="prev"`',
    }),
}  # fmt: skip
# A record that may change: 304 for a client that has its present state.
_ETAG: Final = {"etag": "Identifies this state of the record (RFC 9110 section 8.8.3)"}
TAGGED: Final = {200: Answer("Done", headers=_ETAG), 304: Answer("Not modified", headers=_ETAG)}

# Header fields of many answers; an `Answer` has those of one operation.
HEADERS: Final[Mapping[str, Json]] = {
    "x-request-id": {
        "description": "Identifies the request in the service's log. The client's own id if it sent a valid one",
        "schema": {"type": "string", "maxLength": 128},
    },
    "ratelimit": {
        "description": "The remaining quota of the client (draft-ietf-httpapi-ratelimit-headers)",
        "schema": {"type": "string"},
    },
    "ratelimit-policy": {
        "description": "The policy of `ratelimit` (same draft)",
        "schema": {"type": "string"},
    },
    "retry-after": {
        "description": "Seconds until the client may retry (RFC 9110 section 10.2.3)",
        "schema": {"type": "integer", "minimum": 0},
    },
    "content-range": {
        "description": "The size of the content: `bytes */size` (RFC 9110 section 15.5.17)",
        "schema": {"type": "string"},
    },
    "www-authenticate": {
        "description": "The challenge that a 401 requires (RFC 9110 section 11.6.1)",
        "schema": {"type": "string"},
    },
}
_HEADER: Final = "#/components/headers/"
_RETRY: Final = "retry-after"
# A 404 that ends by itself.
_WAITED_FOR: Final = NotLoggedYet.code
_OF_EVERY_ANSWER: Final = ("x-request-id", "ratelimit", "ratelimit-policy")
_OF_STATUS: Final[Mapping[int, tuple[str, ...]]] = {
    401: ("www-authenticate",),
    416: ("content-range",),
    429: ("retry-after",),
    503: ("retry-after",),
}


def described_answer(status: int, answer: Answer, json_schema: Json | None) -> Json:
    """An answer that is no refusal; `json_schema` is that of its JSON, if there is any."""
    described: Json = {"description": answer.description, "headers": _headers(status, answer.headers)}
    kinds = answer.media_types or (() if json_schema is None else (_JSON,))
    content = {kind: {"schema": json_schema if kind == _JSON else _schema_of(kind)} for kind in kinds}
    return {**described, "content": content} if content else described


def _schema_of(media_type: str) -> Json:
    return _TEXT if media_type.startswith("text/") else _BYTES


def described_problems(refusals: Iterable[type[Refusal]], shared: Json) -> Json:
    """Refusals by status. What one code alone answers goes to `shared`, by its code, and is referred to."""
    by_status: defaultdict[int, list[str]] = defaultdict(list)
    for refusal in refusals:
        by_status[status_of(refusal)].append(refusal.code)
    described: Json = {}
    for status, codes in by_status.items():
        if len(codes) == 1:
            shared[codes[0]] = _problem(status, codes)
            described[str(status)] = {"$ref": f"#/components/responses/{codes[0]}"}
        else:
            described[str(status)] = _problem(status, codes)
    return described


def _problem(status: int, codes: list[str]) -> Json:
    media = {"schema": {"allOf": [_SCHEMA, {"properties": {"code": {"enum": codes}}}]}}
    return {
        "description": " · ".join(codes),
        "headers": _headers(status, {}) | ({_RETRY: {"$ref": _HEADER + _RETRY}} if _WAITED_FOR in codes else {}),
        "content": {"application/json": media, "application/problem+json": media},
    }


def _headers(status: int, own: Mapping[str, str]) -> Json:
    shared = (*_OF_EVERY_ANSWER, *_OF_STATUS.get(status, ()))
    return {
        **{name: {"description": about, "schema": {"type": "string"}} for name, about in own.items()},
        **{name: {"$ref": _HEADER + name} for name in shared},
    }
