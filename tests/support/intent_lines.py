"""Intents as lines of JSON, for tests that import and export them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from intent_bodies import SETTLERS, USERS, intent_body, log_body as log, proposal_body

USER, SETTLER = USERS[0], SETTLERS[0]
FAR_DEADLINE = "4000000000"
__all__ = ["SETTLER", "USER", "intent", "joined", "line", "log", "proposal"]


def intent(nonce: int, **members: Any) -> dict[str, Any]:
    """An intent whose deadline is in the year 2096; each nonce makes another."""
    return intent_body(nonce, **{"deadline": FAR_DEADLINE, **members})


def proposal(number: int, **members: Any) -> dict[str, Any]:
    """A proposal with the same deadline."""
    return proposal_body(number, **{"deadline": FAR_DEADLINE, **members})


def line(nonce: int, **members: Any) -> bytes:
    """An intent as a line without line end."""
    return json.dumps(intent(nonce, **members), separators=(",", ":")).encode()


def joined(lines: Iterable[bytes]) -> bytes:
    """A file of `lines`."""
    return b"".join(each + b"\n" for each in lines)
