"""The rows of webhooks.

The API and the commands change a hook with `update`, which raises its `turn`. The deliverer writes with
`store_progress`, which writes nothing when the turn has changed. Then `store_cursor` writes the cursor alone, unless a
change has redirected the deliveries: a replay is not undone by a delivery that began before it, and after a rotation no
event comes twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, LiteralString

import msgspec

from muniment.feed.filters import EventFilter, TypeName
from muniment.storage.sql import SWEPT_PER_BATCH, placeholders
from muniment.webhooks import history
from muniment.webhooks.types import DELIVERED, WebhookFilters, WebhookStatus
from muniment.wire import decode_text, encode

if TYPE_CHECKING:
    from muniment.storage.database import Reader, Row, Transaction

# All hooks of a registry: the deliverer has them in memory, and reads the feed for each.
HOOKS_MAX: Final = 1_000
# Those of wallets, which are free to make: operators always find a place.
WALLETS_HOOKS_MAX: Final = 800
# The longest pause between two attempts: an hour, and the fifth that chance adds.
WAIT_MS_MAX: Final = 72 * 60 * 1_000
# A row that is due later was dated by a clock that was ahead, and is due now. Synchronised clocks differ by less.
_DUE_MS_MAX: Final = WAIT_MS_MAX + 5 * 60 * 1_000
# Filters that are kept decoded: of every hook.
_FILTERS_KEPT: Final = HOOKS_MAX
_COLUMNS: Final = (
    "id, owner, operator, url, types, filters, batch, status, reason, secret_id, generation, old_secret_id, "
    "old_until_ms, epoch, seq, due_at_ms, failures, failing_since_ms, refused, refused_since_ms, turn, redirects, "
    "created_at_ms"
)
_types_decoder: Final = msgspec.json.Decoder(list[TypeName], dec_hook=decode_text)
_filters_decoder: Final = msgspec.json.Decoder(WebhookFilters, dec_hook=decode_text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Who made a hook: a wallet, by its 20 bytes, or else an operator, by name."""

    owner: bytes | None = None
    operator: str | None = None


@dataclass(frozen=True, slots=True)
class Hook:
    """A row of `webhooks`; migration 0011 says what the columns hold. Times are milliseconds since 1970."""

    id: bytes
    owner: bytes | None
    operator: str | None
    url: str
    types: str | None
    filters: str | None
    is_batched: bool
    status: WebhookStatus
    reason: str | None
    secret_id: str
    generation: int
    old_secret_id: str | None
    old_until_ms: int | None
    epoch: int
    seq: int
    due_at_ms: int
    failures: int
    failing_since_ms: int | None
    refused: int
    refused_since_ms: int | None
    turn: int
    redirects: int
    created_at_ms: int

    @property
    def maker(self) -> Maker:
        """Who made it."""
        return Maker(owner=self.owner, operator=self.operator)

    @property
    def type_names(self) -> list[TypeName] | None:
        """The types of events that it gets; None: all."""
        return None if self.types is None else _types_decoder.decode(self.types)

    @property
    def event_filters(self) -> WebhookFilters | None:
        """Its filters; None: it has none."""
        return None if self.filters is None else _filters_decoder.decode(self.filters)

    @property
    def wanted(self) -> EventFilter:
        """The filter of the feed that its types and filters make."""
        return _wanted(self.types, self.filters)


def types_text(types: list[TypeName] | None) -> str | None:
    """The column `types`."""
    return None if types is None else encode(types).decode()


def filters_text(filters: WebhookFilters | None) -> str | None:
    """The column `filters`; filters that filter nothing are None."""
    text = None if filters is None else encode(filters).decode()
    return None if text == "{}" else text


