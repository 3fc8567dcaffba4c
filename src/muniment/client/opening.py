"""What both facades make of their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx2

from muniment.client.flows.session import CREDENTIAL, Session, SettlementDomain
from muniment.evm.address import Address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muniment.client.retrying import Retry
    from muniment.client.signers import Signer

# The longest wait that the change feed offers.
_WAIT_S_MAX: Final = 30
_ANSWER_S: Final = 5


def session_of(  # noqa: PLR0913 - settings, by name
    url: str,
    *,
    signer: Signer | None,
    address: str | None,
    api_key: str | None,
    operator_key: str | None,
    token: str | None,
    protocol: str,
    chains: Mapping[int, str],
    verify: bool,
    timeout_s: float,
    retry: Retry,
) -> Session:
    """The state of a client of the registry at `url`. `chains` maps ids of chains to settlement contracts.

    Raises `InvalidAddress`, and `ValueError` for a credential that no header can hold.
    """
    for name, credential in ("api_key", api_key), ("operator_key", operator_key), ("token", token):
        if credential and CREDENTIAL.fullmatch(credential) is None:
            # The text does not show the credential.
            raise ValueError(
                f"the {name} has a line break, a space at an end, or another character that no header holds"
            )
    return Session(
        protocol=protocol,
        verifies=verify,
        can_sign=signer is not None,
        settlers=tuple(SettlementDomain(chain, Address.parse(settler)) for chain, settler in chains.items()),
        url=url,
        retry=retry,
        address=None if (named := signer.address if signer else address) is None else Address.parse(named),
        api_key=api_key,
        operator_key=operator_key,
        token=token,
        # An answer of the feed takes a moment longer than its wait.
        wait_s=max(0, min(_WAIT_S_MAX, int(timeout_s) - _ANSWER_S)),
    )


def checked_url(url: str) -> str:
    """`url` without a slash at its end. Raises `ValueError` for one that is not of a service."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("the URL of a service has no user and password: it is shown and stored")
    try:
        httpx2.URL(url)
        is_whole = parts.scheme in {"http", "https"} and parts.hostname
    except httpx2.InvalidURL:
        is_whole = False
    if not is_whole or parts.query or parts.fragment:
        raise ValueError("the URL of a service has the form http://host or https://host")
    return url.rstrip("/")
