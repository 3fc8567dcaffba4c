"""The intents that a recorded run made. An intent belongs to a run by the run's outputs, never by its own claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import IntentDiffers
from muniment.protocol.evm.hex import HexString

if TYPE_CHECKING:
    from muniment.service.storage.database import Reader, Transaction

_HASH_BYTES: Final = 32


async def outputs_of(database: Reader | Transaction, execution_hash: bytes) -> list[bytes] | None:
    """The hashes of the intents that a run made; None if no such run is recorded."""
    rows = await database.fetch("SELECT outputs FROM runs WHERE hash = ?", (execution_hash,))
    for (joined,) in rows:
        return [joined[at : at + _HASH_BYTES] for at in range(0, len(joined), _HASH_BYTES)]
    return None


async def check_run(tx: Transaction, intent_hash: bytes, execution_hash: bytes | None) -> None:
    """Raise `IntentDiffers` for an intent that names a recorded run which did not make it."""
    if execution_hash is None:
        return
    outputs = await outputs_of(tx, execution_hash)
    if outputs is not None and intent_hash not in outputs:
        named = HexString.from_raw(execution_hash)
        raise IntentDiffers(f"the run {named} is recorded and does not list this intent", pointer="/executionHash")
