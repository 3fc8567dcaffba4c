"""Bodies of intents, proposals and logs as operators send them, valid unless a test changes a member."""

from __future__ import annotations

from typing import Any

from builders import Wallet

USERS = tuple(Wallet(number).address for number in (21, 22, 23))
SETTLERS = tuple(Wallet(number).address for number in (31, 32))
CONFIG_SIGS = tuple("0x" + f"{number:02x}" * 65 for number in (41, 42, 43))


def intent_body(nonce: int, **members: Any) -> dict[str, Any]:
    """A body of PUT /intents/{hash}; each nonce makes another intent. Its deadline is in the year 2027."""
    return {
        "op": 1, "user": USERS[0], "settler": SETTLERS[0], "nonce": f"0x{nonce:064x}", "deadline": "1800000000",
        "data": "0x", "maxFees": [], "events": [], "configSig": CONFIG_SIGS[0], "minValidations": 1, **members,
    }  # fmt: skip


def operations_body(nonce: int, **members: Any) -> dict[str, Any]:
    """The same in generation 2, with one operation unless `members` has others."""
    return {
        "feePayer": USERS[0], "settler": SETTLERS[0], "nonce": f"0x{nonce:064x}", "deadline": "1800000000",
        "maxFees": [], "triggerSig": CONFIG_SIGS[0], "minValidations": 1, "operations": [operation_body()], **members,
    }  # fmt: skip


def operation_body(**members: Any) -> dict[str, Any]:
    """An operation of an intent of generation 2."""
    return {"opType": 1, "user": USERS[0], "data": "0x", "events": [], **members}


def proposal_body(number: int, **members: Any) -> dict[str, Any]:
    """A proposal to an intent; each number makes another."""
    return {"solver": USERS[2], "data": f"0x{number:08x}", "deadline": "1800000000", "fees": [str(number)], **members}


def operations_proposal_body(number: int, **members: Any) -> dict[str, Any]:
    """A proposal to an intent of generation 2 with two operations."""
    datas = [f"0x{number:08x}", "0x"]
    return {"solver": USERS[2], "datas": datas, "deadline": "1800000000", "fees": [str(number)], **members}


def log_body(number: int, **members: Any) -> dict[str, Any]:
    """A log of an intent; each number makes another."""
    return {"level": "info", "data": f"line {number}", "createdAt": "2026-11-20T19:48:00.123Z", **members}
