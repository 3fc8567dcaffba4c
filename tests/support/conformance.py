"""Compare every answer in the tests with the OpenAPI document."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import httpx2

from muniment.service.app import OPERATIONS
from muniment.service.auth.caller import SECURITY_SCHEMES
from muniment.service.http.openapi import openapi_document, refusals_of
from muniment.service.http.operation import Operation

_MANNERS = ("x-request-id", "access-control-allow-origin", "x-content-type-options")
# Header fields that say how an answer is to be read, kept or shown: every HTTP library knows what they mean.
_OF_HTTP = {
    "content-type", "content-length", "connection", "date", "allow", "vary", "cache-control", "accept-ranges",
    "access-control-allow-origin", "access-control-expose-headers", "x-content-type-options",
    "content-security-policy", "referrer-policy", "cross-origin-opener-policy", "permissions-policy",
}  # fmt: skip
# Members of a problem document, in their order; some refusals add facts after them.
_PROBLEM = ["type", "title", "status", "code", "detail", "errors", "requestId", "message", "content"]


@cache
def _operations() -> list[tuple[re.Pattern[str], Operation]]:
    ordered = sorted(OPERATIONS, key=lambda each: "{" in each.path)
    return [(re.compile(re.sub(r"\{\w+\}", "[^/]+", each.path) + "(/.+)?" * each.takes_rest), each) for each in ordered]


@cache
def document() -> dict[str, Any]:
    return openapi_document(OPERATIONS, version="0", about="", security=SECURITY_SCHEMES)


def operation_at(method: str, path: str) -> Operation | None:
    method = "GET" if method == "HEAD" else method
    path = "/" + path.lstrip("/")
    resource = next((each.path for form, each in _operations() if form.fullmatch(path)), None)
    return next((each for _, each in _operations() if (each.path, each.method) == (resource, method)), None)


async def check_answer(response: httpx2.Response) -> None:
    """Check an answer; the client of the tests calls it for each."""
    for name in _MANNERS:
        assert name in response.headers, f"{name} is missing"
    request = response.request
    found = operation_at(request.method, request.url.raw_path.decode("latin-1").partition("?")[0])
    if found is not None:
        _check_headers(response, found)
    if response.status_code >= 400:
        await response.aread()
        if request.method != "HEAD":
            _check_problem(response, found)
    elif found is not None:
        announced = document()["paths"][found.path][found.method.lower()]["responses"]
        assert str(response.status_code) in announced, f"{found.path} does not announce {response.status_code}"


def _check_headers(response: httpx2.Response, found: Operation) -> None:
    """Check that the document declares each header field that a typed client may need."""
    described = document()
    answer = described["paths"][found.path][found.method.lower()]["responses"].get(str(response.status_code), {})
    if "$ref" in answer:
        answer = described["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    undeclared = set(response.headers) - _OF_HTTP - set(answer.get("headers", ()))
    assert not undeclared, f"{found.method} {found.path}, {response.status_code} does not declare {undeclared}"


def _check_problem(response: httpx2.Response, found: Operation | None) -> None:
    body = response.json()
    assert list(body)[: len(_PROBLEM)] == _PROBLEM, body
    assert body["status"] == response.status_code
    assert body["requestId"] == response.headers["x-request-id"]
    # With a public URL it is absolute, and may have a path before.
    assert response.url.join(body["type"]).path.endswith(f"/errors/{body['code']}")
    assert body["message"] == body["detail"] == body["content"]["message"]
    assert len(body["errors"]) == len(body["content"]["errors"])
    if found is not None:
        codes = _codes(found.method, found.path)
        assert body["code"] in codes, f"{found.method} {found.path} does not announce {body['code']}"


@cache
def _codes(method: str, path: str) -> set[str]:
    """The codes that an operation announces, for which msgspec reads its types: more work than most answers."""
    (found,) = (each for _, each in _operations() if (each.method, each.path) == (method, path))
    return {refusal.code for refusal in refusals_of(found)}
