"""`muniment users`."""

from __future__ import annotations

from pathlib import Path

import click

from muniment.cli import output
from muniment.cli.options import common_options, in_database


@click.group()
def users() -> None:
    """The users of a registry."""


@users.command("set-email")
@common_options
@click.argument("address")
@click.argument("email", required=False)
def set_email(config: Path | None, address: str, email: str | None, **flags: object) -> None:
    """Set the email of a user; without EMAIL, remove it. The user must have logged in before."""
    from muniment.protocol.errors import InvalidAddress
    from muniment.protocol.evm.address import Address
    from muniment.protocol.users.types import Email
    from muniment.service.resources.users import store

    owner, wanted = Address.parse(address), None if email is None else Email.parse(email)
    if not in_database(config, flags, lambda db: db.write(lambda tx: store.set_email(tx, owner, wanted))):
        raise InvalidAddress(f"{owner} has never logged in")
    output.print_text(f"{owner} has the email {wanted}" if wanted else f"the email of {owner} is removed")
