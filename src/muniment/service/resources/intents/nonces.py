"""The nonces of intents of generation 2: one intent at a time holds the nonce of a trigger and a settlement contract.

The contract of this generation refuses a second execution by the hash of the intent alone. Of two intents with one
nonce and, say, another fee it executes both, and the owner pays twice. So an intent holds its nonce until it can no
longer be executed: the deadline and the settlement grace have passed. Its status does not shorten that, because a
status is a claim. An intent that succeeded holds its nonce for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.protocol.errors import InvalidIntent, NonceTaken
from muniment.protocol.evm.hex import HexString
from muniment.protocol.intents.lifecycle import Moment
from muniment.service.resources import operators
from muniment.service.resources.intents.store import expiry, find
from muniment.service.storage.sql import number_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from muniment.protocol.intents.types import NewOperationsIntent
    from muniment.service.storage.database import Database, Row, Transaction
    from muniment.service.storage.sqlite.snapshot import StillDatabase

# The second of two writers waits here for the first to commit, on either engine. A nonce whose time is over goes to the
# new intent; the last parameter is the latest deadline whose grace has passed.
_HOLD: Final = """
    INSERT INTO intent_nonces (trigger_sig, settler, nonce, intent_hash, deadline) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (trigger_sig, settler, nonce)
    DO UPDATE SET intent_hash = excluded.intent_hash, deadline = excluded.deadline WHERE intent_nonces.deadline <= ?
    RETURNING intent_hash"""
# Of several intents that succeeded the first keeps it.
_KEEP: Final = """
    INSERT INTO intent_nonces (trigger_sig, settler, nonce, intent_hash, deadline)
    SELECT trigger_sig, settler, nonce, hash, NULL FROM intents WHERE seq = ?
    ON CONFLICT (trigger_sig, settler, nonce)
    DO UPDATE SET intent_hash = excluded.intent_hash, deadline = NULL WHERE intent_nonces.deadline IS NOT NULL"""
# The intent that holds a nonce, or held it last.
_HOLDER: Final = "SELECT intent_hash FROM intent_nonces WHERE trigger_sig = ? AND settler = ? AND nonce = ?"
_SHARED: Final = """
    SELECT i.seq, i.hash, n.intent_hash
    FROM intents i LEFT JOIN intent_nonces n
      ON n.trigger_sig = i.trigger_sig AND n.settler = i.settler AND n.nonce = i.nonce
    WHERE i.generation = 2 AND i.seq > ?"""
_ROWS_PER_READ: Final = number_text(1_000)


async def hold(
    tx: Transaction, new: NewOperationsIntent, intent_hash: bytes, moment: Moment, *, has_succeeded: bool
) -> None:
    """Hold the nonce of an intent that is about to be recorded. Raises `NonceTaken` if another intent holds it."""
    key, deadline = (new.trigger_sig.raw, new.settler.raw, new.nonce), int(new.deadline).to_bytes(32)
    _, over = expiry(moment)
    values = (*key, intent_hash, None if has_succeeded else deadline, over)
    while not await tx.fetch(_HOLD, values):
        row = await tx.fetch_one(_HOLDER, key)
        if row is None:  # `release` has freed it since
            continue
        if row[0] == intent_hash:  # another writer has recorded the same intent since
            return
        named = HexString.from_raw(row[0])
        detail = (
            f"the intent {named} has the same triggerSig, settler and nonce, and the settlement contract would "
            "execute both"
        )
        raise NonceTaken(detail, pointer="/nonce", facts={"intent": named})


async def keep(tx: Transaction, seq: int) -> None:
    """Let an intent that succeeded hold its nonce for ever, even if another intent has taken the nonce since."""
    await tx.execute(_KEEP, (seq,))


def _line(intent_hash: bytes, other: bytes) -> str:
    return f"two intents share a nonce: {HexString.from_raw(intent_hash)} and {HexString.from_raw(other)}"


async def shared_nonces(database: Database) -> AsyncIterator[str]:
    """A line for each intent whose nonce another intent holds."""
    last = 0
    while rows := await database.fetch_slow(f"{_SHARED} ORDER BY i.seq LIMIT {_ROWS_PER_READ}", (last,)):
        for line in _lines(rows):
            yield line
        last = rows[-1][0]


def shared_in_file(database: StillDatabase) -> Iterator[str]:
    """The same for an SQLite file without a writer."""
    return _lines(database.fetch(f"{_SHARED} ORDER BY i.seq", (0,)))


def _lines(rows: Iterable[Row]) -> Iterator[str]:
    return (_line(intent_hash, other) for _, intent_hash, other in rows if other not in (None, intent_hash))


async def release(tx: Transaction, intent_hash: bytes, now_ms: int) -> None:
    """Free the nonce that an intent holds, and enter this in the audit log.

    Raises `IntentNotFound`, and `InvalidIntent` for an intent that holds no nonce.
    """
    await find(tx, intent_hash, Moment(now_ms, 0))
    freed = await tx.execute(
        """DELETE FROM intent_nonces WHERE intent_hash = ? AND (trigger_sig, settler, nonce) IN
             (SELECT trigger_sig, settler, nonce FROM intents WHERE hash = ?)""",
        (intent_hash, intent_hash),
    )
    if not freed:
        raise InvalidIntent("the intent holds no nonce: it is of generation 1, or another intent has the nonce")
    await operators.enter(tx, operators.LOCAL, "release nonce", intent_hash, now_ms)
