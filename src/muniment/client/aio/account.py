"""The signer's account at a registry, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.client.aio.pages import Part
from muniment.client.flows import login

if TYPE_CHECKING:
    from muniment.client.flows.login import Balance
    from muniment.users.types import Profile


class AsyncAccount(Part):
    """The signer's account."""

    async def log_in(self, *, lifetime_s: int | None = None) -> str:
        """A token, which the client keeps and sends; it and later ones are good for `lifetime_s` seconds.

        None: as long as the service says, usually a day. A service of an earlier release does not know `lifetime_s`.
        """
        return await self._driver.run(login.log_in(self._session, lifetime_s))

    async def api_key(self) -> str:
        """The API key of the signer."""
        return await self._driver.run(login.api_key(self._session))

    async def rotate_api_key(self, *, grace_s: int | None = None) -> str:
        """A new API key; the old one works for `grace_s` seconds more, by default a day."""
        return await self._driver.run(login.rotate_api_key(self._session, grace_s))

    async def balances(self) -> list[Balance]:
        """The signer's tokens, as the service says."""
        return await self._driver.run(login.balances(self._session))

    async def profile(self) -> Profile:
        """The signer's profile."""
        return await self._driver.run(login.profile(self._session))
