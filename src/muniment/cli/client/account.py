"""`muniment login`, `logout`, `whoami`, `profiles`, `api-key` and `balances`."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muniment.cli.client.service import (
    NeedsLoginError,
    connected,
    failures,
    login_options,
    opened,
    place_of,
    service_options,
    signer_of_place,
)
from muniment.cli.output import Column, print_note, shape_options, show_all, show_one
from muniment.durable import make_directory, whole_file
from muniment.protocol.visible import visible
from muniment.text_files import read_text

if TYPE_CHECKING:
    from muniment.client import Balance


@click.command()
@login_options
@click.option("--mimic-profile", help="Also store the API key under this name for the mimic command.")
@click.option("--lifetime", type=click.IntRange(60), metavar="SECONDS", help="Lifetime of the token; default: a day.")
def login(*, mimic_profile: str | None, lifetime: int | None, **flags: Any) -> None:
    """Log in with a signature, and store the credentials.

    The profile (--profile, or `default`) keeps URL, address and wallet. The token and the API key go to a file that
    only you can read. With a key in MUNIMENT_PRIVATE_KEY no credential is stored: the key is enough.
    """
    from muniment.client.profiles import Profiles

    with failures():
        place, profiles = place_of(flags, may_be_new=True), Profiles.of_user()
        keeps = place.wallet != "key"
        if keeps:
            print_note(f"The token and the API key will be stored in {profiles.credentials_file}.")
        signer = signer_of_place(place)
        profile = replace(place.profile, address=signer.address)
        with connected(replace(place, profile=profile), signer=signer) as registry:
            token, api_key = registry.account.log_in(lifetime_s=lifetime), registry.account.api_key()
        profiles.put(place.name, profile)
        if keeps:
            profiles.keep(profile, token=token, apiKey=api_key)
        if mimic_profile is not None:
            print_note(f"The API key is now in {_store_for_mimic(mimic_profile, api_key)}.")
    print_note(f"{signer.address} is logged in at {profile.url} (profile {place.name})")


@click.command()
@service_options
def logout(**flags: Any) -> None:
    """Remove the credentials of a profile from this machine.

    The API key stays valid: replace it with `muniment api-key rotate`.
    """
    from muniment.client.profiles import Profiles

    with failures():
        place = place_of(flags)
        had_some = Profiles.of_user().forget(place.profile)
    print_note("the credentials are removed" if had_some else "no credentials were stored")


@click.command()
@service_options
@shape_options
def whoami(*, as_json: bool | None, **flags: Any) -> None:
    """Show the wallet, the service, and where the credentials are. It sends no request."""
    from muniment.client.profiles import Profiles

    with failures():
        place, profiles = place_of(flags), Profiles.of_user()
        stored = profiles.credentials(place.profile)
        address = place.profile.address
    if address is None:
        raise NeedsLoginError(f"not logged in at {place.profile.url}\nNext: run `muniment login`")
    where = f"{' and '.join(sorted(stored))} in {profiles.credentials_file}" if stored else "none is stored"
    members = {
        "address": str(address), "service": place.profile.url, "profile": place.name, "wallet": place.wallet or "none",
        "protocol": place.profile.protocol, "credentials": where,
    }  # fmt: skip
    show_one(members, members, as_json=as_json)


@click.command()
@shape_options
@click.option("--remove", metavar="NAME", help="Remove a profile and its credentials.")
def profiles(*, remove: str | None, as_json: bool | None) -> None:
    """List the profiles."""
    from dataclasses import asdict

    from muniment.client.profiles import Profiles

    with failures():
        known = Profiles.of_user()
        if remove is not None:
            known.forget(known.get(remove))
            known.remove(remove)
            print_note(f"profile {remove} is removed")
            return
        rows = [{"name": name, **asdict(profile)} for name, profile in known.all().items()]
    columns = [
        Column("NAME", lambda each: each["name"]), Column("URL", lambda each: each["url"]),
        Column("ADDRESS", lambda each: each["address"] or ""), Column("WALLET", lambda each: each["wallet"] or ""),
        Column("PROTOCOL", lambda each: each["protocol"]),
    ]  # fmt: skip
    show_all(rows, columns, as_json=as_json, empty="no profiles; `muniment login` makes one")


@click.group("api-key", invoke_without_command=True)
@login_options
@click.pass_context
def api_key(context: click.Context, **flags: Any) -> None:
    """Print the API key of the wallet."""
    context.obj = flags
    if context.invoked_subcommand is None:
        with opened(flags, needs="token") as registry:
            click.echo(visible(registry.account.api_key()))


@api_key.command("rotate")
@click.option("--grace", type=click.IntRange(0), metavar="SECONDS", help="Lifetime of the old key; default: a day.")
@login_options
@click.pass_obj
def rotate_api_key(outer: dict[str, Any], *, grace: int | None, **flags: Any) -> None:
    """Replace the API key, and print the new one."""
    from muniment.client.profiles import Profiles

    merged = {name: value or outer.get(name) for name, value in flags.items()}
    with failures():
        place, profiles_ = place_of(merged), Profiles.of_user()
        with connected(place, needs="token") as registry:
            new = registry.account.rotate_api_key(grace_s=grace)
        if "apiKey" in profiles_.credentials(place.profile):
            profiles_.keep(place.profile, apiKey=new)
    click.echo(visible(new))


@click.command()
@login_options
@shape_options
def balances(*, as_json: bool | None, **flags: Any) -> None:
    """Show the wallet's tokens, as the service reports them."""
    with opened(flags, needs="token") as registry:
        found = registry.account.balances()
    columns = [
        Column("CHAIN", lambda each: str(each.chain_id)), Column("TOKEN", lambda each: each.symbol),
        Column("BALANCE", _amount), Column("US DOLLARS", _worth),
    ]  # fmt: skip
    show_all(found, columns, as_json=as_json, empty="no balances: the registry has no chains, or the wallet is empty")


def _amount(balance: Balance) -> str:
    return f"{Decimal(balance.balance).scaleb(-balance.decimals).normalize():f}"


def _worth(balance: Balance) -> str:
    if not balance.price:
        return "unknown"
    return f"{Decimal(balance.balance).scaleb(-balance.decimals) * Decimal(str(balance.price)):.2f}"


_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def _store_for_mimic(profile: str, api_key: str) -> Path:
    """Put an API key under `profile` into ~/.mimic/credentials; other profiles stay. The result is the file.

    Raises `ValueError` for a name that the file cannot hold.
    """
    if _NAME.fullmatch(profile) is None:
        raise ValueError("a profile name of mimic may have only letters, digits, dots, - and _")
    path = Path.home() / ".mimic" / "credentials"
    make_directory(path.parent)
    kept: list[str] = []
    is_ours = False
    for line in read_text(path).splitlines() if path.exists() else ():
        if line.strip().startswith("["):
            is_ours = line.strip() == f"[{profile}]"
        if not is_ours:
            kept.append(line)
    while kept and not kept[-1].strip():
        kept.pop()
    kept += ["", f"[{profile}]", f"api_key={api_key}", ""] if kept else [f"[{profile}]", f"api_key={api_key}", ""]
    with whole_file(path, is_private=True) as file:
        file.write("\n".join(kept).encode())
    return path
