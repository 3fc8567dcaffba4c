"""Positions in the feed: the cursor of a page, and the id of an event."""

from __future__ import annotations

import base64
import binascii
from typing import Any, ClassVar, Final, Self

from muniment.errors import InvalidParameter
from muniment.wire import ProvedText

_SEQ_MAX: Final = 2**63 - 1
_EPOCH_MAX: Final = 2**32 - 1
# `e-`, eight hex digits of the epoch, `-` and the digits of `_SEQ_MAX`, in base64.
_LENGTH_MAX: Final = 40


class Position(ProvedText):
    """A place in the feed: an epoch of the registry, and the number of an event.

    As the id of an event it names that event. As a cursor it means the place behind it. It is base64url without dots,
    as Standard Webhooks wants of an id.
    """

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": f"^[A-Za-z0-9_-]{{2,{_LENGTH_MAX}}}$",
        "description": "Opaque; from the `Link` header of the page before, or the `id` of an event",
        "examples": ["ZS0wYmFkY2FmZS0xMDA"],
    }
    refuses = InvalidParameter

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidParameter` for a text that is not in the form of a position."""
        try:
            epoch, seq = _parts(text) if len(text) <= _LENGTH_MAX else (-1, -1)
        except (binascii.Error, ValueError):
            epoch, seq = -1, -1
        if not (0 <= seq <= _SEQ_MAX and 0 <= epoch <= _EPOCH_MAX) or cls.at(epoch, seq) != text:
            raise InvalidParameter("this service did not issue the cursor")
        return cls(text)

    @classmethod
    def at(cls, epoch: int, seq: int) -> Self:
        """The position of the event with the number `seq`."""
        plain = b"e-%08x-%d" % (epoch, seq)
        return cls(base64.urlsafe_b64encode(plain).rstrip(b"=").decode())

    @property
    def epoch(self) -> int:
        """The epoch of the registry."""
        return _parts(self)[0]

    @property
    def seq(self) -> int:
        """The number of the event; 0 is before the first."""
        return _parts(self)[1]


def _parts(text: str) -> tuple[int, int]:
    """Epoch and number; raises `ValueError` for most other texts."""
    plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
    kind, epoch, digits = plain.split("-")
    if kind != "e":
        raise ValueError(kind)
    return int(epoch, 16), int(digits)
