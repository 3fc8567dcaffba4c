"""Intents as JSON lines: one intent a line with all proposals and logs, in the order of commits.

The status is the recorded one, so that a registry that imports the file records the same; in both of them `expired`
follows from the deadline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from muniment.protocol.intents.lifecycle import Moment
from muniment.protocol.intents.types import LOGS_MAX
from muniment.service.resources.intents import store
from muniment.service.resources.intents.store import HEAD_COLUMNS, Head
from muniment.service.storage.sql import number_text

if TYPE_CHECKING:
    from muniment.service.storage.database import Database

# Heads in memory; each has at most 256 KiB.
_HEADS_PER_READ: Final = number_text(64)


@dataclass(slots=True)
class Exported:
    """The size of an export so far."""

    intents: int = 0
    proposals: int = 0
    logs: int = 0
    bytes: int = 0


async def lines(database: Database, exported: Exported) -> AsyncIterator[bytes]:
    """The intents that are recorded when this begins, piece by piece; counted in `exported`."""
    async for head in _heads(database):
        async for piece in store.pieces(database, head):
            exported.bytes += len(piece)
            yield piece
        exported.bytes += 1
        yield b"\n"
        exported.intents += 1
        exported.proposals += head.proposal_count
        exported.logs += head.log_count


_NEXT_HEADS: Final = (
    f"SELECT {HEAD_COLUMNS}, COALESCE(i.chain_status, i.status) FROM intents i WHERE i.seq > ? AND i.seq <= ? "
    f"ORDER BY i.seq LIMIT {_HEADS_PER_READ}"
)


async def _heads(database: Database) -> AsyncIterator[Head]:
    newest = await database.fetch_one("SELECT COALESCE(MAX(seq), 0) FROM intents")
    last = newest[0] if newest else 0
    done = 0
    while rows := await database.fetch(_NEXT_HEADS, (done, last)):
        for *columns, recorded in rows:
            # The time does not matter here: the recorded status replaces the one as read.
            head = Head.of(tuple(columns), Moment(0, 0))
            # Only the watcher's own lines are beyond the limit, and another registry would refuse them.
            yield replace(head, status=recorded, log_count=min(head.log_count, LOGS_MAX))
        done = rows[-1][1]
