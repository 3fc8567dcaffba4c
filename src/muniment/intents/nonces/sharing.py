"""Two intents of one nonce: found in a registry whose records say so, and how a command frees a nonce."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from muniment.auth import operators
from muniment.errors import IntentNotFound, InvalidIntent
from muniment.evm.hex import HexString
from muniment.intents import store
from muniment.intents.lifecycle import Moment
from muniment.intents.nonces.holding import Nonce, holder, is_past, nonce_in
from muniment.intents.types import NewIntent
from muniment.storage.sql import number_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from muniment.intents.types import AnyNewIntent
    from muniment.storage.database import Database, Transaction

# Rows of one read: a few megabytes of records.
_ROWS_PER_READ: Final = number_text(500)
_INTENTS: Final = (
    f"SELECT seq, trigger_sig, settler, record, hash FROM intents WHERE generation = 2 AND seq > ? "
    f"ORDER BY seq LIMIT {_ROWS_PER_READ}"
)
# For a file of SQLite, in one statement.
IN_FILE: Final = """
    SELECT hash, other FROM (
      SELECT seq, hash, lag(hash) OVER (PARTITION BY trigger_sig, settler, nonce ORDER BY seq) AS other
      FROM (
        SELECT seq, hash, trigger_sig, settler,
          CASE WHEN json_valid(record) THEN json_extract(record, '$.nonce') ELSE hash END AS nonce
        FROM intents WHERE generation = 2
      ) recorded
    ) ranked
    WHERE other IS NOT NULL ORDER BY seq"""


def told(pairs: Iterable[tuple[bytes, bytes]]) -> list[str]:
    """A line for each two intents of one nonce, given by their hashes."""
    return [_line(intent_hash, other) for intent_hash, other in pairs]


def _line(intent_hash: bytes, other: bytes) -> str:
    return f"two intents of one nonce: {HexString.from_raw(intent_hash)} and {HexString.from_raw(other)}"


async def shared(database: Database) -> AsyncIterator[str]:
    """A line for each intent whose nonce another intent holds."""
    last = 0
    while rows := await database.fetch_slow(_INTENTS, (last,)):
        for _, trigger_sig, settler, record, intent_hash in rows:
            with suppress(msgspec.MsgspecError):  # a damaged record, which `muniment verify` names
                other = await holder(database, Nonce(trigger_sig, settler, nonce_in(record)))
                if other is not None and other != intent_hash:
                    yield _line(intent_hash, other)
        last = rows[-1][0]


async def shared_by(tx: Transaction, new: AnyNewIntent, intent_hash: bytes, moment: Moment) -> str | None:
    """The line about an intent of the past that is about to be recorded beside the one that has its nonce."""
    if isinstance(new, NewIntent) or not is_past(new, moment):
        return None
    other = await holder(tx, Nonce.of(new))
    return None if other is None or other == intent_hash else _line(intent_hash, other)


async def release(tx: Transaction, intent_hash: bytes, now_ms: int) -> None:
    """Free the nonce that an intent holds, and enter this in the audit log.

    Raises `IntentNotFound`, and `InvalidIntent` for an intent that holds none.
    """
    if await store.find(tx, intent_hash, Moment(now_ms, 0)) is None:
        raise IntentNotFound("no intent is recorded under this hash")
    rows = await tx.fetch(
        "SELECT trigger_sig, settler, record FROM intents WHERE hash = ? AND generation = 2", (intent_hash,)
    )
    freed = 0
    for trigger_sig, settler, record in rows:
        freed = await tx.execute(
            "DELETE FROM intent_nonces WHERE trigger_sig = ? AND settler = ? AND nonce = ? AND intent_hash = ?",
            (*Nonce(trigger_sig, settler, nonce_in(record)), intent_hash),
        )
    if not freed:
        raise InvalidIntent("the intent holds no nonce: it is of the first form, or another intent has the nonce")
    await operators.enter(tx, operators.LOCAL, "release nonce", intent_hash, now_ms)
