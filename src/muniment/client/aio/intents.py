"""Intents of a registry, for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from muniment.client.aio.pages import AsyncPages, Part, followed
from muniment.client.flows import intents
from muniment.client.flows.session import without_none

if TYPE_CHECKING:
    from muniment.client.failures import Forged
    from muniment.client.pages import Page
    from muniment.intents.types import AnyIntent, AnyNewIntent, AnyNewProposal, AnyProposal, Log, LogLevel, Move


class AsyncIntents(Part):
    """Intents of a registry; an operator writes them."""

    async def get(self, hash: str) -> AnyIntent:
        """An intent. Raises `IntentNotFound`."""
        return await self._driver.run(intents.get(self._session, hash))

    async def moves(self, hash: str) -> Sequence[Move]:
        """When an intent got each of its statuses, as the service says. Raises `IntentNotFound`."""
        return await self._driver.run(intents.moves(self._session, hash))

    def list(
        self,
        *,
        user: str | None = None,
        settler: str | None = None,
        config_sig: str | None = None,
        status: str | None = None,
        limit: int = 100,
        on_forged: Callable[[Forged], None] | None = None,
    ) -> AsyncPages[AnyIntent]:
        """Intents, `limit` in a page, with the newest 50 proposals and logs of each.

        A forged one is raised, or given to `on_forged` and left out.
        """
        filters = without_none({"user": user, "settler": settler, "configSig": config_sig, "status": status})
        return AsyncPages(self._driver, lambda cursor: intents.page(self._session, cursor, filters, limit, on_forged))

    def follow(
        self,
        *,
        after: str | None = None,
        user: str | None = None,
        settler: str | None = None,
        config_sig: str | None = None,
        poll_s: float = 1.0,
        on_forged: Callable[[Forged], None] | None = None,
    ) -> AsyncIterator[Page[AnyIntent]]:
        """New intents, page by page, for ever: from the first one on, or behind the cursor `after`.

        The change feed says when there are some; a service without it is asked every `poll_s` seconds. A forged intent
        is raised, or given to `on_forged` and left out.
        """
        filters = without_none({"user": user, "settler": settler, "configSig": config_sig})
        return followed(self._driver, intents.follower(self._session, after, filters, poll_s, on_forged))

    async def put(self, intent: AnyNewIntent) -> AnyIntent:
        """Record an intent."""
        return await self._driver.run(intents.put(self._session, intent))

    async def propose(self, hash: str, offer: AnyNewProposal) -> AnyProposal:
        """Append a proposal to an intent."""
        return await self._driver.run(intents.propose(self._session, hash, offer))

    async def log(self, hash: str, level: LogLevel, data: str, *, id: str | None = None) -> Log:
        """Append a line to the log of an intent."""
        return await self._driver.run(intents.log(self._session, hash, intents.new_line(level, data, id)))

    async def move(
        self,
        hash: str,
        status: str,
        *,
        proposal: str | None = None,
        transaction_hash: str | None = None,
    ) -> AnyIntent:
        """Move an intent, or a proposal of it, to another status. Raises `StatusConflict`."""
        change = intents.new_change(status, proposal, transaction_hash)
        return await self._driver.run(intents.move(self._session, hash, change))
