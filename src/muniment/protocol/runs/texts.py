"""The texts of runs that prove themselves, and the limits that they keep."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

from muniment.protocol.errors import InvalidText
from muniment.protocol.wire import ProvedText

REASON_TEXT_MAX: Final = 1_000
ENGINE_MAX: Final = 100
# What a function may log in one line, 4,000 characters, and the level before it: `[Critical] `.
LOG_CHARACTERS_MAX: Final = 4_000 + len("[Critical] ")


def _checked(text: str, at_least: int, at_most: int) -> str:
    if not at_least <= len(text) <= at_most:
        raise InvalidText(f"a text of {at_least} to {at_most} characters is expected here")
    if "\0" in text:
        raise InvalidText("a text has no U+0000")
    return text


class ReasonText(ProvedText):
    """What a reason adds for a reader, at most 1000 characters."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "maxLength": REASON_TEXT_MAX, "pattern": r"^[^\u0000]*$",
        "description": f"At most {REASON_TEXT_MAX} characters", "examples": ["the price is above the limit"],
    }  # fmt: skip
    refuses = InvalidText

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidText`."""
        return cls(_checked(text, 0, REASON_TEXT_MAX))


class Engine(ProvedText):
    """The program that made a run, with its version, 1 to 100 characters."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "minLength": 1, "maxLength": ENGINE_MAX, "pattern": r"^[^\u0000]*$",
        "description": "The program that made the run, with its version",
        "examples": ["muniment 0.3.0, wasmtime 40.0.0"],
    }  # fmt: skip
    refuses = InvalidText

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidText`."""
        return cls(_checked(text, 1, ENGINE_MAX))


class RunLog(ProvedText):
    """A line that the function logged, with its level: `[Info] price 1.02`."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "maxLength": LOG_CHARACTERS_MAX, "pattern": r"^[^\u0000]*$",
        "description": f"A line of the function's log with its level, at most {LOG_CHARACTERS_MAX} characters",
        "examples": ["[Info] price 1.02"],
    }  # fmt: skip
    refuses = InvalidText

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidText`."""
        return cls(_checked(text, 0, LOG_CHARACTERS_MAX))
