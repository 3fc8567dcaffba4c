"""Listings, and pages that come for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from muniment.client.drivers import Blocking
    from muniment.client.flows.following import Follower
    from muniment.client.flows.session import Session
    from muniment.client.pages import Page
    from muniment.client.steps import Flow

T = TypeVar("T")


class Pages(Generic[T]):
    """The records of a listing, the oldest first; `pages` has them page by page, each with its cursor."""

    def __init__(self, driver: Blocking, read: Callable[[str | None], Flow[Page[T]]]) -> None:
        self._driver = driver
        self._read = read

    def __iter__(self) -> Iterator[T]:
        for page in self.pages():
            yield from page

    def pages(self, after: str | None = None) -> Iterator[Page[T]]:
        """The pages behind the cursor `after`, up to the present end."""
        while True:
            page = self._driver.run(self._read(after))
            if page:
                yield page
            if page.cursor is None or page.cursor == after:
                return
            after = page.cursor


class Part:
    """A part of a registry's operations."""

    def __init__(self, driver: Blocking, session: Session) -> None:
        self._driver = driver
        self._session = session


def followed(driver: Blocking, follower: Follower[T]) -> Iterator[Page[T]]:
    """The pages of `follower`, for ever."""
    while True:
        yield driver.run(follower.next_page())
