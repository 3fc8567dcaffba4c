"""What tests of intents share: intents as operators would send them, recorded without a request."""

from __future__ import annotations

from typing import Any

from builders import Wallet
from muniment.context import Context
from muniment.forms import decode_record
from muniment.intents import recording, rules
from muniment.intents.lifecycle import Moment
from muniment.intents.types import AnyNewIntent
from muniment.storage.database import Database, Transaction

USERS = tuple(Wallet(number).address for number in (21, 22, 23))
SETTLERS = tuple(Wallet(number).address for number in (31, 32))
CONFIG_SIGS = tuple("0x" + f"{number:02x}" * 65 for number in (41, 42, 43))
HOUR = 3_600


def intent_body(nonce: int, **members: Any) -> dict[str, Any]:
    """A body of PUT /intents/{hash}; every nonce makes another intent. Its deadline is in the year 2027."""
    return {
        "op": 1, "user": USERS[0], "settler": SETTLERS[0], "nonce": f"0x{nonce:064x}", "deadline": "1800000000",
        "data": "0x", "maxFees": [], "events": [], "configSig": CONFIG_SIGS[0], "minValidations": 1, **members,
    }  # fmt: skip


def operations_body(nonce: int, **members: Any) -> dict[str, Any]:
    """The same of the second form, with one operation unless `members` has others."""
    return {
        "feePayer": USERS[0], "settler": SETTLERS[0], "nonce": f"0x{nonce:064x}", "deadline": "1800000000",
        "maxFees": [], "triggerSig": CONFIG_SIGS[0], "minValidations": 1,
        "operations": [operation_body()], **members,
    }  # fmt: skip


def operation_body(**members: Any) -> dict[str, Any]:
    """An operation of an intent of the second form."""
    return {"opType": 1, "user": USERS[0], "data": "0x", "events": [], **members}


def proposal_body(number: int, **members: Any) -> dict[str, Any]:
    """A proposal to an intent; every number makes another."""
    return {"solver": USERS[2], "data": f"0x{number:08x}", "deadline": "1800000000", "fees": [str(number)], **members}


def log_body(number: int, **members: Any) -> dict[str, Any]:
    """A log of an intent; every number makes another."""
    return {"level": "info", "data": f"line {number}", "createdAt": "2026-11-20T19:48:00.123Z", **members}


async def record(context: Context, *bodies: dict[str, Any]) -> list[str]:
    """Record intents in this order, now; their hashes."""
    return await record_at(context, *((context.now_ms(), body) for body in bodies))


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
