"""The life of an intent and of a proposal: which status may follow which, and when time ends it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from muniment.errors import InvalidIntent, StatusConflict

Diagram = Mapping[str, tuple[str, ...]]

INTENT_MOVES: Final[Diagram] = MappingProxyType(
    {
        "created": ("enqueued", "discarded"),
        "enqueued": ("submitted", "discarded"),
        "submitted": ("succeeded", "failed"),
        "discarded": (),
        "succeeded": (),
        "failed": (),
        "expired": (),
    }
)
PROPOSAL_MOVES: Final[Diagram] = MappingProxyType(
    {
        "received": ("accepted", "rejected", "expired"),
        "accepted": ("submitted", "rejected", "expired"),
        "submitted": ("succeeded", "failed", "expired"),
        "rejected": (),
        "succeeded": (),
        "failed": (),
        "expired": (),
    }
)
_EXPIRE_AT_ONCE: Final = ("created", "enqueued")


def passed_until(now_ms: int) -> int:
    """The latest deadline, in Unix seconds, that has passed: the settlement contract refuses from that second on."""
    return now_ms // 1_000


def status_as_read(told: str, deadline: int, now_ms: int, grace_s: int) -> str:
    """What an intent reads as now of which the chain, or else operators, `told` a status; `deadline` in Unix seconds.

    `created` and `enqueued` read as `expired` once the deadline has passed, `submitted` only `grace_s` seconds later:
    its transaction may be on its way. What is final stays.
    """
    if told in _EXPIRE_AT_ONCE:
        return "expired" if deadline <= passed_until(now_ms) else told
    if told == "submitted" and deadline + grace_s <= passed_until(now_ms):
        return "expired"
    return told


def reachable(diagram: Diagram, status: str) -> tuple[str, ...]:
    """Every status that can follow on `status` by one or more moves, nearest first."""
    found: dict[str, None] = dict.fromkeys(diagram[status])
    waiting = list(found)
    while waiting:
        for after in diagram[waiting.pop(0)]:
            if after not in found:
                found[after] = None
                waiting.append(after)
    return tuple(found)


def check_move(diagram: Diagram, status: str, wanted: str, *, several: bool) -> None:
    """`status`, as it reads now, may become `wanted`: by one move, by `several`, or because they are the same.

    Raises `InvalidIntent` for what is no status, and `StatusConflict` that names the moves that are allowed.
    """
    if wanted not in diagram:
        raise InvalidIntent(f"a status is one of {', '.join(diagram)}", pointer="/status")
    allowed = reachable(diagram, status) if several else diagram[status]
    if wanted != status and wanted not in allowed:
        names = " or ".join(allowed)
        rest = f"from there it goes to {names}" if names else "which is final"
        raise StatusConflict(f"the status is {status}, {rest}, not to {wanted}", pointer="/status")
