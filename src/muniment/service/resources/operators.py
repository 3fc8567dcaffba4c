"""Operators: their keys, with which they may write intents, and the audit log of their writes.

A key is `mno_` and 32 random bytes in hex. Only its SHA-256 is stored: the hash of 32 random bytes cannot be reversed,
so a copy of the database gives no access, and no slow hash is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar, Final, Self

from muniment.protocol.errors import ConflictingCredentials, InvalidOperatorKey, MissingCredential, Refusal
from muniment.protocol.evm.address import Address
from muniment.service.context import Context
from muniment.service.http.request import only
from muniment.service.storage.sql import Where, placeholders

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muniment.service.http.request import Request
    from muniment.service.storage.database import Database, Reader, Transaction

_KEY: Final = re.compile(r"mno_[0-9a-f]{64}")
# The prefix of a status change of an intent in the audit log.
MOVE: Final = "move to "
# The name in the audit log for local commands; no operator can have it.
LOCAL: Final = "(local)"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True)
class OperatorCaller:
    """An operator with a key in `x-operator-key`; `address` names it publicly."""

    name: str
    address: Address | None = None

    security: ClassVar[list[dict[str, list[str]]]] = [{"operatorKey": []}]
    refuses_with: ClassVar[tuple[type[Refusal], ...]] = (ConflictingCredentials, MissingCredential, InvalidOperatorKey)

    @classmethod
    async def from_request(cls, request: Request) -> Self:
        """Raises `MissingCredential`, `InvalidOperatorKey`, `ConflictingCredentials`."""
        key = only(request.headers(b"x-operator-key"), "x-operator-key")
        if key is None:
            raise MissingCredential("x-operator-key is missing; `muniment operators add` makes one")
        found = await _operator_of(Context.from_request(request).database, key)
        if found is None:
            raise InvalidOperatorKey("not an operator key of this service, or one that was revoked")
        request.wallet_units = 0  # operators are not limited
        return cls(*found)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as listed: times in milliseconds since 1970, `revoked_at_ms` None while the key is valid.

    `address` names it publicly; None: it has none.
    """

    name: str
    created_at_ms: int
    revoked_at_ms: int | None
    address: Address | None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One audited write: time, operator, action, and the hash of the intent."""

    at_ms: int
    operator: str
    action: str
    intent_hash: bytes


def new_key(random_bytes: Callable[[int], bytes]) -> str:
    """A new random key."""
    return f"mno_{random_bytes(32).hex()}"


def check_name(name: str) -> str:
    """Return `name`. Raises `ValueError` unless it has 1 to 100 letters, digits, dots, underscores or hyphens."""
    if not _NAME.fullmatch(name):
        raise ValueError("an operator's name must have 1 to 100 of the characters A-Z a-z 0-9 . _ -")
    return name


async def add(tx: Transaction, name: str, key: str, now_ms: int, address: Address | None = None) -> None:
    """Register `key` for the operator `name`. A revoked name gets a new key: it is the same operator.

    `address` names the operator publicly. With None, a revoked name keeps the address that it had.

    Raises `ValueError` for a malformed name, and for one with a valid key.
    """
    added = await tx.execute(
        """INSERT INTO operators (name, key_hash, created_at_ms, address) VALUES (?, ?, ?, ?)
           ON CONFLICT (name) DO UPDATE
           SET key_hash = excluded.key_hash, created_at_ms = excluded.created_at_ms, revoked_at_ms = NULL,
             address = coalesce(excluded.address, operators.address)
           WHERE operators.revoked_at_ms IS NOT NULL""",
        (check_name(name), _hash(key), now_ms, None if address is None else address.raw),
    )
    if not added:
        raise ValueError(f"{name} already has a key; revoke it first, or choose another name")


async def revoke(tx: Transaction, name: str, now_ms: int) -> None:
    """Revoke the key of `name` from the next request on. Raises `ValueError` if it has no valid key."""
    revoked = await tx.execute(
        "UPDATE operators SET revoked_at_ms = ? WHERE name = ? AND revoked_at_ms IS NULL", (now_ms, name)
    )
    if not revoked:
        raise ValueError(f"no operator named {name} has a key")


async def fetch_all(database: Database) -> list[Operator]:
    """All operators, also revoked ones, sorted by name."""
    rows = await database.fetch("SELECT name, created_at_ms, revoked_at_ms, address FROM operators ORDER BY name")
    return [Operator(name, since, until, _address_of(raw)) for name, since, until, raw in rows]


async def revoked_among(database: Reader | Transaction, names: Sequence[str]) -> frozenset[str]:
    """The operators of `names` that have no valid key."""
    if not names:
        return frozenset()
    rows = await database.fetch(
        f"SELECT name FROM operators WHERE revoked_at_ms IS NOT NULL AND name IN ({placeholders(len(names))})", names
    )
    return frozenset(name for (name,) in rows)


async def enter(tx: Transaction, operator: str, action: str, intent_hash: bytes, now_ms: int) -> None:
    """Add to the audit log, in the transaction of the write itself."""
    await tx.execute(
        "INSERT INTO audit_entries (at_ms, operator, action, subject) VALUES (?, ?, ?, ?)",
        (now_ms, operator, action, intent_hash),
    )


async def audited(
    database: Database, *, operator: str | None, intent_hash: bytes | None, limit: int
) -> list[AuditEntry]:
    """The newest `limit` entries of the audit log, newest first; only those by `operator`, or about an intent."""
    where = Where()
    if operator is not None:
        where.add("operator = ?", operator)
    if intent_hash is not None:
        where.add("subject = ?", intent_hash)
    rows = await database.fetch_slow(
        f"SELECT at_ms, operator, action, subject FROM audit_entries{where.sql} ORDER BY seq DESC LIMIT ?",
        (*where.parameters, limit),
    )
    return [AuditEntry(*row) for row in rows]


async def moves_of(reader: Reader, intent_hash: bytes, client: str) -> list[tuple[int, str]]:
    """The times (milliseconds since 1970) and statuses of the moves of an intent, in order, without their operators.

    Each status comes once, with the time of its first move. `client` is the address of the waiting client. Raises
    `DeadlineExceeded`.
    """
    rows = await reader.fetch_slow(
        f"""SELECT min(at_ms), action FROM audit_entries WHERE subject = ? AND action LIKE '{MOVE}%'
            GROUP BY action ORDER BY min(seq)""",
        (intent_hash,),
        client=client,
    )
    return [(at_ms, action.removeprefix(MOVE)) for at_ms, action in rows]


async def is_moved_since(reader: Reader, since_ms: int) -> bool:
    """Whether an operator has moved an intent or an offer towards success since then, in milliseconds since 1970.

    Raises `DeadlineExceeded`.
    """
    # The entries of the last day are the newest: the walk ends at the first move.
    rows = await reader.fetch_slow(
        f"""SELECT 1 FROM audit_entries WHERE seq > coalesce((SELECT max(seq) FROM audit_entries WHERE at_ms < ?), 0)
            AND (action IN ('{MOVE}enqueued', '{MOVE}submitted', '{MOVE}succeeded') OR action LIKE 'move proposal to %')
            LIMIT 1""",
        (since_ms,),
    )
    return bool(rows)


async def _operator_of(database: Database, key: str) -> tuple[str, Address | None] | None:
    """The name and the address of the operator with this key."""
    if not _KEY.fullmatch(key):
        return None
    row = await database.fetch_one(
        "SELECT name, address FROM operators WHERE key_hash = ? AND revoked_at_ms IS NULL", (_hash(key),)
    )
    return (row[0], _address_of(row[1])) if row else None


def _address_of(raw: bytes | None) -> Address | None:
    return None if raw is None else Address.from_raw(raw)


def _hash(key: str) -> bytes:
    return sha256(key.encode()).digest()
