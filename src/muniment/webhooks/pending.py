"""Webhooks that wallets add from one address: few in all, and fewer that wait for a first answer, for a day at most.

Wallets are free to make. Without these bounds one stranger would take the places of all.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from muniment.errors import TooManyWebhooks
from muniment.limits.sites import has_most
from muniment.webhooks import store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from muniment.context import Context
    from muniment.storage.database import Transaction

# Webhooks of one address that are pending.
PENDING_MAX: Final = 10
# All of them: a twentieth of those that wallets have. An answer to a challenge is as free to make as a wallet.
ADDED_MAX: Final = 40
# How long a hook of a wallet may wait for the first answer to a challenge.
PENDING_MS_MAX: Final = 86_400_000
# Clients and sites whose hooks are known in this process. The addresses of clients are not stored.
_NAMES_KNOWN: Final = 4_096

# By the name of a client or a site: the hooks that were added from there. A hook is in it before it is stored.
_added: Final[OrderedDict[str, set[bytes]]] = OrderedDict()
_adding: Final[set[bytes]] = set()


@asynccontextmanager
async def counted(context: Context, client: tuple[str, ...], hook_id: bytes) -> AsyncGenerator[None]:
    """Add the hook of a client inside. Raises `TooManyWebhooks` when its address, or its site, has too many.

    `client` are its names; none: an operator, or a client that is not bounded.
    """
    _adding.add(hook_id)
    for name in client:
        _added.setdefault(name, set()).add(hook_id)
        _added.move_to_end(name)
    while len(_added) > _NAMES_KNOWN:
        _added.popitem(last=False)
    try:
        await _check(context, client, hook_id)
        yield
    except TooManyWebhooks:
        for name in client:
            _of(name).discard(hook_id)
        raise
    finally:
        _adding.remove(hook_id)


async def _check(context: Context, client: tuple[str, ...], added: bytes) -> None:
    """Forget the hooks that are gone, and count the others beside the one that is being added."""
    known = set[bytes]().union(*map(_of, client)) - _adding
    found = await store.statuses(context.database, sorted(known))
    for name in client:
        _of(name).difference_update(known - found.keys())

    def all_of(name: str) -> int:
        return len(_of(name) - {added})

    def pending_of(name: str) -> int:
        return sum(found.get(each, "pending") == "pending" for each in _of(name) - {added})

    if has_most(client, pending_of, PENDING_MAX):
        raise TooManyWebhooks(
            f"{PENDING_MAX} webhooks from this address wait for the answer to a challenge: "
            "POST /webhooks/{id}/test, or remove one first"
        )
    if has_most(client, all_of, ADDED_MAX):
        raise TooManyWebhooks(f"wallets have added {ADDED_MAX} webhooks from this address: remove one first")


def _of(name: str) -> set[bytes]:
    """The hooks that were added under this name of a client; none if it is known no more."""
    return _added.get(name, set())


async def remove_unconfirmed(tx: Transaction, context: Context) -> int:
    """Remove hooks of wallets that were never confirmed in `PENDING_MS_MAX`, some at a time; how many."""
    if context.clock.doubt() is not None:
        return 0
    return await store.remove_unconfirmed(tx, context.now_ms() - PENDING_MS_MAX)