async def add(tx: Transaction, hook: Hook, hooks_max: int) -> bool:
    """Add a hook, unless its maker has `hooks_max` already or the registry all that it may; whether it was added.

    A maker never gets more, since each hook has a place of its own and a unique index keeps it. Two processes together
    can put a few more into the registry.
    """
    ((count, of_wallets),) = await tx.fetch("SELECT count(*), count(owner) FROM webhooks")
    if count >= HOOKS_MAX or (hook.owner is not None and of_wallets >= WALLETS_HOOKS_MAX):
        return False
    condition, value = _made_by(hook.maker)
    taken = {place for (place,) in await tx.fetch(f"SELECT place FROM webhooks WHERE {condition}", (value,))}
    for place in range(hooks_max):
        if place not in taken and await _insert(tx, hook, place):
            return True
    return False


async def _insert(tx: Transaction, hook: Hook, place: int) -> bool:
    inserted = await tx.execute(
        f"""INSERT INTO webhooks (place, {_COLUMNS})
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT DO NOTHING""",
        (
            place, hook.id, hook.owner, hook.operator, hook.url, hook.types, hook.filters, int(hook.is_batched),
            hook.status, hook.reason, hook.secret_id, hook.generation, hook.old_secret_id, hook.old_until_ms,
            hook.epoch, hook.seq, hook.due_at_ms, hook.failures, hook.failing_since_ms, hook.refused,
            hook.refused_since_ms, hook.turn, hook.redirects, hook.created_at_ms,
        ),
    )  # fmt: skip
    return inserted == 1


async def find(reader: Reader | Transaction, hook_id: bytes) -> Hook | None:
    """The hook with this id."""
    rows = await reader.fetch(f"SELECT {_COLUMNS} FROM webhooks WHERE id = ?", (hook_id,))
    return _hook(rows[0]) if rows else None


async def lock(tx: Transaction, hook_id: bytes) -> Hook | None:
    """The hook with this id, which no other transaction changes until this one ends."""
    rows = await tx.fetch(f"SELECT {_COLUMNS} FROM webhooks WHERE id = ? {tx.for_update}", (hook_id,))
    return _hook(rows[0]) if rows else None


async def made_by(reader: Reader, maker: Maker) -> list[Hook]:
    """The hooks of one maker, the oldest first."""
    condition, value = _made_by(maker)
    rows = await reader.fetch(
        f"SELECT {_COLUMNS} FROM webhooks WHERE {condition} ORDER BY created_at_ms, id",
        (value,),
    )
    return [_hook(row) for row in rows]


async def everything(reader: Reader) -> list[Hook]:
    """All hooks, the oldest first."""
    rows = await reader.fetch(f"SELECT {_COLUMNS} FROM webhooks ORDER BY created_at_ms, id")
    return [_hook(row) for row in rows]


async def active(reader: Reader) -> list[Hook]:
    """All active hooks, the one that is due first in front; at most about `HOOKS_MAX`."""
    rows = await reader.fetch(f"SELECT {_COLUMNS} FROM webhooks WHERE status = 'active' ORDER BY due_at_ms")
    return [_hook(row) for row in rows]


async def due(reader: Reader, now_ms: int, limit: int) -> list[Hook]:
    """At most `limit` active hooks whose next delivery may begin, the longest wait first."""
    rows = await reader.fetch(
        f"""SELECT {_COLUMNS} FROM webhooks WHERE status = 'active' AND (due_at_ms <= ? OR due_at_ms > ?)
            ORDER BY due_at_ms LIMIT ?""",
        (now_ms, now_ms + _DUE_MS_MAX, limit),
    )
    return [_hook(row) for row in rows]


async def count_by_status(reader: Reader) -> dict[WebhookStatus, int]:
    """How many hooks have each status; one that no hook has is left out."""
    return dict(await reader.fetch("SELECT status, count(*) FROM webhooks GROUP BY status"))


async def statuses(reader: Reader, ids: list[bytes]) -> dict[bytes, WebhookStatus]:
    """The statuses of the hooks with these ids; one that is gone is left out."""
    if not ids:
        return {}
    return dict(await reader.fetch(f"SELECT id, status FROM webhooks WHERE id IN ({placeholders(len(ids))})", ids))


