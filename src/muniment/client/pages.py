"""Pages of a listing, and the cursor behind each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar, overload

from muniment.client.failures import Forged

if TYPE_CHECKING:
    from muniment.client.failures import Reply

T = TypeVar("T")
# Only the cursor of a link is used (RFC 8288): a link that leads elsewhere leads nowhere.
_LINK: Final = re.compile(r"<([^<>]*)>; *rel=\"?next")
_PREV: Final = re.compile(r"<[^<>]*>; *rel=\"?prev")
_CURSOR: Final = re.compile(r"[?&]cursor=([A-Za-z0-9_-]{1,64})(?:&|$)")


class Page(Sequence[T], Generic[T]):
    """Records in order; `cursor` is the place behind them, None at the end of a listing that has one."""

    def __init__(self, records: Sequence[T], cursor: str | None) -> None:
        """Hold `records`."""
        self._records = records
        self.cursor = cursor

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

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
