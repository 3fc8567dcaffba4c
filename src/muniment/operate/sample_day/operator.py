"""The operator of a demo: it records the runs and the intents of the sample day, and those of the demo's relayer."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from muniment.service.resources import operators

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address
    from muniment.service.storage.database import Database, Transaction

NAME: Final = "demo-relayer"


async def renew_key(database: Database, now_ms: int, address: Address | None = None) -> str:
    """A new key for the operator, which is added if there is none yet, in place of the one that it had.

    `address` names it publicly; with None it keeps the address that it had.
    """
    key = operators.new_key(secrets.token_bytes)

    async def renew(tx: Transaction) -> None:
        with suppress(ValueError):  # the first demo of this registry
            await operators.revoke(tx, NAME, now_ms)
        await operators.add(tx, NAME, key, now_ms, address)

    await database.write(renew)
    return key
