"""A page of a listing, in which each record is proved."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from muniment.client.answers import Page, check_length, cursor_of
from muniment.client.failures import Forged
from muniment.client.flows.session import JSON
from muniment.client.steps import Flow, Send

if TYPE_CHECKING:
    from muniment.client.failures import Reply
    from muniment.client.flows.session import Session

T = TypeVar("T")
OnForged = Callable[[Forged], None] | None
# The part of a proof that is made after the other parts of all records; None where there is none.
LastPart = Callable[[], None] | None


def proved_page(
    session: Session,
    target: str,
    limit: int,
    read: Callable[[Reply], list[T]],
    check: Callable[[T], Flow[LastPart]],
    on_forged: OnForged,
) -> Flow[Page[T]]:
    """The page at `target`, which has at most `limit` records; `read` decodes them.

    `check`, and what it returns, raise `Forged` for a record that is false or was not asked for. The error is raised;
    or it is given to `on_forged`, and the record is left out. The errors of `check` come before those of the last
    parts.
    """
    reply = yield from session.answered(Send("GET", target, headers=JSON))
    listed = read(reply)
    check_length(listed, limit)
    checked: list[tuple[T, LastPart]] = []
    for record in listed:
        try:
            checked.append((record, (yield from check(record))))
        except Forged as forged:
            _refuse(forged, on_forged)
    found: list[T] = []
    for record, last_part in checked:
        try:
            if last_part is not None:
                last_part()
        except Forged as forged:
            _refuse(forged, on_forged)
        else:
            found.append(record)
    return Page(found, cursor_of(reply))


def _refuse(forged: Forged, on_forged: OnForged) -> None:
    if on_forged is None:
        raise forged
    on_forged(forged)
