"""Nonces that need no storage: each is derived from a secret, the address, a window of time and a slot.

A request for a nonce writes nothing, so a stranger's request changes nothing for the owner. A successful login records
the nonce as used. That record is unique, so a nonce is valid once, even if several processes get it at the same moment.

A service gives out the slots of its own number (`storage.service_number`) in turn. So devices of one owner that ask at
the same time get different nonces, whichever services they ask.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString
from zlib import crc32

from muniment.protocol.errors import TooManyLogins
from muniment.protocol.evm.signature import Signature, personal_digest, recover
from muniment.service.auth.secrets import Ring, ring_of
from muniment.service.running.limits.policies import refusal_facts
from muniment.service.storage.service_number import SERVICES
from muniment.service.storage.sql import SWEPT_PER_BATCH, number_text

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address
    from muniment.service.context import Context
    from muniment.service.storage.database import Database, Transaction

# Log-ins of one owner at one service in a window. A failing log-in costs two recoveries of 30 µs for each slot.
SLOTS: Final = 8
WINDOW_MS: Final = 5 * 60 * 1000
# Nonces live ten minutes; secrets are rotated by hand. So a valid nonce comes from the newest secret or the one before.
SECRETS_TRIED: Final = 2
# The number of latest windows whose used nonces are all stored: 24 hours of log-ins at least. Windows with log-ins are
# counted, because a bound on the time would let a clock that is ahead delete nonces too early.
WINDOWS_KEPT: Final = 24 * 12
# The latest window before those. Each window costs one look into an index: SELECT DISTINCT would read every row.
_KEPT: Final = number_text(WINDOWS_KEPT)
_OLDER: Final = f"""
WITH RECURSIVE latest (n, nonce_window) AS (
  SELECT 1, MAX(nonce_window) FROM used_nonces
  UNION ALL
  SELECT n + 1, (SELECT MAX(u.nonce_window) FROM used_nonces u WHERE u.nonce_window < latest.nonce_window)
  FROM latest WHERE n <= {_KEPT} AND nonce_window IS NOT NULL
)
SELECT nonce_window FROM latest WHERE n = {_KEPT} + 1 AND nonce_window IS NOT NULL
"""
# The table of used nonces and its key.
USED_NONCES: Final[tuple[LiteralString, tuple[LiteralString, ...]]] = "used_nonces", ("address", "nonce_window", "slot")
# The latest window whose used nonces are deleted, as a value in a query.
FORGOTTEN: Final = "(SELECT until_window FROM forgotten_nonces)"
# A number below that of every window.
_NEVER: Final = -(2**62)


@dataclass(frozen=True, slots=True)
class Nonce:
    """A nonce, with its window and slot."""

    window: int
    slot: int
    raw: bytes

    @property
    def text(self) -> str:
        """As clients see and sign it: 0x and 64 hex digits."""
        return "0x" + self.raw.hex()


async def issue_nonce(context: Context, address: Address) -> Nonce:
    """A nonce for `address` from an unused slot of this window. Raises `TooManyLogins` when all slots are used."""
    window, first = await window_at(context.database, context.clock.now_ms()), context.number.own * SLOTS
    rows = await context.database.fetch(
        "SELECT slot FROM used_nonces WHERE address = ? AND nonce_window = ?", (address.raw, window)
    )
    free = sorted(set(range(SLOTS)) - {slot - first for (slot,) in rows})
    if not free:
        seconds = WINDOW_MS // 1000 - context.clock.now_ms() % WINDOW_MS // 1000
        raise TooManyLogins(
            f"this address has logged in {SLOTS} times within five minutes",
            facts=refusal_facts("wallet-login", SLOTS, WINDOW_MS // 1000, seconds),
        )
    last = _last_slot(context, address)
    slot = next((slot for slot in free if slot > last), free[0])
    context.last_slots[_cell(context, address)] = slot
    return _nonce(ring_of(context.secrets()).newest.nonce_key, address, window, first + slot)


async def window_at(database: Database, now_ms: int) -> int:
    """The window for new nonces at `now_ms`.

    Every acceptable window is later than the deleted ones: even if the clock is far behind, no nonce is valid twice.
    """
    return max(now_ms // WINDOW_MS, await _forgotten(database) + 2)


async def _forgotten(database: Database | Transaction) -> int:
    """The latest window whose used nonces are deleted."""
    rows = await database.fetch("SELECT until_window FROM forgotten_nonces")
    return rows[0][0] if rows else _NEVER


def signed_nonce(ring: Ring, address: Address, signature: Signature, window: int, slots: Sequence[int]) -> Nonce | None:
    """The nonce of `address` in `slots`, acceptable in `window`, that `signature` signs (EIP-191, text or bytes)."""
    for nonce in _acceptable(ring, address, window, slots):  # the text first: nearly all wallets sign it
        if recover(personal_digest(nonce.text.encode()), signature) == address:
            return nonce
    for nonce in _acceptable(ring, address, window, slots):
        if recover(personal_digest(nonce.raw), signature) == address:
            return nonce
    return None


def slots_of(context: Context, number: int, address: Address) -> list[int]:
    """The slots of the service with a number, the likeliest first: that which `address` got last, then those before."""
    last = _last_slot(context, address)
    return [number * SLOTS + (last - back) % SLOTS for back in range(SLOTS)]


def _cell(context: Context, address: Address) -> int:
    return crc32(address.raw) % len(context.last_slots)


def _last_slot(context: Context, address: Address) -> int:
    """The slot among its own, 0 to 7, from which this service last gave a nonce to `address`, most likely."""
    return context.last_slots[_cell(context, address)] % SLOTS


def named_nonce(ring: Ring, address: Address, digits: str, window: int) -> Nonce | None:
    """The nonce of `address`, acceptable in `window`, with these hex digits, if any."""
    nonces = _acceptable(ring, address, window, range(SERVICES * SLOTS))
    return next((nonce for nonce in nonces if nonce.raw.hex() == digits), None)


async def use_nonce(transaction: Transaction, address: Address, nonce: Nonce) -> bool:
    """Mark `nonce` as used; False if it was used before, or if the records of its window are deleted."""
    if nonce.window <= await _forgotten(transaction):
        return False
    added = await transaction.execute(
        "INSERT INTO used_nonces (address, nonce_window, slot) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (address.raw, nonce.window, nonce.slot),
    )
    return added == 1


async def forget_nonces(transaction: Transaction) -> int:
    """Delete some used nonces of old windows, whose nonces are no longer accepted; returns how many."""
    rows = await transaction.fetch(_OLDER)
    if not rows:
        return 0
    until = max(rows[0][0], await _forgotten(transaction))
    await transaction.execute(
        """INSERT INTO forgotten_nonces (id, until_window) VALUES (1, ?)
           ON CONFLICT (id) DO UPDATE SET until_window = excluded.until_window
           WHERE forgotten_nonces.until_window < excluded.until_window""",
        (until,),
    )
    return await transaction.execute(
        """DELETE FROM used_nonces WHERE (address, nonce_window, slot) IN (
             SELECT address, nonce_window, slot FROM used_nonces
             WHERE nonce_window <= ? ORDER BY nonce_window LIMIT ?)""",
        (until, SWEPT_PER_BATCH),
    )


def _acceptable(ring: Ring, address: Address, window: int, slots: Sequence[int]) -> Iterator[Nonce]:
    """The nonces in `slots` of the current `window`, the previous and (clocks differ) the next one."""
    for secret in ring.secrets[:SECRETS_TRIED]:
        for each in (window, window - 1, window + 1):
            for slot in slots:
                yield _nonce(secret.nonce_key, address, each, slot)


def _nonce(key: bytes, address: Address, window: int, slot: int) -> Nonce:
    fields = address.raw + window.to_bytes(8, signed=True) + slot.to_bytes(1)
    return Nonce(window, slot, hmac.digest(key, fields, "sha256"))
