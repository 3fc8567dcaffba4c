"""Samples of intents for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

_HASH: Final = "0x" + "ab" * 32
_ADDRESS: Final = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
HASHED: Final[dict[str, Any]] = {
    "op": 1, "user": _ADDRESS, "settler": "0x609d831C0068844e11eF85a273c7F356212Fd6D1", "nonce": "0x" + "01" * 32,
    "deadline": "1795290480", "data": "0x", "maxFees": [{"token": _ADDRESS, "amount": "1000000"}],
    "events": [{"topic": "0x" + "02" * 32, "data": "0xdeadbeef"}], "configSig": "0x" + "1" * 128 + "1b",
    "minValidations": 1,
}  # fmt: skip
PROPOSED: Final[dict[str, Any]] = {
    "solver": _ADDRESS, "data": "0x", "deadline": "1795290480", "fees": ["1000"],
}  # fmt: skip
PROPOSAL: Final[dict[str, Any]] = {
    "hash": _HASH, **PROPOSED, "feeUsd": "0", "status": "received", "description": "", "signatures": [],
    "verified": None, "signers": [],
}  # fmt: skip
LOG: Final[dict[str, Any]] = {
    "level": "info", "data": "solver answered in 120 ms", "createdAt": "2026-11-20T19:48:00.123Z",
}  # fmt: skip
INTENT: Final[dict[str, Any]] = {
    **HASHED, "hash": _HASH, "executionHash": "0x", "createdAt": "2026-11-20T19:48:00.123Z", "status": "created",
    "generation": 1, "proposals": [], "logs": [],
}  # fmt: skip
OPERATION: Final[dict[str, Any]] = {
    "opType": 1, "user": _ADDRESS, "data": "0x", "events": HASHED["events"],
}  # fmt: skip
HASHED_OPERATIONS: Final[dict[str, Any]] = {
    "feePayer": _ADDRESS, "settler": "0x8be430d29a2c5692f9345a28506b849C6a99eDaA", "nonce": HASHED["nonce"],
    "deadline": HASHED["deadline"], "maxFees": HASHED["maxFees"], "triggerSig": HASHED["configSig"],
    "minValidations": 1, "operations": [OPERATION],
}  # fmt: skip
PROPOSED_OPERATIONS: Final[dict[str, Any]] = {
    "solver": _ADDRESS, "datas": ["0x"], "deadline": "1795290480", "fees": ["1000"],
}  # fmt: skip
OPERATIONS_PROPOSAL: Final[dict[str, Any]] = {
    "hash": _HASH, **PROPOSED_OPERATIONS, "feeUsd": "0", "status": "received", "description": "", "signatures": [],
    "verified": None, "signers": [],
}  # fmt: skip
OPERATIONS_INTENT: Final[dict[str, Any]] = {
    **HASHED_OPERATIONS, "hash": _HASH, "executionHash": "0x", "createdAt": "2026-11-20T19:48:00.123Z",
    "status": "created", "generation": 2, "proposals": [], "logs": [],
}  # fmt: skip
