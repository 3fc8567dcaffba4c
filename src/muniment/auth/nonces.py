"""Nonces that nobody has to store: derived from a secret, the address, a window of time and a slot.

Asking for one writes nothing, so a stranger's asking changes nothing for the owner. A successful login records
that the nonce was used, which is unique, so it is good once, whatever processes are asked at the same moment.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from muniment.auth.secrets import Ring, ring_of
from muniment.errors import TooManyLogins
from muniment.evm.signature import Signature, personal_digest, recover

if TYPE_CHECKING:
    from muniment.context import Context
    from muniment.evm.address import Address
    from muniment.storage.database import Transaction

WINDOW_MS: Final = 5 * 60 * 1000
# Logins of one owner in a window. Each slot more is two more recoveries (30 µs each) for a login that fails.
SLOTS: Final = 8
# Nonces live ten minutes; secrets are rotated by hand. The newest and the one before are all that can be in use.
SECRETS_TRIED: Final = 2
# Windows after which a row cannot matter: an accepted nonce is at most one window old, and clocks differ.
_WINDOWS_KEPT: Final = 3
# Addresses whose last slot is remembered, so that one owner's devices asking at once get different ones.
_ADDRESSES_REMEMBERED: Final = 4_096


@dataclass(frozen=True, slots=True)
class Nonce:
    """A nonce and where it comes from."""

    window: int
    slot: int
    raw: bytes

    @property
    def text(self) -> str:
        """As clients see and sign it: 0x and 64 hex digits."""
        return "0x" + self.raw.hex()


# A hint and no more: forgetting it, or another process's having another, costs a device a second try.
_last_slots: OrderedDict[bytes, int] = OrderedDict()


async def issue_nonce(context: Context, address: Address) -> Nonce:
    """A nonce for `address` from a slot not used in this window. Raises `TooManyLogins` when all are used."""
    window = context.now_ms() // WINDOW_MS
    rows = await context.database.fetch(
        "SELECT slot FROM used_nonces WHERE address = ? AND nonce_window = ?", (address.raw, window)
    )
    free = sorted(set(range(SLOTS)) - {slot for (slot,) in rows})
    if not free:
        seconds = ((window + 1) * WINDOW_MS - context.now_ms()) // 1000 + 1
        raise TooManyLogins(
            f"this address has logged in {SLOTS} times within five minutes", facts={"retryAfter": str(seconds)}
        )
    slot = _next_slot(context, address.raw, free)
    return _nonce(ring_of(context.secrets()).newest.nonce_key, address, window, slot)


def _next_slot(context: Context, address: bytes, free: list[int]) -> int:
    """The free slot after the last one given to this address, the first one by chance."""
    last = _last_slots.pop(address, None)
    if last is None:
        last = context.random_bytes(1)[0] % SLOTS
    slot = next((slot for slot in free if slot > last), free[0])
    _last_slots[address] = slot
    if len(_last_slots) > _ADDRESSES_REMEMBERED:
        _last_slots.popitem(last=False)
    return slot


def signed_nonce(ring: Ring, address: Address, signature: Signature, now_ms: int) -> Nonce | None:
    """The acceptable nonce of `address` that `signature` signs (EIP-191, text or bytes); None if it signs none."""
    for nonce in _acceptable(ring, address, now_ms):  # the text is what nearly all wallets sign
        if recover(personal_digest(nonce.text.encode()), signature) == address:
            return nonce
    for nonce in _acceptable(ring, address, now_ms):
        if recover(personal_digest(nonce.raw), signature) == address:
            return nonce
    return None


async def use_nonce(transaction: Transaction, address: Address, nonce: Nonce) -> bool:
    """Record that `nonce` was used; False if it was before. Rows that no longer matter go."""
    await transaction.execute("DELETE FROM used_nonces WHERE nonce_window < ?", (nonce.window - _WINDOWS_KEPT,))
    added = await transaction.execute(
        "INSERT INTO used_nonces (address, nonce_window, slot) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (address.raw, nonce.window, nonce.slot),
    )
    return added == 1


def _acceptable(ring: Ring, address: Address, now_ms: int) -> Iterator[Nonce]:
    """The nonces of the current, the previous and (clocks differ) the next window, the likeliest first.

    Which is the one that was given last by this process, and then the ones before it.
    """
    current, last = now_ms // WINDOW_MS, _last_slots.get(address.raw, 0)
    slots = sorted(range(SLOTS), key=lambda slot: (last - slot) % SLOTS)
    for secret in ring.secrets[:SECRETS_TRIED]:
        for window in (current, current - 1, current + 1):
            for slot in slots:
                yield _nonce(secret.nonce_key, address, window, slot)


def _nonce(key: bytes, address: Address, window: int, slot: int) -> Nonce:
    fields = address.raw + window.to_bytes(8, signed=True) + slot.to_bytes(1)
    return Nonce(window, slot, hmac.digest(key, fields, "sha256"))
