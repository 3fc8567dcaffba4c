"""Answers as records: the shapes are those of the service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from muniment.client.failures import Forged
from muniment.errors import Refusal
from muniment.forms import decode_record, forms_of
from muniment.json_text import parse_json

if TYPE_CHECKING:
    from muniment.client.failures import Reply

T = TypeVar("T")


def decode(reply: Reply, kind: type[T]) -> T:
    """The content of an answer as a `kind`: a record, or a list of records. Raises `Forged` for any other content."""
    try:
        return decode_record(parse_json(reply.content), kind)
    except Refusal as error:
        raise Forged(f"the answer is not what the interface says: {error}") from error


def decode_forms(reply: Reply, kind: Any) -> list[Any]:
    """A list of records of which each has one form of `kind`, such as `AnyIntent`. Raises `Forged`."""
    try:
        found = parse_json(reply.content)
        if not isinstance(found, list):
            raise Forged("the answer is no list")
        return [decode_record(each, kind) for each in cast("list[object]", found)]
    except Refusal as error:
        raise Forged(f"the answer is not what the interface says: {error}") from error


def decode_form(reply: Reply, kind: Any) -> Any:
    """A record of one form of `kind`. Raises `Forged`."""
    assert forms_of(kind)  # noqa: S101 - another kind is a mistake of the caller
    try:
        return decode_record(parse_json(reply.content), kind)
    except Refusal as error:
        raise Forged(f"the answer is not what the interface says: {error}") from error
