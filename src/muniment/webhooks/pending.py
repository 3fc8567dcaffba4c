"""Webhooks of wallets whose receivers have answered no challenge: few for each address, and none for long.

Wallets are free to make. Without these bounds one stranger would take the places of all.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from muniment.errors import TooManyWebhooks
from muniment.webhooks import store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from muniment.context import Context
    from muniment.storage.database import Transaction

PER_CLIENT_MAX: Final = 10
# How long a hook of a wallet may wait for the first answer to a challenge.
PENDING_MS_MAX: Final = 86_400_000
# Clients whose hooks are known in this process. The addresses of clients are not stored.
_CLIENTS_KNOWN: Final = 4_096

_made: Final[OrderedDict[str, list[bytes]]] = OrderedDict()
_adding: Final[Counter[str]] = Counter()


@asynccontextmanager
async def counted(context: Context, client: str | None, hook_id: bytes) -> AsyncGenerator[None]:
    """Add the hook of a client inside. Raises `TooManyWebhooks` when `PER_CLIENT_MAX` from its address are pending.

    None: an operator, or a client that cannot be told from others.
    """
    if client is None:
        yield
        return
    _adding[client] += 1
    try:
        pending = await store.pending_among(context.database, _made.get(client, []))
        if len(pending) + _adding[client] > PER_CLIENT_MAX:
            raise TooManyWebhooks(
                f"{PER_CLIENT_MAX} webhooks from this address wait for the answer to a challenge: "
                "POST /webhooks/{id}/test, or remove one first"
            )
        yield
        _made[client] = [*pending, hook_id]
        _made.move_to_end(client)
        if len(_made) > _CLIENTS_KNOWN:
            _made.popitem(last=False)
    finally:
        _adding[client] -= 1
        if not _adding[client]:
            del _adding[client]


async def remove_unconfirmed(tx: Transaction, context: Context) -> int:
    """Remove hooks of wallets that were never confirmed in `PENDING_MS_MAX`, some at a time; how many."""
    if context.clock.doubt() is not None:
        return 0
    return await store.remove_unconfirmed(tx, context.now_ms() - PENDING_MS_MAX)
