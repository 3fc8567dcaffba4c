"""The transparency log of a registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.client.aio.pages import Part
from muniment.client.flows.log import following, parts, proving
from muniment.tlog.tiles import WIDTH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from muniment.client.flows.log.following import Progress, Rules, Seen
    from muniment.client.flows.log.proving import Logged, Provable


class AsyncLog(Part):
    """The transparency log of a registry."""

    async def prove(self, record: Provable, *, creator: str | None = None, vkey: str | None = None) -> Logged:
        """Prove that a trigger, a function or a deactivation is in the log, as you hold it.

        `vkey` is the key of the log that you trust; without, the one that this client sees first. `creator` is the
        wallet that deployed a function; without, the one that the record names. Raises `NotLoggedYet` in the first
        seconds, and `Forged` where the log has another entry or none.
        """
        return await self._driver.run(proving.prove(self._session, record, creator=creator, vkey=vkey))

    async def entry(self, record: Provable, *, creator: str | None = None) -> bytes:
        """The entry that the log has for a record, built from the record."""
        return await self._driver.run(proving.entry_of(self._session, record, creator))

    async def follow(self, seen: Seen | None, rules: Rules) -> Progress:
        """Verify all that the log has shown since `seen`; keep the result's `seen` for the next time.

        Raises `Forked` with the two notes that prove it, `NotAnnounced` for a log that the one before does not name,
        `Late` for a log that is old or shows less than was seen, and `Forged`.
        """
        return await self._driver.run(following.follow(self._session, seen, rules))

    async def bundles(self) -> AsyncIterator[Sequence[bytes]]:
        """The entries of all epochs, the oldest first, a bundle at a time, as they are served: nothing is proved."""
        for epoch in reversed(await self._driver.run(parts.epochs(self._session))):
            for n in range(-(-epoch.size // WIDTH)):
                width = min(WIDTH, epoch.size - n * WIDTH)
                yield await self._driver.run(parts.bundle(self._session, epoch.prefix, n, width))
