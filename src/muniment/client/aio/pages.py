"""Listings, and pages that come for ever, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from muniment.client.drivers import Awaiting
    from muniment.client.flows.following import Follower
    from muniment.client.flows.session import Session
    from muniment.client.pages import Page
    from muniment.client.steps import Flow

T = TypeVar("T")


class AsyncPages(Generic[T]):
    """The records of a listing, the oldest first; `pages` has them page by page, each with its cursor."""

    def __init__(self, driver: Awaiting, read: Callable[[str | None], Flow[Page[T]]]) -> None:
        self._driver = driver
        self._read = read

    async def __aiter__(self) -> AsyncIterator[T]:
        async for page in self.pages():
            for record in page:
                yield record

    async def pages(self, after: str | None = None) -> AsyncIterator[Page[T]]:
        """The pages behind the cursor `after`, up to the present end."""
        while True:
            page = await self._driver.run(self._read(after))
            if page:
                yield page
            if page.cursor is None or page.cursor == after:
                return
            after = page.cursor


class Part:
    """A part of a registry's operations."""

    def __init__(self, driver: Awaiting, session: Session) -> None:
        self._driver = driver
        self._session = session


async def followed(driver: Awaiting, follower: Follower[T]) -> AsyncIterator[Page[T]]:
    """The pages of `follower`, for ever."""
    while True:
        yield await driver.run(follower.next_page())
