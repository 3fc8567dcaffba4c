"""The change feed of a registry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from muniment.client.flows import following
from muniment.client.flows.session import without_none
from muniment.client.sync.pages import Part, followed

if TYPE_CHECKING:
    from muniment.client.flows.following import Event
    from muniment.client.pages import Page


class Events(Part):
    """The change feed of a registry."""

    def begin(self) -> str:
        """The cursor of the present: list the records that you follow after this call, then follow."""
        return self._driver.run(following.begin_events(self._session))

    def follow(
        self, *, after: str | None = None, types: Sequence[str] = (), owner: str | None = None
    ) -> Iterator[Page[Event]]:
        """Events, page by page, for ever: from now on, or behind the cursor `after`.

        Raises `CursorTooOld` when events behind it are gone: begin again, and list the records that you follow.
        """
        filters = without_none({"types": [*types] or None, "owner": owner})
        return followed(self._driver, following.event_follower(self._session, after, filters))
