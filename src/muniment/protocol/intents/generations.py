"""The generations of intents: the first has one operation, the second a list of operations."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from muniment.protocol.intents.types import AnyNewIntent, NewIntent


class Generation(IntEnum):
    """A generation of intents, by its number on the wire."""

    FIRST = 1
    SECOND = 2


FIRST: Final = Generation.FIRST
SECOND: Final = Generation.SECOND


def generation_of(new: AnyNewIntent) -> Generation:
    """The generation whose form an intent has."""
    return FIRST if isinstance(new, NewIntent) else SECOND
