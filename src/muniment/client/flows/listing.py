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


def proved_page(
    session: Session,
    target: str,
    limit: int,
    read: Callable[[Reply], list[T]],
    check: Callable[[T], Flow[None]],
    on_forged: OnForged,
) -> Flow[Page[T]]:
    """The page at `target`, which has at most `limit` records; `read` decodes them.

    `check` raises `Forged` for a record that is false or was not asked for. That is raised, or given to `on_forged`
    and the record is left out.
    """
    reply = yield from session.answered(Send("GET", target, headers=JSON))
    listed = read(reply)
    check_length(listed, limit)
    found: list[T] = []
    for record in listed:
        try:
            yield from check(record)
        except Forged as forged:
            if on_forged is None:
                raise
            on_forged(forged)
        else:
            found.append(record)
    return Page(found, cursor_of(reply))
