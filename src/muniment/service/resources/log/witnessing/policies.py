"""The policy file of a registry: which witnesses are asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from muniment.protocol.log.policy import POLICY_BYTES_MAX, Policy, parse_policy
from muniment.service.running.settings import is_base_url

if TYPE_CHECKING:
    from muniment.protocol.log.keys import VerifierKey
    from muniment.service.running.settings import Settings


class Witness(NamedTuple):
    """A witness as the policy names it: `name` is its name there, `url` has no slash at its end."""

    name: str
    key: VerifierKey
    url: str


def read_policy(settings: Settings) -> Policy | None:
    """The policy in the file that the settings name, or None without such a setting.

    Raises `ValueError` for a file that cannot be read or used.
    """
    if not settings.tlog_policy:
        return None
    path = Path(settings.tlog_policy)
    try:
        with path.open("rb") as file:
            policy = parse_policy(file.read(POLICY_BYTES_MAX + 1))
    except OSError as error:
        raise ValueError(f"tlog_policy cannot be read: {path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"tlog_policy {path}: {error}") from None
    for name, party in policy.witnesses.items():
        if party.url is not None and not is_base_url(party.url):
            raise ValueError(f"tlog_policy {path}: the URL of the witness {_printed(name)} is not an http or https URL")
    if not policy.is_met([witness.key for witness in witnesses_of(policy)]):
        raise ValueError(f"tlog_policy {path}: the witnesses with a URL are too few for the quorum")
    return policy


def witnesses_of(policy: Policy) -> list[Witness]:
    """The witnesses that have a URL, in the order of the policy."""
    return [
        Witness(_printed(name), party.key, party.url.rstrip("/"))
        for name, party in policy.witnesses.items()
        if party.url is not None
    ]


def _printed(name: str) -> str:
    """A name of a policy for logs and metrics: bytes that are not UTF-8 are replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
