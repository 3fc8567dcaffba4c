"""What triggers say about their runs, for the records of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from muniment.protocol.runs.rules import Terms
from muniment.service.storage.sql import placeholders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.protocol.evm.signature import Signature
    from muniment.service.storage.database import Reader, Transaction


class _Signed(msgspec.Struct, rename="camel"):
    """The members of a trigger's record that its runs depend on."""

    config: dict[str, Any]
    min_validations: int


_decoder: Final = msgspec.json.Decoder(_Signed)


async def find_terms(database: Reader, sig: Signature) -> tuple[int, Terms] | None:
    """The number of a trigger, which may be deactivated, and its terms."""
    row = await database.fetch_one("SELECT seq, created_at_ms, record FROM triggers WHERE sig = ?", (sig.raw,))
    if row is None:
        return None
    seq, created_at_ms, record = row
    signed = _decoder.decode(record)
    return seq, Terms(signed.config, signed.min_validations, created_at_ms)


async def lock(tx: Transaction, seq: int) -> None:
    """Lock the row of a trigger: writers of its runs take turns, in one process or many."""
    await tx.fetch(f"SELECT seq FROM triggers WHERE seq = ?{tx.for_update}", (seq,))


async def numbers_of(database: Reader, sigs: Sequence[Signature]) -> list[int]:
    """The numbers of the triggers with these signatures; unregistered ones are ignored."""
    rows = await database.fetch(
        f"SELECT seq FROM triggers WHERE sig IN ({placeholders(len(sigs))})", [sig.raw for sig in sigs]
    )
    return [seq for (seq,) in rows]
