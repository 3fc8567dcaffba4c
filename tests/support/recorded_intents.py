"""Intents that are recorded in a data directory, without a service."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from intent_bodies import intent_body, proposal_body
from muniment.operate import databases
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.lifecycle import Moment
from muniment.protocol.intents.rules import check_intent
from muniment.protocol.intents.types import AnyNewIntent
from muniment.service.resources.intents.recording import record
from muniment.service.running.settings import Settings
from muniment.service.storage.database import Database

FAR_DEADLINE = "4000000000"
# The operator who recorded them.
AUTHOR = "relayer-1"


def intent(nonce: int, **members: Any) -> dict[str, Any]:
    """An intent whose deadline is in the year 2096; each nonce makes another."""
    return intent_body(nonce, **{"deadline": FAR_DEADLINE, **members})


def proposal(number: int, **members: Any) -> dict[str, Any]:
    """A proposal with the same deadline."""
    return proposal_body(number, **{"deadline": FAR_DEADLINE, **members})


def record_intents(data: Path, *bodies: dict[str, Any]) -> None:
    """Record intents, in their order. Raises the `Refusal` of the first that is refused."""
    settings, now_ms = replace(Settings(), data_dir=data), time.time_ns() // 1_000_000
    moment = Moment(now_ms, settings.settlement_grace_s)

    async def write(database: Database) -> None:
        for body in bodies:
            new: AnyNewIntent = decode_record(body, AnyNewIntent)
            checked = check_intent(new, None, protocol=settings.protocol_name, chains={}, now_ms=now_ms)
            await database.write(lambda tx, checked=checked: record(tx, checked, AUTHOR, moment))

    databases.run(settings, write)
