"""Turns the SQL of the stores into the forms that PostgreSQL takes: for one caller, and for a batch of callers.

`read_queue`, `steps` and `engine` find a statement here; `batches` sends one of its forms. `?` becomes `$1`, `$2`, ….
The numbers after LIMIT and OFFSET become part of the SQL: for an unknown number the planner assumes a large one, and
sorts a table instead of walking its index. The forms of each SQL text are kept.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.service.storage.database import Parameters

# Statements kept here, and prepared statements kept by each connection: the few dozen texts of the stores, times the
# limits and list lengths in use. A statement that was dropped is made and prepared again.
STATEMENTS_KEPT: Final = 512

_BOUND: Final = re.compile(r"\b(?:LIMIT|OFFSET)\s*$")
_INSERT: Final = re.compile(
    r"\s*INSERT\s+INTO\s+(?P<table>\w+)\s*\((?P<columns>[\w\s,]+)\)\s*VALUES\s*\((?:\?|[\s,])+\)"
    r"\s*(?P<conflict>ON\s+CONFLICT\s*(?:\([\w\s,]+\)\s*)?DO\s+NOTHING)?\s*"
)
_LOCKS: Final = re.compile(r"\bFOR\s+(?:NO\s+KEY\s+)?(?:UPDATE|SHARE)\b")


class Kind(Enum):
    """How equal statements of many callers may be sent."""

    READ = auto()  # a query without changes and locks: one query with the values of all callers
    INSERT = auto()  # inserts one row: one statement that inserts all rows
    OTHER = auto()  # one after the other


class Statement:
    """A statement without its values. Equal statements are one object, so that callers can be grouped by it."""

    def __init__(self, sql: str, bounds: tuple[int, ...]) -> None:
        """`sql` with `?`; `bounds` are the numbers after LIMIT and OFFSET."""
        self._pieces = _with_bounds(sql, bounds)
        self._insert = _INSERT.fullmatch(sql)
        self.parameter_count = len(self._pieces) - 1
        # The form for one caller.
        self.single = self._joined("${}")
        self.kind = self._kind(sql)
        self.is_read = self.kind is Kind.READ
        self.is_insert = self.kind is Kind.INSERT
        # The form for many callers, once the types of the parameters are known (`learn_types`).
        self.batched: str | None = None
        # For an INSERT: the values that the batched form returns for each inserted row, as indexes. `batched_by_first`
        # returns only the first of them, which is enough when it differs in all rows.
        self.returned: tuple[int, ...] = ()
        self.batched_by_first: str | None = None

    def _kind(self, sql: str) -> Kind:
        if self._insert and len(_names(self._insert["columns"])) == self.parameter_count:
            return Kind.INSERT
        reads = sql.lstrip().startswith("SELECT") and not _LOCKS.search(sql)
        return Kind.READ if reads else Kind.OTHER

    def _joined(self, parameter: str) -> str:
        parts = [self._pieces[0]]
        for number, piece in enumerate(self._pieces[1:], 1):
            parts += [parameter.format(number), piece]
        return "".join(parts)

    def learn_types(self, types: list[str]) -> str:
        """Make and return the batched form; `types` are the parameters' types as the server names them."""
        arrays = ", ".join(f"${number}::{each}[]" for number, each in enumerate(types, 1))
        names = ", ".join(f"p{number}" for number in range(1, self.parameter_count + 1))
        if self._insert:
            self.batched = self._batched_insert(arrays, types)
        else:
            self.batched = (
                f"SELECT q_.n, r_.* FROM unnest({arrays}) WITH ORDINALITY AS q_({names}, n) "  # noqa: S608 - a statement of a store, without values
                f"CROSS JOIN LATERAL ({self._joined('q_.p{}')}) r_"
            )
        return self.batched

    def _batched_insert(self, arrays: str, types: list[str]) -> str:
        """The INSERT of many rows; RETURNING identifies the inserted rows by their short columns (`returned`)."""
        assert self._insert is not None  # noqa: S101 - only an INSERT has this form
        columns = _names(self._insert["columns"])
        self.returned = tuple(index for index, each in enumerate(types) if each != "text") or tuple(range(len(types)))
        insertion = (
            f"INSERT INTO {self._insert['table']} ({', '.join(columns)}) SELECT * FROM unnest({arrays}) "  # noqa: S608 - a statement of a store, without values
            f"{self._insert['conflict'] or ''} RETURNING "
        )
        self.batched_by_first = insertion + columns[self.returned[0]]
        return insertion + ", ".join(columns[index] for index in self.returned)


class Statements:
    """Finds the statement for the SQL of a store."""

    def __init__(self) -> None:
        """Begin without statements."""
        self._find = lru_cache(STATEMENTS_KEPT)(Statement)
        self._find_unbounded = lru_cache(STATEMENTS_KEPT)(self._unbounded)

    def find(self, sql: str, parameters: Parameters) -> tuple[Statement, Parameters]:
        """The statement, and its values: those of `parameters` that did not become part of its SQL."""
        if statement := self._find_unbounded(sql):
            return statement, parameters
        where = _bounds(sql)
        bounds = tuple(_whole(parameters[index]) for index in where)
        rest = [value for index, value in enumerate(parameters) if index not in where]
        return self._find(sql, bounds), rest

    def _unbounded(self, sql: str) -> Statement | None:
        """The statement if all its values stay parameters, None otherwise."""
        return None if _bounds(sql) else self._find(sql, ())


def _whole(value: object) -> int:
    """`value` as an integer, which is safe to write into SQL."""
    if not isinstance(value, int):
        raise TypeError("LIMIT and OFFSET take whole numbers")
    return int(value)


@lru_cache(STATEMENTS_KEPT)
def _bounds(sql: str) -> tuple[int, ...]:
    """The indexes of the parameters after LIMIT or OFFSET."""
    pieces = sql.split("?")
    return tuple(index for index, piece in enumerate(pieces[:-1]) if _BOUND.search(piece))


def _with_bounds(sql: str, bounds: tuple[int, ...]) -> list[str]:
    """The pieces of SQL between the remaining parameters, with `bounds` written into them."""
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
