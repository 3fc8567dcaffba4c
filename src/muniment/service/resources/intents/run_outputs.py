"""The intents that a recorded run made.

An intent belongs to a run of its trigger by the run's outputs, never by its own claim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from muniment.protocol.errors import IntentDiffers
from muniment.protocol.evm.hex import HexString
from muniment.service.storage.sql import number_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.service.storage.database import Reader, Transaction

_HASH_BYTES: Final = 32


class Outputs(NamedTuple):
    """What a run made: the signature of its trigger, and the hashes of the intents."""

    trigger_sig: bytes
    hashes: list[bytes]


class _OfTrigger(msgspec.Struct, rename="camel"):
    """The members of a run's record that say whose it is and when it was due, in milliseconds since 1970."""

    trigger_sig: str
    timestamp: int


_decoder: Final = msgspec.json.Decoder(_OfTrigger)


def trigger_of(record: str) -> bytes:
    """The signature of the trigger of a run, whose members that never change are given as JSON."""
    return bytes.fromhex(_decoder.decode(record).trigger_sig[2:])


async def outputs_of(database: Reader | Transaction, execution_hash: bytes) -> Outputs | None:
    """What a run made; None if no such run is recorded."""
    rows = await database.fetch("SELECT record, outputs FROM runs WHERE hash = ?", (execution_hash,))
    for record, joined in rows:
        return Outputs(trigger_of(record), [joined[at : at + _HASH_BYTES] for at in range(0, len(joined), _HASH_BYTES)])
    return None


# Newest intents of a trigger among which one with a recorded run is looked for.
_NEWEST: Final = 20


async def life_of(reader: Reader, sigs: Sequence[bytes]) -> int | None:
    """How long the intents of these triggers are good, in seconds from what was due; None if no record shows it.

    It is the shortest life of the newest intents whose runs are recorded.
    """
    newest = " UNION ALL ".join(
        f"SELECT * FROM (SELECT deadline, execution_hash FROM intents WHERE generation = {number_text(generation)} "
        f"AND trigger_sig BETWEEN ? AND ? ORDER BY trigger_sig DESC, seq DESC "
        f"LIMIT {number_text(_NEWEST)}) of_{number_text(place)}"
        for place, generation in enumerate((1, 2) * len(sigs))
    )
    if not newest:
        return None
    rows = await reader.fetch(
        f"SELECT deadline, r.record FROM ({newest}) newest JOIN runs r ON r.hash = execution_hash",
        [each for sig in sigs for each in (sig, sig) * 2],
    )
    lives = [int.from_bytes(deadline) - _decoder.decode(record).timestamp // 1_000 for deadline, record in rows]
    return min((each for each in lives if each > 0), default=None)


async def check_run(tx: Transaction, intent_hash: bytes, trigger_sig: bytes, execution_hash: bytes | None) -> None:
    """Raise `IntentDiffers` for an intent that names a recorded run which did not make it."""
    if execution_hash is None or (outputs := await outputs_of(tx, execution_hash)) is None:
        return
    named = HexString.from_raw(execution_hash)
    if intent_hash not in outputs.hashes:
        raise IntentDiffers(f"the run {named} is recorded and does not list this intent", pointer="/executionHash")
    if trigger_sig != outputs.trigger_sig:
        raise IntentDiffers(f"the run {named} belongs to another trigger", pointer="/executionHash")
