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

    async def log_in(self) -> str:
        """A token, which the client keeps and sends."""
        return await self._driver.run(login.log_in(self._session))

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
