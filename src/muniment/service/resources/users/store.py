"""Users in the database: wallets that have logged in, with the generation of their API key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from muniment.protocol.users.types import Email, IntendedUse, Profile, UserName
from muniment.service.auth.nonces import FORGOTTEN

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address
    from muniment.protocol.users.types import ProfileUpdate
    from muniment.service.storage.database import Database, Transaction

_PROFILE = "SELECT name, intended_use, email FROM users WHERE address = ?"
# One row: a user's address (NULL: the user has never logged in) and email, and the latest window of deleted nonces.
USER: Final = f"SELECT address, email, {FORGOTTEN} FROM (SELECT 1) one LEFT JOIN users ON address = ?"
_GENERATION = "SELECT key_generation FROM users WHERE address = ?"


async def ensure_user(transaction: Transaction, address: Address, now_ms: int) -> str | None:
    """Insert the user's row if it does not exist; returns its email."""
    added = await transaction.execute(
        "INSERT INTO users (address, created_at_ms) VALUES (?, ?) ON CONFLICT DO NOTHING", (address.raw, now_ms)
    )
    row = None if added else await transaction.fetch_one("SELECT email FROM users WHERE address = ?", (address.raw,))
    return row[0] if row else None


async def find_generation(database: Database | Transaction, address: Address) -> int | None:
    """The generation of a user's API key; None if the address has never logged in."""
    row = await database.fetch_one(_GENERATION, (address.raw,))
    return row[0] if row else None


async def first_generation(transaction: Transaction, address: Address, now_ms: int) -> int:
    """The generation of a user's API key; inserts the user's row if it does not exist."""
    await ensure_user(transaction, address, now_ms)
    generation = await find_generation(transaction, address)
    assert generation is not None  # noqa: S101 - the row is there in this transaction
    return generation


async def next_generation(transaction: Transaction, address: Address, now_ms: int, grace_until_ms: int) -> int:
    """Begin the next generation. The previous one stays valid until `grace_until_ms`; older ones are invalid."""
    await ensure_user(transaction, address, now_ms)
    await transaction.execute(
        "UPDATE users SET key_generation = key_generation + 1, grace_until_ms = ? WHERE address = ?",
        (grace_until_ms, address.raw),
    )
    return await first_generation(transaction, address, now_ms)


async def find_profile(database: Database | Transaction, address: Address) -> Profile | None:
    """The profile of a user; None if the address has never logged in."""
    row = await database.fetch_one(_PROFILE, (address.raw,))
    if row is None:
        return None
    name, intended_use, email = row
    return Profile(
        user_address=address, name=UserName(name), intended_use=IntendedUse(intended_use),
        email=None if email is None else Email(email),
    )  # fmt: skip


async def update_profile(transaction: Transaction, address: Address, update: ProfileUpdate, now_ms: int) -> Profile:
    """Change the members in `update` in one statement, so that concurrent updates of other members are kept."""
    await ensure_user(transaction, address, now_ms)
    await transaction.execute(
        "UPDATE users SET name = coalesce(?, name), intended_use = coalesce(?, intended_use) WHERE address = ?",
        (
            None if update.name is UNSET else str(update.name),
            None if update.intended_use is UNSET else str(update.intended_use),
            address.raw,
        ),
    )
    profile = await find_profile(transaction, address)
    assert profile is not None  # noqa: S101 - the row is there in this transaction
    return profile


async def set_email(transaction: Transaction, address: Address, email: Email | None) -> bool:
    """Set or remove a user's email; False if the address has never logged in."""
    text = None if email is None else str(email)
    return await transaction.execute("UPDATE users SET email = ? WHERE address = ?", (text, address.raw)) == 1
