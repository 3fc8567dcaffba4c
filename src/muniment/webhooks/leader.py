"""The lease of the process that delivers, and the transaction that stores what it did."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from muniment.errors import Refusal
from muniment.leases import Lease
from muniment.webhooks import history, store
from muniment.webhooks.schedule import REFUSED_OFTEN
from muniment.webhooks.types import DEAD_LETTERS_MAX

if TYPE_CHECKING:
    from muniment.context import Context
    from muniment.storage.database import Transaction
    from muniment.webhooks.history import Attempt, DeadLetter
    from muniment.webhooks.store import Hook

LEASE: Final = Lease("webhooks", 15_000)
# No request begins with a lease that is older: to connect takes up to five seconds more, and then another process may
# have taken it.
_SENDS_MS_MAX: Final = 9_000


class Progress(NamedTuple):
    """What deliveries have changed about a hook since it was stored last."""

    hook: Hook
    attempts: list[Attempt]
    letters: list[DeadLetter]


@dataclass(slots=True)
class Leader:
    """This process as the one that delivers, or one that wants to be."""

    context: Context
    holder: str
    _renewed_at_ms: int = field(default=-(10**15), init=False)

    @property
    def age_ms(self) -> int:
        """Milliseconds since the lease was renewed, by a clock that also runs while this process is stopped."""
        return self.context.clock.monotonic_ms() - self._renewed_at_ms

    @property
    def may_send(self) -> bool:
        """Whether no other process can have taken the lease."""
        return self.age_ms < _SENDS_MS_MAX

    async def take(self) -> bool:
        """Whether this process holds the lease now. Raises `Unavailable`."""
        context, began_ms = self.context, self.context.clock.monotonic_ms()
        if not await LEASE.is_free(context.database, context.now_ms()):
            return False
        if not await context.database.write(lambda tx: LEASE.take(tx, self.holder, context.now_ms())):
            return False
        self._renewed_at_ms = began_ms
        return True

    async def store(self, changes: list[Progress]) -> list[Hook | None]:
        """Renew the lease and store `changes`; the hooks as stored, None where a person changed one meanwhile.

        Of a hook that a person changed, only the cursor and the history are stored, and nothing if it was redirected.
        Raises `LeaseLostError`: then nothing is stored.
        """
        began_ms = self.context.clock.monotonic_ms()
        # Hooks are locked in the order of their ids, as by all who write.
        order = sorted(range(len(changes)), key=lambda index: changes[index].hook.id)

        async def write(tx: Transaction) -> list[Hook | None]:
            await LEASE.renew(tx, self.holder, self.context.now_ms())
            stored: list[Hook | None] = [None] * len(changes)
            for index in order:
                stored[index] = await _store(tx, changes[index])
            return stored

        stored = await self.context.database.write(write, urgent=True)
        self._renewed_at_ms = began_ms
        return stored

    async def release(self) -> None:
        """Give up the lease."""
        self._renewed_at_ms = -(10**15)
        with suppress(Refusal):  # it expires by itself
            await self.context.database.write(lambda tx: LEASE.release(tx, self.holder))


async def _store(tx: Transaction, change: Progress) -> Hook | None:
    hook = change.hook
    is_unchanged = await store.store_progress(tx, hook)
    if not is_unchanged and not await store.store_cursor(tx, hook):
        return None
    await history.note_attempts(tx, hook.id, change.attempts)
    count = 0
    for letter in change.letters:
        count = await history.set_aside(tx, hook.id, letter)
    if not is_unchanged:
        return None
    if count >= DEAD_LETTERS_MAX and hook.status == "active":
        hook = replace(hook, status="disabled", reason=REFUSED_OFTEN)
        await store.store_progress(tx, hook)
    return hook
