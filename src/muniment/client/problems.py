"""Answers that are refusals, as the exceptions that the service raised."""

from __future__ import annotations

import re
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

from muniment import errors
from muniment.client.failures import Forged
from muniment.errors import Fault, InvalidJson, Refusal
from muniment.json_text import parse_json

if TYPE_CHECKING:
    from muniment.client.failures import Reply

# The family of a refusal whose code this release does not know.
FAMILIES: Final[dict[int, type[Refusal]]] = {
    400: errors.Invalid, 401: errors.Unauthenticated, 403: errors.Forbidden, 404: errors.Absent,
    408: errors.RequestTimeout, 409: errors.Conflicting, 410: errors.Absent, 413: errors.TooLarge, 429: errors.Limited,
    500: errors.Broken, 502: errors.Unavailable, 503: errors.Unavailable, 504: errors.Unavailable,
}  # fmt: skip
_MEMBERS: Final = frozenset({"type", "title", "status", "detail", "instance", "code", "errors", "content"})
_FIRST_ERROR: Final = 400
# Of a page that is no problem document, such as one of a proxy.
_SHOWN: Final = 200
_CODE: Final = re.compile("[a-z][a-z-]{0,63}")


def check_answered(reply: Reply, done: int = HTTPStatus.OK) -> Reply:
    """`reply`, if it has the status `done`. Raises the refusal otherwise, with the reply as `answer`.

    Raises `Forged` for every other status below 400: a redirect, or the page of a portal, is no answer of a registry.
    """
    if reply.status >= _FIRST_ERROR:
        raise refusal_of(reply)
    if reply.status != done:
        raise Forged(f"an answer of status {reply.status}, which this operation does not have")
    return reply


def refusal_of(reply: Reply) -> Refusal:
    """The refusal of an answer from 400 on: of its `code`, or else of the family of its status.

    The `code` of a later release is kept; an answer that is no problem document, such as a page of a proxy, has none.
    """
    problem = _problem(reply.content)
    code = problem.get("code")
    kind = refusals_by_code().get(code) if isinstance(code, str) else None
    of_others = errors.Broken if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR else errors.Invalid
    kind = kind or FAMILIES.get(reply.status) or of_others
    faults = [_fault(cast("dict[str, Any]", each)) for each in _list(problem.get("errors")) if isinstance(each, dict)]
    facts = {name: value for name, value in problem.items() if name not in _MEMBERS}
    detail = problem.get("detail")
    refusal = kind(detail if isinstance(detail, str) else f"status {reply.status}", faults=faults, facts=facts)
    refusal.code = code if isinstance(code, str) and _CODE.fullmatch(code) else ""
    refusal.answer = reply
    return refusal


@cache
def refusals_by_code() -> dict[str, type[Refusal]]:
    """All refusals that have a code."""
    found: dict[str, type[Refusal]] = {}
    kinds = [Refusal]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if vars(kind).get("code"):
            found[kind.code] = kind
    return found


def _problem(content: bytes) -> dict[str, Any]:
    try:
        problem = parse_json(content)
    except InvalidJson:
        problem = None
    if isinstance(problem, dict):
        return cast("dict[str, Any]", problem)
    text = " ".join(content[:_SHOWN].decode("utf-8", "replace").split())
    return {"detail": f"no problem document: {text}"} if text else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _fault(shown: dict[str, Any]) -> Fault:
    def text(name: str) -> str | None:
        value = shown.get(name)
        return value if isinstance(value, str) else None

    return Fault(text("detail") or "", text("pointer"), text("parameter"))
