"""The texts of intents that prove themselves, and the limits that they keep."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final, Self

from muniment.protocol.errors import InvalidSignature, InvalidText, InvalidTimestamp
from muniment.protocol.wire import Amount, BoundedText, ProvedText

LOG_BYTES_MAX: Final = 4_096
SHORT_TEXT_MAX: Final = 1_000
# Unix seconds have ten digits until the year 2286; a number of this size is a time in milliseconds.
_LOOKS_LIKE_MS: Final = range(10**12, 10**14 + 1)
_TRIGGER_SIG: Final = re.compile(r"0x[0-9a-fA-F]{130}")


class ConfigSig(ProvedText):
    """The signature of an intent's trigger: 65 bytes, lower case, otherwise as they were hashed.

    Not canonicalised and not checked as `Signature` is: the settlement contract hashes these bytes as they are.
    """

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string", "pattern": "^0x[0-9a-fA-F]{130}$",
        "description": "The `sig` of the trigger, 65 bytes, as it enters the intent's hash",
        "examples": ["0x" + "1" * 128 + "1b"],
    }  # fmt: skip
    refuses = InvalidSignature
    kind: ClassVar = "config"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Lower case. Raises `InvalidSignature` for any other length."""
        if not _TRIGGER_SIG.fullmatch(text):
            raise InvalidSignature(f"a {cls.kind} signature is 0x and 130 hex digits")
        return cls(text.lower())

    @property
    def raw(self) -> bytes:
        """The 65 bytes."""
        return bytes.fromhex(self[2:])


class TriggerSig(ConfigSig):
    """The same signature by its name in generation 2."""

    __slots__ = ()

    kind: ClassVar = "trigger"


class DeadlineBound(Amount):
    """A time in Unix seconds, as a filter on deadlines."""

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        **Amount.schema, "description": "Unix seconds in decimal", "examples": ["1795204080"],
    }  # fmt: skip

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidAmount`, and `InvalidTimestamp` for a time that looks like ms."""
        bound = super().parse(text)
        if int(bound) in _LOOKS_LIKE_MS:
            raise InvalidTimestamp("a deadline is in Unix seconds; is this in milliseconds?")
        return bound


class LogText(
    BoundedText, length_min=1, length_max=LOG_BYTES_MAX, description="At most 4 KiB of UTF-8",
    example="solver answered in 120 ms",
):  # fmt: skip
    """The text of a log line, 1 byte to 4 KiB of UTF-8."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidText` for a wrong size, and for U+0000."""
        if not 1 <= len(text.encode()) <= LOG_BYTES_MAX:
            raise InvalidText(f"a line has 1 to {LOG_BYTES_MAX} bytes of UTF-8")
        return super().parse(text)


class ShortText(
    BoundedText, length_max=SHORT_TEXT_MAX, description=f"At most {SHORT_TEXT_MAX} characters",
    example="0.3 % better than the last",
):  # fmt: skip
    """A remark."""

    __slots__ = ()


class LogId(
    BoundedText, length_min=1, length_max=100, example="relayer-1/42",
    description="The writer's own id of the line; repeated: the same line",
):  # fmt: skip
    """A writer's own name for a log: the same name twice is one log."""

    __slots__ = ()
