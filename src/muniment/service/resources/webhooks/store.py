"""The rows of webhooks, with their last attempts and their dead letters.

The API and the commands change a hook with `update`, which raises its `revision`. The deliverer writes with
`store_progress`, which writes nothing when the revision has changed. Then `store_cursor` writes the cursor alone,
unless a change has redirected the deliveries: a delivery that began before a replay does not undo it, and no event
comes twice after a rotation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from muniment.protocol.wire import decode_text, encode
from muniment.service.resources.feed.events import EventFilter, TypeName
from muniment.service.resources.webhooks.types import ATTEMPTS_KEPT, WebhookFilters, WebhookStatus
from muniment.service.storage.sql import placeholders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.service.storage.database import Reader, Row, Transaction

# All hooks of a registry: the deliverer keeps them in memory, and reads the feed for each.
HOOKS_MAX: Final = 1_000
# Hooks of one operator.
HOOKS_PER_OPERATOR_MAX: Final = 20
# The longest pause between two attempts: an hour, and the fifth that chance adds.
WAIT_MS_MAX: Final = 72 * 60 * 1_000
_COLUMNS: Final = (
    "id, operator, url, types, filters, batch, status, reason, secret_id, key_generation, old_secret_id, "
    "old_until_ms, epoch, seq, due_at_ms, failures, failing_since_ms, refused, revision, redirects, created_at_ms"
)
_types_decoder: Final = msgspec.json.Decoder(list[TypeName], dec_hook=decode_text)
_filters_decoder: Final = msgspec.json.Decoder(WebhookFilters, dec_hook=decode_text)


@dataclass(frozen=True, slots=True)
class Hook:
    """A row of `webhooks`; docs/develop/database.md explains the columns. Times are milliseconds since 1970."""

    id: bytes
    operator: str
    url: str
    types: str | None
    filters: str | None
    is_batched: bool
    status: WebhookStatus
    reason: str | None
    secret_id: str
    key_generation: int
    old_secret_id: str | None
    old_until_ms: int | None
    epoch: int
    seq: int
    due_at_ms: int
    failures: int
    failing_since_ms: int | None
    refused: int
    revision: int
    redirects: int
    created_at_ms: int

    @property
    def type_names(self) -> list[TypeName] | None:
        """The types of its events; None: all."""
        return None if self.types is None else _types_decoder.decode(self.types)

    @property
    def event_filters(self) -> WebhookFilters | None:
        """Its filters; None: it has none."""
        return None if self.filters is None else _filters_decoder.decode(self.filters)

    @property
    def wanted(self) -> EventFilter:
        """Its types and filters as a filter of the feed."""
        return _wanted(self.types, self.filters)


class Attempt(NamedTuple):
    """A request to a receiver. `epoch` and `seq` name its last event and are None for a test.

    `status` is None without an answer; `outcome` is one word. Times in milliseconds.
    """

    at_ms: int
    epoch: int | None
    seq: int | None
    status: int | None
    took_ms: int
    outcome: str


class DeadLetter(NamedTuple):
    """An event that the receiver refused, and the status of its last refusal."""

    epoch: int
    seq: int
    at_ms: int
    status: int


def types_text(types: list[TypeName] | None) -> str | None:
    """The column `types`."""
    return None if types is None else encode(types).decode()


def filters_text(filters: WebhookFilters | None) -> str | None:
    """The column `filters`; filters that filter nothing are None."""
    text = None if filters is None else encode(filters).decode()
    return None if text == "{}" else text


async def add(tx: Transaction, hook: Hook) -> bool:
    """Add a hook, unless its operator has `HOOKS_PER_OPERATOR_MAX` or the registry is full; whether it was added.

    The unique index on slots keeps the limit of an operator. Two processes together can exceed that of the registry a
    bit.
    """
    ((count,),) = await tx.fetch("SELECT count(*) FROM webhooks")
    if count >= HOOKS_MAX:
        return False
    taken = {slot for (slot,) in await tx.fetch("SELECT slot FROM webhooks WHERE operator = ?", (hook.operator,))}
    for slot in range(HOOKS_PER_OPERATOR_MAX):
        if slot not in taken and await _insert(tx, hook, slot):
            return True
    return False


async def _insert(tx: Transaction, hook: Hook, slot: int) -> bool:
    values = (
        slot, hook.id, hook.operator, hook.url, hook.types, hook.filters, int(hook.is_batched),
        hook.status, hook.reason, hook.secret_id, hook.key_generation, hook.old_secret_id, hook.old_until_ms,
        hook.epoch, hook.seq, hook.due_at_ms, hook.failures, hook.failing_since_ms, hook.refused,
        hook.revision, hook.redirects, hook.created_at_ms,
    )  # fmt: skip
    sql = f"INSERT INTO webhooks (slot, {_COLUMNS}) VALUES ({placeholders(len(values))}) ON CONFLICT DO NOTHING"
    return await tx.execute(sql, values) == 1


async def find(reader: Reader | Transaction, hook_id: bytes) -> Hook | None:
    """The hook with this id."""
    rows = await reader.fetch(f"SELECT {_COLUMNS} FROM webhooks WHERE id = ?", (hook_id,))
    return _hook(rows[0]) if rows else None


async def lock(tx: Transaction, hook_id: bytes) -> Hook | None:
    """The hook with this id, locked until the transaction ends."""
    rows = await tx.fetch(f"SELECT {_COLUMNS} FROM webhooks WHERE id = ? {tx.for_update}", (hook_id,))
    return _hook(rows[0]) if rows else None


async def of_operator(reader: Reader, name: str) -> list[Hook]:
    """The hooks of an operator, oldest first."""
    rows = await reader.fetch(f"SELECT {_COLUMNS} FROM webhooks WHERE operator = ? ORDER BY created_at_ms, id", (name,))
    return [_hook(row) for row in rows]


async def everything(reader: Reader) -> list[Hook]:
    """All hooks, oldest first."""
    rows = await reader.fetch(f"SELECT {_COLUMNS} FROM webhooks ORDER BY created_at_ms, id")
    return [_hook(row) for row in rows]


async def active(reader: Reader) -> list[Hook]:
    """All active hooks, by due time; at most about `HOOKS_MAX`."""
    rows = await reader.fetch(f"SELECT {_COLUMNS} FROM webhooks WHERE status = 'active' ORDER BY due_at_ms")
    return [_hook(row) for row in rows]


async def count_by_status(reader: Reader) -> dict[WebhookStatus, int]:
    """The number of hooks with each status; a status without hooks is left out."""
    return dict(await reader.fetch("SELECT status, count(*) FROM webhooks GROUP BY status"))


async def update(tx: Transaction, hook: Hook) -> bool:
    """Write all that a person can change, and raise the revision; whether the row had the revision of `hook`."""
    changed = await tx.execute(
        """UPDATE webhooks SET url = ?, types = ?, filters = ?, batch = ?, secret_id = ?, key_generation = ?,
             old_secret_id = ?, old_until_ms = ?, status = ?, reason = ?, epoch = ?, seq = ?, due_at_ms = ?,
             failures = ?, failing_since_ms = ?, refused = ?, redirects = ?, revision = revision + 1
           WHERE id = ? AND revision = ?""",
        (
            hook.url, hook.types, hook.filters, int(hook.is_batched), hook.secret_id, hook.key_generation,
            hook.old_secret_id, hook.old_until_ms, *_progress(hook), hook.redirects, hook.id, hook.revision,
        ),
    )  # fmt: skip
    return changed == 1


async def store_progress(tx: Transaction, hook: Hook) -> bool:
    """Write cursor, failures and status; False, and no write, when a person changed or removed the hook since.

    Then the deliverer calls `store_cursor`, and reads the hook again.
    """
    changed = await tx.execute(
        """UPDATE webhooks SET status = ?, reason = ?, epoch = ?, seq = ?, due_at_ms = ?, failures = ?,
             failing_since_ms = ?, refused = ?
           WHERE id = ? AND revision = ?""",
        (*_progress(hook), hook.id, hook.revision),
    )
    return changed == 1


async def store_cursor(tx: Transaction, hook: Hook) -> bool:
    """Write the cursor of a hook that a person changed since; False when it was redirected or removed."""
    changed = await tx.execute(
        "UPDATE webhooks SET epoch = ?, seq = ? WHERE id = ? AND redirects = ?",
        (hook.epoch, hook.seq, hook.id, hook.redirects),
    )
    return changed == 1


def redirected(hook: Hook) -> Hook:
    """The hook after a change of its next events or their receiver: earlier deliveries store nothing any more."""
    return replace(hook, redirects=hook.redirects + 1)


async def remove(tx: Transaction, hook_id: bytes) -> bool:
    """Remove a hook with its attempts and dead letters; whether there was one."""
    if await lock(tx, hook_id) is None:
        return False
    await tx.execute("DELETE FROM webhook_attempts WHERE hook = ?", (hook_id,))
    await remove_dead_letters(tx, hook_id)
    return await tx.execute("DELETE FROM webhooks WHERE id = ?", (hook_id,)) == 1


async def add_attempts(tx: Transaction, hook_id: bytes, attempts: Sequence[Attempt]) -> None:
    """Add attempts; the last `ATTEMPTS_KEPT` of the hook stay.

    Call it after `lock`, `update` or `store_progress` in the same transaction: the lock on the row orders the numbers.
    """
    ((last,),) = await tx.fetch("SELECT coalesce(max(n), 0) FROM webhook_attempts WHERE hook = ?", (hook_id,))
    for n, attempt in enumerate(attempts[-ATTEMPTS_KEPT:], last + 1):
        await tx.execute(
            """INSERT INTO webhook_attempts (hook, n, at_ms, epoch, seq, status, took_ms, outcome)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
            (hook_id, n, *attempt),
        )
    newest = last + min(len(attempts), ATTEMPTS_KEPT)
    await tx.execute("DELETE FROM webhook_attempts WHERE hook = ? AND n <= ?", (hook_id, newest - ATTEMPTS_KEPT))


