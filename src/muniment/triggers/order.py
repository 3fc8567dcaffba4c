"""Triggers and deactivations in the order of commits, as the transparency log takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from muniment.evm.signature import Signature
    from muniment.storage.database import Reader


class Registered(NamedTuple):
    """A trigger in the order of commits."""

    seq: int
    sig: bytes
    signer: bytes
    digest: bytes
    protocol: str
    record: str


class Ended(NamedTuple):
    """A deactivation in the order of commits."""

    seq: int
    signature: bytes
    signer: bytes
    protocol: str
    trigger_sigs: bytes
    created_at_ms: int


# The last numbers of both.
LAST_REGISTERED: Final = "SELECT coalesce(max(seq), 0) FROM triggers"
LAST_ENDED: Final = "SELECT coalesce(max(seq), 0) FROM deactivations"
# The number of the trigger, or the deactivation, that comes so many places after that with a number.
NTH_REGISTERED: Final = "SELECT seq FROM triggers WHERE seq >= ? ORDER BY seq LIMIT 1 OFFSET ?"
NTH_ENDED: Final = "SELECT seq FROM deactivations WHERE seq >= ? ORDER BY seq LIMIT 1 OFFSET ?"


async def read_registered(database: Reader, after: int, before: int, limit: int) -> list[Registered]:
    """Triggers with numbers between `after` and `before`, both not included, in the order of commits."""
    rows = await database.fetch(
        """SELECT seq, sig, signer, digest, protocol, record FROM triggers
           WHERE seq > ? AND seq < ? ORDER BY seq LIMIT ?""",
        (after, before, limit),
    )
    return [Registered(*row) for row in rows]


async def read_ended(database: Reader, after: int, before: int, limit: int) -> list[Ended]:
    """Deactivations, likewise."""
    rows = await database.fetch(
        """SELECT seq, signature, signer, protocol, trigger_sigs, created_at_ms FROM deactivations
           WHERE seq > ? AND seq < ? ORDER BY seq LIMIT ?""",
        (after, before, limit),
    )
    return [Ended(*row) for row in rows]


async def find_registered(database: Reader, sig: Signature) -> Registered | None:
    """The trigger with this signature."""
    row = await database.fetch_one(
        "SELECT seq, sig, signer, digest, protocol, record FROM triggers WHERE sig = ?", (sig.raw,)
    )
    return Registered(*row) if row else None


async def find_ended(database: Reader, signature: Signature) -> Ended | None:
    """The deactivation with this signature."""
    row = await database.fetch_one(
        "SELECT seq, signature, signer, protocol, trigger_sigs, created_at_ms FROM deactivations WHERE signature = ?",
        (signature.raw,),
    )
    return Ended(*row) if row else None


async def count_registered(database: Reader, first: int, before: int) -> int:
    """How many triggers have numbers from `first` on and below `before`."""
    sql = "SELECT count(*) FROM triggers WHERE seq >= ? AND seq < ?"
    return (await database.fetch(sql, (first, before)))[0][0]


async def count_ended(database: Reader, first: int, before: int) -> int:
    """How many deactivations, likewise."""
    sql = "SELECT count(*) FROM deactivations WHERE seq >= ? AND seq < ?"
    return (await database.fetch(sql, (first, before)))[0][0]