async def remove_unconfirmed(tx: Transaction, before_ms: int) -> int:
    """Remove some hooks of wallets that were added before `before_ms`, whose receivers have never agreed; how many."""
    rows = await tx.fetch(
        """SELECT id FROM webhooks WHERE status = 'pending' AND owner IS NOT NULL AND created_at_ms < ?
             AND NOT EXISTS (SELECT 1 FROM webhook_attempts WHERE hook = webhooks.id AND outcome = ?)
           ORDER BY id LIMIT ?""",
        (before_ms, DELIVERED, SWEPT_PER_BATCH),
    )
    for (hook_id,) in rows:
        await remove(tx, hook_id)
    return len(rows)


async def update(tx: Transaction, hook: Hook) -> bool:
    """Write all that a person can change, and raise the turn; whether the hook was there under the turn of `hook`."""
    changed = await tx.execute(
        """UPDATE webhooks SET url = ?, types = ?, filters = ?, batch = ?, secret_id = ?, generation = ?,
             old_secret_id = ?, old_until_ms = ?, status = ?, reason = ?, epoch = ?, seq = ?, due_at_ms = ?,
             failures = ?, failing_since_ms = ?, refused = ?, refused_since_ms = ?, redirects = ?, turn = turn + 1
           WHERE id = ? AND turn = ?""",
        (
            hook.url, hook.types, hook.filters, int(hook.is_batched), hook.secret_id, hook.generation,
            hook.old_secret_id, hook.old_until_ms, *_progress(hook), hook.redirects, hook.id, hook.turn,
        ),
    )  # fmt: skip
    return changed == 1


async def store_progress(tx: Transaction, hook: Hook) -> bool:
    """Write what a delivery changed: cursor, failures, status; False when a person changed or removed the hook since.

    Then nothing is written. The deliverer calls `store_cursor`, and reads the hook again.
    """
    changed = await tx.execute(
        """UPDATE webhooks SET status = ?, reason = ?, epoch = ?, seq = ?, due_at_ms = ?, failures = ?,
             failing_since_ms = ?, refused = ?, refused_since_ms = ?
           WHERE id = ? AND turn = ?""",
        (*_progress(hook), hook.id, hook.turn),
    )
    return changed == 1


async def store_cursor(tx: Transaction, hook: Hook) -> bool:
    """Write the cursor of a hook that a person changed since; False when its deliveries were redirected, or it is gone.

    The cursor in the row is then still the last one that the deliverer has stored.
    """
    changed = await tx.execute(
        "UPDATE webhooks SET epoch = ?, seq = ? WHERE id = ? AND redirects = ?",
        (hook.epoch, hook.seq, hook.id, hook.redirects),
    )
    return changed == 1


def redirected(hook: Hook) -> Hook:
    """The hook after a change that decides which events come next, or where they go.

    What deliveries before it have not stored yet does not count: their events may have been others, or gone elsewhere.
    """
    return replace(hook, redirects=hook.redirects + 1)


async def remove(tx: Transaction, hook_id: bytes) -> bool:
    """Remove a hook with its attempts and dead letters; whether there was one."""
    if await lock(tx, hook_id) is None:
        return False
    await history.forget(tx, hook_id)
    return await tx.execute("DELETE FROM webhooks WHERE id = ?", (hook_id,)) == 1


def _made_by(maker: Maker) -> tuple[LiteralString, object]:
    return ("operator = ?", maker.operator) if maker.owner is None else ("owner = ?", maker.owner)


def _progress(hook: Hook) -> tuple[object, ...]:
    return (
        hook.status, hook.reason, hook.epoch, hook.seq, hook.due_at_ms,
        hook.failures, hook.failing_since_ms, hook.refused, hook.refused_since_ms,
    )  # fmt: skip


def _hook(row: Row) -> Hook:
    values: tuple[Any, ...] = (row[0], row[1], *row[2:6], bool(row[6]), *row[7:])
    return Hook(*values)


@lru_cache(maxsize=_FILTERS_KEPT)
def _wanted(types: str | None, filters: str | None) -> EventFilter:
    names = None if types is None else _types_decoder.decode(types)
    chosen = WebhookFilters() if filters is None else _filters_decoder.decode(filters)
    return chosen.with_types(names).chosen()
