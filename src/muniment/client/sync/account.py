"""The signer's account at a registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muniment.client.flows import login
from muniment.client.sync.pages import Part

if TYPE_CHECKING:
    from muniment.client.flows.login import Balance
    from muniment.users.types import Profile


class Account(Part):
    """The signer's account."""

    def log_in(self, *, lifetime_s: int | None = None) -> str:
        """A token, which the client keeps and sends; it and later ones are good for `lifetime_s` seconds.

        None: as long as the service says, usually a day. A service of an earlier release does not know `lifetime_s`.
        """
        return self._driver.run(login.log_in(self._session, lifetime_s))

    def api_key(self) -> str:
        """The API key of the signer."""
        return self._driver.run(login.api_key(self._session))

    def rotate_api_key(self, *, grace_s: int | None = None) -> str:
        """A new API key; the old one works for `grace_s` seconds more, by default a day."""
        return self._driver.run(login.rotate_api_key(self._session, grace_s))

    def balances(self) -> list[Balance]:
        """The signer's tokens, as the service says."""
        return self._driver.run(login.balances(self._session))

    def profile(self) -> Profile:
        """The signer's profile."""
        return self._driver.run(login.profile(self._session))