async def attempts(reader: Reader, hook_id: bytes) -> list[Attempt]:
    """The last attempts, newest first."""
    rows = await reader.fetch(
        """SELECT at_ms, epoch, seq, status, took_ms, outcome FROM webhook_attempts
           WHERE hook = ? ORDER BY n DESC LIMIT ?""",
        (hook_id, ATTEMPTS_KEPT),
    )
    return [Attempt(*row) for row in rows]


async def add_dead_letter(tx: Transaction, hook_id: bytes, letter: DeadLetter) -> int:
    """Add a dead letter; returns the number of dead letters. Call it as `add_attempts`."""
    await tx.execute(
        """INSERT INTO webhook_dead_letters (hook, epoch, seq, at_ms, status) VALUES (?, ?, ?, ?, ?)
           ON CONFLICT DO NOTHING""",
        (hook_id, *letter),
    )
    ((count,),) = await tx.fetch("SELECT count(*) FROM webhook_dead_letters WHERE hook = ?", (hook_id,))
    return count


async def dead_letters(reader: Reader | Transaction, hook_id: bytes) -> list[DeadLetter]:
    """The dead letters of a hook in the order of their events."""
    rows = await reader.fetch(
        "SELECT epoch, seq, at_ms, status FROM webhook_dead_letters WHERE hook = ? ORDER BY at_ms, seq", (hook_id,)
    )
    return [DeadLetter(*row) for row in rows]


async def remove_dead_letters(tx: Transaction, hook_id: bytes) -> None:
    """Remove the dead letters of a hook."""
    await tx.execute("DELETE FROM webhook_dead_letters WHERE hook = ?", (hook_id,))


def _progress(hook: Hook) -> tuple[object, ...]:
    return (
        hook.status, hook.reason, hook.epoch, hook.seq, hook.due_at_ms,
        hook.failures, hook.failing_since_ms, hook.refused,
    )  # fmt: skip


def _hook(row: Row) -> Hook:
    values: tuple[Any, ...] = (*row[:5], bool(row[5]), *row[6:])
    return Hook(*values)


@lru_cache(maxsize=HOOKS_MAX)
def _wanted(types: str | None, filters: str | None) -> EventFilter:
    names = None if types is None else _types_decoder.decode(types)
    chosen = WebhookFilters() if filters is None else _filters_decoder.decode(filters)
    return chosen.of_types(names)
