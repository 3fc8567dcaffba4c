"""The operations of intents by name (settlement contracts of either generation, enum `OpType`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.protocol.intents.types import Intent

if TYPE_CHECKING:
    from muniment.protocol.intents.types import AnyIntent

_FIRST: Final = ("Swap", "Transfer", "EVM call", "SVM call")
_SECOND: Final = ("Swap", "Transfer", "Call", "Cross-chain swap", "Dynamic call")


def kinds_of(intent: AnyIntent) -> list[str]:
    """The kinds of an intent's operations, in their order; an intent of the first generation has one."""
    if isinstance(intent, Intent):
        return [_named(_FIRST, intent.op)]
    return [_named(_SECOND, each.op_type) for each in intent.operations]


def _named(names: tuple[str, ...], number: int) -> str:
    return names[number] if number < len(names) else f"operation {number}"
