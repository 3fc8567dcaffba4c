"""`muniment users`: what an operator changes of users."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from muniment.errors import InvalidAddress
from muniment.evm.address import Address
from muniment.storage import open_database
from muniment.users import store
from muniment.users.types import Email

if TYPE_CHECKING:
    from muniment.settings import Settings


def set_email(settings: Settings, address: str, email: str | None) -> str:
    """Set or remove a user's email; what was done. Raises `InvalidAddress` when the address has never logged in."""
    owner, wanted = Address.parse(address), None if email is None else Email.parse(email)

    async def change() -> bool:
        database = open_database(settings.database_url, data_dir=settings.data_dir)
        try:
            await database.check()
            return await database.write(lambda tx: store.set_email(tx, owner, wanted))
        finally:
            await database.close()

    if not asyncio.run(change()):
        raise InvalidAddress(f"{owner} has never logged in")
    return f"{owner} has the email {wanted}" if wanted else f"{owner} has no email any more"
