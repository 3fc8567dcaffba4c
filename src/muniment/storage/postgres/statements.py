"""Our statements as PostgreSQL is asked them: for one caller, and for many that ask the same at once.

`?` becomes `$1`, `$2`, …; the numbers behind LIMIT and OFFSET become part of the text, because a planner that does
not know them takes them for large, and sorts a table instead of walking its index.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.storage.database import Parameters

# Distinct texts that are remembered, here and by each connection as prepared statements: the few dozen that the
# stores hold, times the limits and list lengths that clients really use. What is beyond is prepared again.
TEXTS_KEPT: Final = 512

_BOUND: Final = re.compile(r"\b(?:LIMIT|OFFSET)\s*$")
_INSERT: Final = re.compile(
    r"\s*INSERT\s+INTO\s+(?P<table>\w+)\s*\((?P<columns>[\w\s,]+)\)\s*VALUES\s*\((?:\?|[\s,])+\)"
    r"\s*(?P<conflict>ON\s+CONFLICT\s*(?:\([\w\s,]+\)\s*)?DO\s+NOTHING)?\s*"
)
_LOCKS: Final = re.compile(r"\bFOR\s+(?:NO\s+KEY\s+)?(?:UPDATE|SHARE)\b")


class Kind(Enum):
    """What may be done with statements of one text that wait at the same moment."""

    READ = auto()  # a query that changes and locks nothing: asked once for all
    INSERT = auto()  # rows of the same form: inserted together
    OTHER = auto()  # one after the other


class Text:
    """A statement without its values. The same one is the same object, so it groups what waits."""

    def __init__(self, sql: str, bounds: tuple[int, ...]) -> None:
        """`sql` with `?`; `bounds` are the values of those behind LIMIT and OFFSET."""
        self._pieces = _with_bounds(sql, bounds)
        self._insert = _INSERT.fullmatch(sql)
        self.count = len(self._pieces) - 1
        self.alone = self._joined("${}")
        self.kind = self._kind(sql)
        self.is_read = self.kind is Kind.READ
        self.is_insert = self.kind is Kind.INSERT
        self.together: str | None = None
        self.together_by_one: str | None = None
        self.told: tuple[int, ...] = ()
        # No work was seen yet that went on after this insertion.
        self.is_last = True

    def _kind(self, sql: str) -> Kind:
        if self._insert and len(_names(self._insert["columns"])) == self.count:
            return Kind.INSERT
        reads = sql.lstrip().startswith("SELECT") and not _LOCKS.search(sql)
        return Kind.READ if reads else Kind.OTHER

    def _joined(self, parameter: str) -> str:
        parts = [self._pieces[0]]
        for number, piece in enumerate(self._pieces[1:], 1):
            parts += [parameter.format(number), piece]
        return "".join(parts)

    def learn(self, types: list[str]) -> str:
        """The form for many callers, once it is known which types PostgreSQL gives the parameters."""
        arrays = ", ".join(f"${number}::{each}[]" for number, each in enumerate(types, 1))
        names = ", ".join(f"p{number}" for number in range(1, self.count + 1))
        if self._insert:
            self.together = self._many_rows(arrays, types)
        else:
            # A statement of ours, with no value in its text.
            self.together = (
                f"SELECT q_.n, r_.* FROM unnest({arrays}) WITH ORDINALITY AS q_({names}, n) "  # noqa: S608 - a statement of ours, with no value in its text
                f"CROSS JOIN LATERAL ({self._joined('q_.p{}')}) r_"
            )
        return self.together

    def _many_rows(self, arrays: str, types: list[str]) -> str:
        """Insert many rows, and tell which went in by their short columns (`told`: which of the values those are).

        Where all values of the first of these differ, that one says it (`together_by_one`).
        """
        assert self._insert is not None  # noqa: S101 - this is the form of an insertion
        columns = _names(self._insert["columns"])
        self.told = tuple(index for index, each in enumerate(types) if each != "text") or tuple(range(len(types)))
        insertion = (
            f"INSERT INTO {self._insert['table']} ({', '.join(columns)}) SELECT * FROM unnest({arrays}) "  # noqa: S608 - a statement of ours, with no value in its text
            f"{self._insert['conflict'] or ''} RETURNING "
        )
        self.together_by_one = insertion + columns[self.told[0]]
        return insertion + ", ".join(columns[index] for index in self.told)


class Texts:
    """The texts of one database, by the SQL of the stores."""

    def __init__(self) -> None:
        """None is known yet."""
        self._find = lru_cache(TEXTS_KEPT)(Text)
        self._find_unbounded = lru_cache(TEXTS_KEPT)(self._unbounded)

    def ask(self, sql: str, parameters: Parameters) -> tuple[Text, Parameters]:
        """The text of a statement, and the values that are not part of it."""
        if text := self._find_unbounded(sql):
            return text, parameters
        where = _bounds(sql)
        bounds = tuple(_whole(parameters[index]) for index in where)
        rest = [value for index, value in enumerate(parameters) if index not in where]
        return self._find(sql, bounds), rest

    def _unbounded(self, sql: str) -> Text | None:
        """The text of a statement all of whose values stay parameters."""
        return None if _bounds(sql) else self._find(sql, ())


def _whole(value: object) -> int:
    """A number that is safe inside a text."""
    if not isinstance(value, int):
        raise TypeError("a bound of a query is a whole number")
    return int(value)


@lru_cache(TEXTS_KEPT)
def _bounds(sql: str) -> tuple[int, ...]:
    """Which parameters stand behind LIMIT or OFFSET."""
    pieces = sql.split("?")
    return tuple(index for index, piece in enumerate(pieces[:-1]) if _BOUND.search(piece))


def _with_bounds(sql: str, bounds: tuple[int, ...]) -> list[str]:
    """The pieces between the parameters that stay, the others written out."""
    values = dict(zip(_bounds(sql), bounds, strict=True))
    pieces: list[str] = []
    pending = ""
    for index, piece in enumerate(sql.split("?")):
        pending += piece
        if index in values:
            pending += str(values[index])
        else:
            pieces.append(pending)
            pending = ""
    return pieces


def _names(columns: str) -> list[str]:
    return [name.strip() for name in columns.split(",")]
