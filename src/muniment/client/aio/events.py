"""The change feed of a registry, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from muniment.client.aio.pages import Part, followed
from muniment.client.flows import following
from muniment.client.flows.session import without_none

if TYPE_CHECKING:
    from muniment.client.flows.following import Event
    from muniment.client.pages import Page


class AsyncEvents(Part):
    """The change feed of a registry."""

    async def begin(self) -> str:
        """The cursor of the present: list the records that you follow after this call, then follow."""
        return await self._driver.run(following.begin_events(self._session))

    def follow(
        self, *, after: str | None = None, types: Sequence[str] = (), owner: str | None = None
    ) -> AsyncIterator[Page[Event]]:
        """Events, page by page, for ever: from now on, or behind the cursor `after`.

        Raises `CursorTooOld` when events behind it are gone: begin again, and list the records that you follow.
        """
        filters = without_none({"types": [*types] or None, "owner": owner})
        return followed(self._driver, following.event_follower(self._session, after, filters))
