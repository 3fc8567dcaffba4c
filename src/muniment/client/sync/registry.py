"""The client for programs that block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

import httpx2

from muniment.client.drivers import Blocking, Progress
from muniment.client.opening import checked_url, session_of
from muniment.client.profiles import Profiles
from muniment.client.retrying import Retry
from muniment.client.sync.account import Account
from muniment.client.sync.events import Events
from muniment.client.sync.functions import Functions
from muniment.client.sync.intents import Intents
from muniment.client.sync.log import Log
from muniment.client.sync.triggers import Triggers

if TYPE_CHECKING:
    from types import TracebackType

    from muniment.client.signers import Signer


class Registry:
    """A registry at `url`, with calls that block. Use it in `with`, which closes its connections.

    `signer` signs; `api_key` deploys, and is read with the signer if it is missing; `operator_key` writes intents;
    `token` is of an earlier login of `address`. `protocol` is the registry's protocol name, `chains` maps ids of chains
    to settlement contracts. With `verify`, every fact that an answer can prove is proved, and `Forged` is raised where
    it is false. `progress` hears of long uploads and downloads: a name, the bytes so far, and all of them.
    """

    def __init__(  # noqa: PLR0913 - settings, by name
        self,
        url: str,
        *,
        signer: Signer | None = None,
        api_key: str | None = None,
        operator_key: str | None = None,
        token: str | None = None,
        address: str | None = None,
        protocol: str = "Mimic",
        chains: Mapping[int, str] | None = None,
        verify: bool = True,
        timeout_s: float = 30,
        retry: Retry | None = None,
        progress: Progress | None = None,
        http: httpx2.Client | None = None,
    ) -> None:
        """Connect to nothing yet. Raises `ValueError` for a URL of another form."""
        self._owned = httpx2.Client(timeout=timeout_s) if http is None else None
        checked = checked_url(url)
        session = session_of(
            checked, signer=signer, api_key=api_key, operator_key=operator_key, token=token, address=address,
            protocol=protocol, chains=chains or {}, verify=verify, timeout_s=timeout_s, retry=retry or Retry(),
        )  # fmt: skip
        driver = Blocking(checked, http or self._owned or httpx2.Client(), signer, progress)
        self.functions = Functions(driver, session)
        self.triggers = Triggers(driver, session)
        self.intents = Intents(driver, session)
        self.account = Account(driver, session)
        self.events = Events(driver, session)
        self.log = Log(driver, session)

    @classmethod
    def from_profile(cls, name: str, *, signer: Signer | None = None, operator_key: str | None = None) -> Self:
        """The registry of a profile, with the API key that `muniment login` has stored.

        Raises `ValueError` for an unknown name, and for a stored credential that other users of the machine can read.
        """
        profiles = Profiles.of_user()
        profile = profiles.get(name)
        return cls(
            profile.url,
            signer=signer,
            operator_key=operator_key,
            protocol=profile.protocol,
            api_key=profiles.api_key(profile),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, unless the HTTP client is the caller's."""
        if self._owned is not None:
            self._owned.close()
