"""Intents for tests: as operators send them, recorded without a request."""

from __future__ import annotations

from typing import Any

from intent_bodies import (
    CONFIG_SIGS,
    SETTLERS,
    USERS,
    intent_body,
    log_body,
    operation_body,
    operations_body,
    proposal_body,
)
from muniment.protocol.forms import decode_record
from muniment.protocol.intents import rules
from muniment.protocol.intents.lifecycle import Moment
from muniment.protocol.intents.types import AnyNewIntent
from muniment.service.context import Context
from muniment.service.resources.intents import recording
from muniment.service.storage.database import Database, Transaction

HOUR = 3_600
__all__ = [
    "CONFIG_SIGS", "HOUR", "SETTLERS", "USERS", "intent_body", "log_body", "operation_body", "operations_body",
    "proposal_body", "record", "record_at",
]  # fmt: skip


async def record(context: Context, *bodies: dict[str, Any]) -> list[str]:
    """Record intents in this order, now; their hashes."""
    return await record_at(context, *((context.clock.now_ms(), body) for body in bodies))


async def record_at(
    context: Context, *timed: tuple[int, dict[str, Any]], database: Database | None = None
) -> list[str]:
    """Record intents in this order, each at its time in milliseconds since 1970, in one transaction; their hashes."""
    protocol, grace_s = context.settings.protocol_name, context.settings.settlement_grace_s

    async def write(tx: Transaction) -> list[str]:
        hashes: list[str] = []
        for now_ms, body in timed:
            new: AnyNewIntent = decode_record(body, AnyNewIntent)
            checked = rules.check_intent(new, None, protocol=protocol, chains=context.chains, now_ms=now_ms)
            await recording.record(tx, checked, "tests", Moment(now_ms, grace_s))
            hashes.append("0x" + checked.hash.hex())
        return hashes

    return await (database or context.database).write(write)
