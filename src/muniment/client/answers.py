"""Answers as records, pages and refusals: the shapes and exceptions are those of the service."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, get_args, get_origin

from msgspec import Struct, structs

from muniment.client.failures import Forged, NotARegistry
from muniment.protocol import errors
from muniment.protocol.errors import Fault, InvalidJson, Refusal
from muniment.protocol.forms import decode_record, forms_of
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
_PAGES: Final = frozenset({"text/html", "application/xhtml+xml"})


def decode(reply: Reply, kind: type[T]) -> T:
    """The content of an answer as a `kind`: a record, or a list of records.

    Raises `NotARegistry` for other content, and `Forged` for a record of `kind` with a member of another form.
    """
    return decode_form(reply, kind)


def decode_form(reply: Reply, kind: Any) -> Any:
    """A record of one form of `kind`, such as `AnyIntent`. Raises as `decode`."""
    return _decoded(reply, kind, lambda value: decode_record(value, kind))


def decode_forms(reply: Reply, kind: Any) -> list[Any]:
    """A list of records, each in one form of `kind`. Raises as `decode`."""
    return _decoded(
        reply, list[kind], lambda value: [decode_record(each, kind) for each in decode_record(value, list[Any])]
    )


def _decoded(reply: Reply, kind: Any, read: Callable[[Any], Any]) -> Any:
    """The records that `read` makes from the JSON of an answer, which must have the outline of `kind`."""
    try:
        value = parse_json(reply.content)
    except InvalidJson as error:
        raise NotARegistry(f"answers without JSON: {error}") from error
    try:
        return read(value)
    except Refusal as error:
        if not _has_outline(value, kind):
            raise NotARegistry("answers with JSON of another form than a registry") from error
        raise Forged(f"the answer does not match the interface: {error}") from error


def _has_outline(value: object, kind: Any) -> bool:
    """Whether `value` is a list where `kind` is one, and has every member that a record of `kind` must have."""
    if get_origin(kind) is list:
        (inner,) = get_args(kind)
        return isinstance(value, list) and all(_has_outline(each, inner) for each in cast("list[object]", value))
    forms = forms_of(kind) or (kind,)
    if not issubclass(forms[0], Struct):
        return True
    return isinstance(value, dict) and any(value.keys() >= _required(form) for form in forms)


@cache
def _required(kind: Any) -> frozenset[str]:
    return frozenset(each.encode_name for each in structs.fields(kind) if each.required)


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
    """The cursor of the `next` link; None: the answer has no such link.

    Raises `NotARegistry` for a link without cursor.
    """
    link = reply.headers.get("link")
    if link is None:
        return None
    next_ = _LINK.search(link)
    if next_ is None and _PREV.search(link):
        return None
    found = None if next_ is None else _CURSOR.search(next_[1])
    if found is None:
        raise NotARegistry("answers with a Link header that has no cursor")
    return found[1]


def check_answered(reply: Reply, done: int = HTTPStatus.OK) -> Reply:
    """`reply`, if it has the status `done`. Raises the refusal otherwise, with the reply as `answer`.

    Raises `NotARegistry` for any other status below 400, such as a redirect, and for a page of HTML.
    """
    if reply.status >= _FIRST_ERROR:
        raise refusal_of(reply)
    if reply.status != done and (place := reply.headers.get("location", "")[:_SHOWN]):
        raise NotARegistry(f"answers with status {reply.status} and sends on to {place}")
    if reply.headers.get("content-type", "").split(";")[0].strip().lower() in _PAGES:
        raise NotARegistry("answers with a page of HTML")
    if reply.status != done:
        raise NotARegistry(f"answers with status {reply.status}")
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
