"""Nonces that need no storage: each is derived from a secret, the address, a window of time and a slot.

A request for a nonce writes nothing, so a stranger's request changes nothing for the owner. A successful login records
the nonce as used. That record is unique, so a nonce is valid once, even if several processes get it at the same moment.

A service remembers the slot of the last nonce of each address, so that devices of one owner that ask at the same time
get different slots. This is only a hint: if the devices ask different services, one may need a second try.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, LiteralString
from zlib import crc32

from muniment.protocol.errors import TooManyLogins
from muniment.protocol.evm.signature import Signature, personal_digest, recover
from muniment.service.auth.secrets import Ring, ring_of
from muniment.service.running.limits.policies import refusal_facts
from muniment.service.storage.sql import SWEPT_PER_BATCH, number_text

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address
    from muniment.service.context import Context
    from muniment.service.storage.database import Database, Transaction

# Logins of one owner in a window. Each further slot costs a failing login two more recoveries of 30 µs.
SLOTS: Final = 8
# A byte each. Addresses that share one get slots after each other's, which does no harm.
_CELLS: Final = 65_536


class LastSlots:
    """The slot of the last nonce of each address. It begins at random, so that services differ."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        """`random_bytes` returns so many bytes."""
        self._cells = bytearray(random_bytes(_CELLS))

    def take(self, address: bytes, free: list[int]) -> int:
        """The slot of `free`, which is sorted and not empty, that follows the last one issued to `address`."""
        cell = crc32(address) % _CELLS
        last = self._cells[cell] % SLOTS
        slot = next((slot for slot in free if slot > last), free[0])
        self._cells[cell] = slot
        return slot


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
# Addresses whose last slot is kept in memory: a login most likely has it.
_ADDRESSES_REMEMBERED: Final = 4_096


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


_last_slots: OrderedDict[bytes, int] = OrderedDict()


async def issue_nonce(context: Context, address: Address) -> Nonce:
    """A nonce for `address` from an unused slot of this window. Raises `TooManyLogins` when all slots are used."""
    window = await window_at(context.database, context.clock.now_ms())
    rows = await context.database.fetch(
        "SELECT slot FROM used_nonces WHERE address = ? AND nonce_window = ?", (address.raw, window)
    )
    free = sorted(set(range(SLOTS)) - {slot for (slot,) in rows})
    if not free:
        seconds = WINDOW_MS // 1000 - context.clock.now_ms() % WINDOW_MS // 1000
        raise TooManyLogins(
            f"this address has logged in {SLOTS} times within five minutes",
            facts=refusal_facts("wallet-login", SLOTS, WINDOW_MS // 1000, seconds),
        )
    slot = _next_slot(context, address.raw, free)
    return _nonce(ring_of(context.secrets()).newest.nonce_key, address, window, slot)


def _next_slot(context: Context, address: bytes, free: list[int]) -> int:
    """The free slot after the last one that this service gave to this address."""
    slot = _slots_of(context.random_bytes).take(address, free)
    _last_slots[address] = slot
    _last_slots.move_to_end(address)
    if len(_last_slots) > _ADDRESSES_REMEMBERED:
        _last_slots.popitem(last=False)
    return slot


@lru_cache(maxsize=1)
def _slots_of(random_bytes: Callable[[int], bytes]) -> LastSlots:
    return LastSlots(random_bytes)


async def window_at(database: Database, now_ms: int) -> int:
    """The window for new nonces at `now_ms`.

    Every acceptable window is later than the deleted ones: even if the clock is far behind, no nonce is valid twice.
    """
    return max(now_ms // WINDOW_MS, await _forgotten(database) + 2)


async def _forgotten(database: Database | Transaction) -> int:
    """The latest window whose used nonces are deleted."""
    rows = await database.fetch("SELECT until_window FROM forgotten_nonces")
    return rows[0][0] if rows else _NEVER


def signed_nonce(ring: Ring, address: Address, signature: Signature, window: int) -> Nonce | None:
    """The nonce of `address`, acceptable in `window`, that `signature` signs (EIP-191, text or bytes), if any."""
    for nonce in _acceptable(ring, address, window):  # the text first: nearly all wallets sign it
        if recover(personal_digest(nonce.text.encode()), signature) == address:
            return nonce
    for nonce in _acceptable(ring, address, window):
        if recover(personal_digest(nonce.raw), signature) == address:
            return nonce
    return None


def named_nonce(ring: Ring, address: Address, digits: str, window: int) -> Nonce | None:
    """The nonce of `address`, acceptable in `window`, with these hex digits, if any."""
    return next((nonce for nonce in _acceptable(ring, address, window) if nonce.raw.hex() == digits), None)


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


def _acceptable(ring: Ring, address: Address, window: int) -> Iterator[Nonce]:
    """The nonces of the current `window`, the previous and (clocks differ) the next one, the likeliest first.

    That is the nonce that this process issued last, then those before it.
    """
    last = _last_slots.get(address.raw, 0)
    slots = sorted(range(SLOTS), key=lambda slot: (last - slot) % SLOTS)
    for secret in ring.secrets[:SECRETS_TRIED]:
        for each in (window, window - 1, window + 1):
            for slot in slots:
                yield _nonce(secret.nonce_key, address, each, slot)


def _nonce(key: bytes, address: Address, window: int, slot: int) -> Nonce:
    fields = address.raw + window.to_bytes(8, signed=True) + slot.to_bytes(1)
    return Nonce(window, slot, hmac.digest(key, fields, "sha256"))
