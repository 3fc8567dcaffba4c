"""Answers as records, pages and refusals: the shapes and exceptions are those of the service."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from muniment.client.failures import Forged
from muniment.protocol import errors
from muniment.protocol.errors import Fault, InvalidJson, Refusal
from muniment.protocol.forms import decode_record
from muniment.protocol.json_text import parse_json

if TYPE_CHECKING:
    from muniment.client.failures import Reply

T = TypeVar("T")
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
# Only the cursor of a link (RFC 8288) is used, never its host or path.
_LINK: Final = re.compile(r"<([^<>]*)>; *rel=\"?next")
_PREV: Final = re.compile(r"<[^<>]*>; *rel=\"?prev")
_CURSOR: Final = re.compile(r"[?&]cursor=([A-Za-z0-9_-]{1,64})(?:&|$)")


def decode(reply: Reply, kind: type[T]) -> T:
    """The content of an answer as a `kind`: a record, or a list of records. Raises `Forged` for any other content."""
    return decode_form(reply, kind)


def decode_form(reply: Reply, kind: Any) -> Any:
    """A record of one form of `kind`, such as `AnyIntent`. Raises `Forged`."""
    try:
        return decode_record(parse_json(reply.content), kind)
    except Refusal as error:
        raise Forged(f"the answer does not match the interface: {error}") from error


def decode_forms(reply: Reply, kind: Any) -> list[Any]:
    """A list of records, each in one form of `kind`. Raises `Forged`."""
    try:
        found = parse_json(reply.content)
        if not isinstance(found, list):
            raise Forged("the answer is not a list")
        return [decode_record(each, kind) for each in cast("list[object]", found)]
    except Refusal as error:
        raise Forged(f"the answer does not match the interface: {error}") from error


class Page(list[T]):
    """Records in order; `cursor` is the place after them; None at the end of a listing."""

    def __init__(self, records: Iterable[T], cursor: str | None) -> None:
        """Hold `records`."""
        super().__init__(records)
        self.cursor = cursor

    def __repr__(self) -> str:
        return f"Page({len(self)} records, cursor={self.cursor!r})"


def check_length(records: Sequence[object], limit: int) -> None:
    """Raise `Forged` for a page of more records than were asked for: each of them costs a proof."""
    if len(records) > limit:
        raise Forged(f"a page of at most {limit} records has {len(records)}")


def cursor_of(reply: Reply) -> str | None:
    """The cursor of the `next` link; None: the answer has no such link. Raises `Forged` for a link without cursor."""
    link = reply.headers.get("link")
    if link is None:
        return None
    next_ = _LINK.search(link)
    if next_ is None and _PREV.search(link):
        return None
    found = None if next_ is None else _CURSOR.search(next_[1])
    if found is None:
        raise Forged("the Link header has no cursor")
    return found[1]


def check_answered(reply: Reply, done: int = HTTPStatus.OK) -> Reply:
    """`reply`, if it has the status `done`. Raises the refusal otherwise, with the reply as `answer`.

    Raises `Forged` for any other status below 400: a redirect or the page of a portal is not by a registry.
    """
    if reply.status >= _FIRST_ERROR:
        raise refusal_of(reply)
    if reply.status != done:
        raise Forged(f"unexpected status {reply.status}: this operation does not answer with it")
    return reply


def refusal_of(reply: Reply) -> Refusal:
    """The refusal of an answer with a status from 400 on, by its `code`, or by the family of its status.

    An unknown `code` is kept. An answer that is not a problem document, such as a page of a proxy, has no code.
    """
    problem = _problem(reply.content)
    code = problem.get("code")
    kind = errors.BY_CODE.get(code) if isinstance(code, str) else None
    of_others = errors.Broken if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR else errors.Invalid
    kind = kind or FAMILIES.get(reply.status) or of_others
    faults = [_fault(cast("dict[str, Any]", each)) for each in _list(problem.get("errors")) if isinstance(each, dict)]
    facts = {name: value for name, value in problem.items() if name not in _MEMBERS}
    detail = problem.get("detail")
    refusal = kind(detail if isinstance(detail, str) else f"status {reply.status}", faults=faults, facts=facts)
    refusal.code = code if isinstance(code, str) and _CODE.fullmatch(code) else ""
    refusal.answer = reply
    return refusal


def _problem(content: bytes) -> dict[str, Any]:
    try:
        problem = parse_json(content)
    except InvalidJson:
        problem = None
    if isinstance(problem, dict):
        return cast("dict[str, Any]", problem)
    text = " ".join(content[:_SHOWN].decode("utf-8", "replace").split())
    return {"detail": f"not a problem document: {text}"} if text else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _fault(shown: dict[str, Any]) -> Fault:
    def text(name: str) -> str | None:
        value = shown.get(name)
        return value if isinstance(value, str) else None

    return Fault(text("detail") or "", text("pointer"), text("parameter"))
