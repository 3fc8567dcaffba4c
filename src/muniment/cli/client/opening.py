"""The options of every command that uses a service, and the client that results from them."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from muniment.cli.client.failing import NeedsLoginError, failures

if TYPE_CHECKING:
    from muniment.client import Registry
    from muniment.client.profiles import Profile
    from muniment.client.signers import Signer

Command = TypeVar("Command", bound=Callable[..., Any])
DEFAULT_URL: Final = "http://127.0.0.1:8787"
DEFAULT_PROFILE: Final = "default"
# The variables of the environment that these commands read; none is a setting of a service but the protocol name.
VARIABLES: Final = (
    "MUNIMENT_URL", "MUNIMENT_PROFILE", "MUNIMENT_PRIVATE_KEY", "MUNIMENT_PASSWORD", "MUNIMENT_API_KEY",
    "MUNIMENT_OPERATOR_KEY", "MUNIMENT_PROTOCOL_NAME",
)  # fmt: skip
# An unreachable service is reported after at most four seconds.
_TRIES: Final = 4
_NO_SIGNER: Final = (
    "a wallet must sign this: set MUNIMENT_PRIVATE_KEY_FILE, or name a wallet with --signer (keystore:NAME, rpc:URL, "
    "command:LINE, browser), or log in with `muniment login`"
)

_NO_OPERATOR_KEY: Final = (
    "operators write intents: set MUNIMENT_OPERATOR_KEY to the key that `muniment operators add` printed"
)


def service_options(command: Command) -> Command:
    """Add the options of every command that uses a service."""
    for option in (
        click.option("--no-verify", is_flag=True, help="Trust the service: check no signature, CID or hash."),
        click.option("--protocol", help="Protocol name of the registry, which signatures depend on; default: Mimic."),
        click.option("--signer", help="Wallet: key, keystore:NAME, rpc:URL, command:LINE or browser."),
        click.option("--profile", "-p", help="Name of a profile, as `muniment login` stores them."),
        click.option("--url", "-u", help=f"URL of the service; default: that of the profile, or {DEFAULT_URL}."),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Place:
    """A service, and the wallet with which it is used."""

    name: str
    profile: Profile
    # The wallet that signs, as `--signer` names it; None: no option, variable or profile names one.
    signer: str | None
    verifies: bool


def place_of(flags: Mapping[str, Any], *, may_be_new: bool = False) -> Place:
    """The service that the options name; else the environment, else a profile, else this machine.

    Raises `ValueError` for an unknown profile, unless it `may_be_new`.
    """
    from muniment.client.profiles import Profile, Profiles

    named: str | None = flags["profile"] or os.environ.get("MUNIMENT_PROFILE") or None
    known = Profiles.of_user()
    profile = known.get(named) if named and not may_be_new else known.all().get(named or DEFAULT_PROFILE)
    profile = profile or Profile(DEFAULT_URL)
    # A profile that was named on the command line comes before a variable.
    is_chosen = flags["profile"] and not may_be_new
    url = flags["url"] or (None if is_chosen else os.environ.get("MUNIMENT_URL")) or profile.url
    protocol = flags["protocol"] or os.environ.get("MUNIMENT_PROTOCOL_NAME") or profile.protocol
    signer, address = _wallet(flags["signer"], profile)
    return Place(
        named or DEFAULT_PROFILE, replace(profile, url=url, protocol=protocol, signer=signer, address=address), signer,
        verifies=not flags["no_verify"],
    )  # fmt: skip


def _wallet(given: str | None, profile: Profile) -> tuple[str | None, str | None]:
    """The wallet that signs, and its address where that is known without asking it."""
    from muniment.client.signers import KeySigner

    has_key = bool(os.environ.get("MUNIMENT_PRIVATE_KEY") or os.environ.get("MUNIMENT_PRIVATE_KEY_FILE"))
    if given == "key" or (given is None and has_key):
        return "key", KeySigner.from_environment().address
    if given is not None:
        return given, profile.address if given == profile.signer else None
    return None if profile.signer == "key" else profile.signer, profile.address


@contextmanager
def opened(flags: Mapping[str, Any], *, needs: str = "", **more: Any) -> Generator[Registry]:
    """The client of a command; its errors end the command as in `failures`.

    `needs` is `signature`, `token`, `key` (of the API) or `operator` for a command that requires it. A wallet is
    asked only without a stored credential.
    """
    with failures():
        if needs == "operator":
            needs = ""
            if not os.environ.get("MUNIMENT_OPERATOR_KEY"):
                raise NeedsLoginError(_NO_OPERATOR_KEY)
        place = place_of(flags)
        with connected(place, needs=needs, **more) as registry:
            yield registry


@contextmanager
def connected(place: Place, *, needs: str = "", signer: Signer | None = None, **more: Any) -> Generator[Registry]:
    """The client of `place`; `more` are further parameters of `Registry`."""
    from muniment.client import Registry, Retry
    from muniment.client.profiles import Profiles

    stored = Profiles.of_user().credentials(place.profile)
    api_key = more.pop("api_key", None)
    # A command that prints the key asks the service: a stored key may be rotated, or of another service.
    if needs == "key":
        api_key = api_key or os.environ.get("MUNIMENT_API_KEY") or stored.get("apiKey")
    token = stored.get("token")
    has_credential = {"": True, "signature": False, "token": token is not None, "key": api_key is not None}[needs]
    if signer is None and (not has_credential or (needs and place.signer == "key")):
        signer = signer_of_place(place)
    with Registry(
        place.profile.url, signer=signer, api_key=api_key, operator_key=os.environ.get("MUNIMENT_OPERATOR_KEY") or None,
        token=token, address=place.profile.address, protocol=place.profile.protocol, verify=place.verifies,
        retry=Retry(tries=_TRIES), **more,
    ) as registry:  # fmt: skip
        yield registry


def signer_of_place(place: Place) -> Signer:
    """The wallet of `place`. Raises `NeedsLoginError` when none is named."""
    from muniment.client import signer_of

    if place.signer is None:
        raise NeedsLoginError(_NO_SIGNER)
    return signer_of(place.signer, address=place.profile.address)
