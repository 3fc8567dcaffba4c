"""Intents as lines of JSON, for tests that import and export them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from builders import Wallet

USER, SETTLER = Wallet(21).address, Wallet(31).address


def intent(nonce: int, **members: Any) -> dict[str, Any]:
    """An intent whose deadline is in the year 2096; every nonce makes another one."""
    return {
        "op": 1, "user": USER, "settler": SETTLER, "nonce": f"0x{nonce:064x}", "deadline": "4000000000",
        "data": "0x", "maxFees": [], "events": [], "configSig": "0x" + "41" * 65, "minValidations": 1, **members,
    }  # fmt: skip


def proposal(number: int, **members: Any) -> dict[str, Any]:
    return {"solver": USER, "data": f"0x{number:08x}", "deadline": "4000000000", "fees": [str(number)], **members}


def log(number: int, **members: Any) -> dict[str, Any]:
    return {"level": "info", "data": f"line {number}", "createdAt": "2026-11-20T19:48:00.123Z", **members}


def line(nonce: int, **members: Any) -> bytes:
    """An intent as a line without its end."""
    return json.dumps(intent(nonce, **members), separators=(",", ":")).encode()


def joined(lines: Iterable[bytes]) -> bytes:
    """A file of `lines`."""
    return b"".join(each + b"\n" for each in lines)
