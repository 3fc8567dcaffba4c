"""Users in the database: who has logged in, and the generation of their API key."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muniment.evm.address import Address
    from muniment.storage.database import Database, Transaction

_GENERATION = "SELECT key_generation FROM users WHERE address = ?"


async def ensure_user(transaction: Transaction, address: Address, now_ms: int) -> str | None:
    """Make the user's row if there is none; the email of the row."""
    await transaction.execute(
        "INSERT INTO users (address, created_at_ms) VALUES (?, ?) ON CONFLICT DO NOTHING", (address.raw, now_ms)
    )
    row = await transaction.fetch_one("SELECT email FROM users WHERE address = ?", (address.raw,))
    return row[0] if row else None


async def find_generation(database: Database | Transaction, address: Address) -> int | None:
    """The generation of a user's API key, or None when the address has never logged in."""
    row = await database.fetch_one(_GENERATION, (address.raw,))
    return row[0] if row else None


async def first_generation(transaction: Transaction, address: Address, now_ms: int) -> int:
    """The generation of a user's API key, whose row is made if there is none."""
    await ensure_user(transaction, address, now_ms)
    generation = await find_generation(transaction, address)
    assert generation is not None  # noqa: S101 - the row is there in this transaction
    return generation


async def next_generation(transaction: Transaction, address: Address, now_ms: int, grace_until_ms: int) -> int:
    """Move to the next generation; the one before is good until `grace_until_ms`, older ones never again."""
    await ensure_user(transaction, address, now_ms)
    await transaction.execute(
        "UPDATE users SET key_generation = key_generation + 1, grace_until_ms = ? WHERE address = ?",
        (grace_until_ms, address.raw),
    )
    return await first_generation(transaction, address, now_ms)
