"""Cursors of listings: opaque texts that name the last row of a page."""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache
from typing import Any, ClassVar, Final, Self

from muniment.errors import InvalidParameter
from muniment.wire import ProvedText

# The largest integer that SQLite and PostgreSQL hold; a larger number or offset is refused.
OFFSET_MAX: Final = 2**63 - 1
# Cursors kept as read: a reader follows one listing for long.
_KEPT: Final = 1_024
# The table whose rows a listing shows, and the letter of its cursors; those of intents have an `i`.
_LETTERS: Final = {"triggers": "t", "functions": "f", "function_creators": "c"}
_INTENTS: Final = "i"
# A letter, `-`, the digits of `OFFSET_MAX`, `-` and eight of the epoch, in base64.
_CURSOR_LENGTH_MAX: Final = 40
_EPOCH_MAX: Final = 2**32 - 1


class Cursor(ProvedText):
    """The end of a page, in base64url so that clients do not build on its form.

    It holds the listing, the sequence number of the last row and, after the registry's first epoch, the epoch of that
    number.
    """

    __slots__ = ()

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": f"^[A-Za-z0-9_-]{{2,{_CURSOR_LENGTH_MAX}}}$",
        "description": "Opaque; from the `Link` header of the previous page. Not together with `offset`",
        "examples": ["dC0xMDA"],
    }
    refuses = InvalidParameter

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `InvalidParameter` for a text that is not in the form of a cursor."""
        try:
            letter, seq, epoch = _place(text) if len(text) <= _CURSOR_LENGTH_MAX else ("", -1, None)
        except (binascii.Error, ValueError):
            letter, seq, epoch = "", -1, None
        is_possible = 0 <= seq <= OFFSET_MAX and 0 <= (epoch or 0) <= _EPOCH_MAX
        is_known = letter in {*_LETTERS.values(), _INTENTS}
        if not is_possible or not is_known or _written(letter, seq, epoch).decode() != text:
            raise InvalidParameter("this service did not issue the cursor")
        return cls(text)

    def is_of(self, table: str) -> bool:
        """Whether it is of the listing of this table."""
        return _place(self)[0] == _letter_of(table)

    @property
    def seq(self) -> int:
        """The sequence number of the row before."""
        return _place(self)[1]

    @property
    def epoch(self) -> int | None:
        """The epoch of the number, None for a registry's first."""
        return _place(self)[2]


def cursor_after(table: str, seq: int, epoch: int | None) -> bytes:
    """A cursor after the row of this table with this sequence number; `epoch` is None in a registry's first."""
    return _written(_letter_of(table), seq, epoch)


def _letter_of(table: str) -> str:
    return _LETTERS.get(table, _INTENTS)


def _written(letter: str, seq: int, epoch: int | None) -> bytes:
    # Digits, `-`, letters to f, and `i` or `t` at the beginning never give `+` or `/`, for which base64url has other
    # characters.
    plain = b"%b-%d" % (letter.encode(), seq)
    if epoch is not None:
        plain += b"-%08x" % epoch
    return binascii.b2a_base64(plain, newline=False).rstrip(b"=")


@lru_cache(maxsize=_KEPT)
def _place(text: str) -> tuple[str, int, int | None]:
    """The letter, number and epoch in a cursor; raises `ValueError` for most texts that are none."""
    plain = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode("ascii")
    letter, _, place = plain.partition("-")
    digits, _, epoch = place.partition("-")
    return letter, int(digits), int(epoch, 16) if epoch else None
