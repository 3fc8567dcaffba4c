"""Which intent of the second generation holds a nonce: one at a time for each trigger and settlement contract.

The contract of this form refuses a second execution by the hash of the intent alone. Of two intents with one nonce and,
say, another fee it executes both, and the owner pays twice. So an intent holds its nonce until nobody can send it any
more: the deadline and the settlement grace have passed. Its status does not shorten that, because a status is a claim.
An intent that succeeded holds its nonce for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from muniment.errors import NonceTaken
from muniment.evm.hex import HexString
from muniment.intents.lifecycle import passed_until
from muniment.intents.store import expiry

if TYPE_CHECKING:
    from muniment.intents.lifecycle import Moment
    from muniment.intents.types import NewOperationsIntent
    from muniment.storage.database import Reader, Transaction

_KEY: Final = "trigger_sig = ? AND settler = ? AND nonce = ?"
# Whoever comes second waits here for the first to commit, on either engine. A nonce whose time is over goes to the new
# intent; the last parameter is the latest deadline whose grace has passed.
_HOLD: Final = """
    INSERT INTO intent_nonces (trigger_sig, settler, nonce, intent_hash, deadline) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (trigger_sig, settler, nonce)
    DO UPDATE SET intent_hash = excluded.intent_hash, deadline = excluded.deadline WHERE intent_nonces.deadline <= ?
    RETURNING intent_hash"""
# Of several intents that succeeded the first keeps it.
_KEEP: Final = """
    INSERT INTO intent_nonces (trigger_sig, settler, nonce, intent_hash, deadline) VALUES (?, ?, ?, ?, NULL)
    ON CONFLICT (trigger_sig, settler, nonce)
    DO UPDATE SET intent_hash = excluded.intent_hash, deadline = NULL WHERE intent_nonces.deadline IS NOT NULL"""
_HOLDER: Final = f"SELECT intent_hash FROM intent_nonces WHERE {_KEY}"


class _Record(msgspec.Struct):
    """What is read of the stored record of an intent."""

    nonce: str


class Nonce(NamedTuple):
    """The key of a nonce: bytes of the trigger's signature and of the settlement contract, and the nonce as 0x hex."""

    trigger_sig: bytes
    settler: bytes
    nonce: str

    @classmethod
    def of(cls, new: NewOperationsIntent) -> Nonce:
        """The nonce of an intent."""
        return cls(new.trigger_sig.raw, new.settler.raw, new.nonce)


def is_past(new: NewOperationsIntent, moment: Moment) -> bool:
    """Whether the deadline of an intent has passed, so that the settlement contract refuses it."""
    return int(new.deadline) <= passed_until(moment.now_ms)


async def holder(database: Reader | Transaction, nonce: Nonce) -> bytes | None:
    """The hash of the intent that holds a nonce, or held it last."""
    rows = await database.fetch(_HOLDER, nonce)
    return rows[0][0] if rows else None


async def hold(
    tx: Transaction,
    new: NewOperationsIntent,
    intent_hash: bytes,
    moment: Moment,
    *,
    has_succeeded: bool,
    may_share: bool,
) -> None:
    """Hold the nonce of an intent that is about to be recorded. Raises `NonceTaken` if another intent holds it.

    With `may_share` an intent whose deadline has passed is a record of the past: it may have the nonce too.
    """
    nonce, deadline = Nonce.of(new), int(new.deadline).to_bytes(32)
    _, over = expiry(moment)
    values = (*nonce, intent_hash, None if has_succeeded else deadline, over)
    while not await tx.fetch(_HOLD, values):
        other = await holder(tx, nonce)
        if other == intent_hash:  # another writer has recorded the same intent since
            return
        if other is None:  # `release` has freed it since
            continue
        if not (may_share and is_past(new, moment)):
            named = HexString.from_raw(other)
            detail = (
                f"the intent {named} has the same triggerSig, settler and nonce, and the settlement contract would "
                "execute both"
            )
            raise NonceTaken(detail, pointer="/nonce", facts={"intent": named})
        if has_succeeded:
            await tx.execute(_KEEP, values[:4])
        else:
            later = f"UPDATE intent_nonces SET deadline = ? WHERE {_KEY} AND deadline < ?"
            await tx.execute(later, (deadline, *nonce, deadline))
        return


async def keep(tx: Transaction, seq: int) -> None:
    """Let an intent that succeeded hold its nonce for ever, also if another one has got it since."""
    rows = await tx.fetch("SELECT trigger_sig, settler, record, hash FROM intents WHERE seq = ?", (seq,))
    for trigger_sig, settler, record, intent_hash in rows:
        await tx.execute(_KEEP, (trigger_sig, settler, nonce_in(record), intent_hash))


def nonce_in(record: str) -> str:
    """The nonce in the stored record of an intent."""
    return msgspec.json.decode(record, type=_Record).nonce
