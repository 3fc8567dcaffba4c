"""Turns the SQL of the stores into the forms that PostgreSQL takes: for one caller, and for a batch of callers.

`read_queue`, `transaction` and `engine` find a statement here; `batches` sends one of its forms. `?` becomes `$1`,
`$2`, …. The numbers after LIMIT and OFFSET become part of the SQL: for an unknown number the planner assumes a large
one, and sorts a table instead of walking its index. The forms of each SQL text are kept.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.service.storage.database import Parameters

# Statements kept here, and prepared statements kept by each connection: the few dozen texts of the stores, times the
# limits and list lengths in use. A statement that was dropped is made and prepared again.
STATEMENTS_KEPT: Final = 512

_BOUND: Final = re.compile(r"\b(?:LIMIT|OFFSET)\s*$")


class Statement:
    """A statement without its values. Equal statements are one object, so that callers can be grouped by it."""

    def __init__(self, sql: str, bounds: tuple[int, ...]) -> None:
        """`sql` with `?`; `bounds` are the numbers after LIMIT and OFFSET."""
        self._pieces = _with_bounds(sql, bounds)
        self.parameter_count = len(self._pieces) - 1
        # The form for one caller.
        self.single = self._joined("${}")
        # The form of a query for many callers, once the types of the parameters are known (`learn_types`).
        self.batched: str | None = None

    def _joined(self, parameter: str) -> str:
        parts = [self._pieces[0]]
        for number, piece in enumerate(self._pieces[1:], 1):
            parts += [parameter.format(number), piece]
        return "".join(parts)

    def learn_types(self, types: list[str]) -> str:
        """Make and return the batched form; `types` are the parameters' types as the server names them."""
        names = ", ".join(f"p{number}" for number in range(1, self.parameter_count + 1))
        self.batched = (
            f"SELECT q_.n, r_.* FROM unnest({_arrays(types)}) WITH ORDINALITY AS q_({names}, n) "  # noqa: S608 - a statement of a store, without values
            f"CROSS JOIN LATERAL ({self._joined('q_.p{}')}) r_"
        )
        return self.batched


class Insertion:
    """The INSERT of new rows into a table; rows that exist are left alone."""

    def __init__(self, table: str, columns: tuple[str, ...]) -> None:
        """The batched form returns the first of `columns` of each inserted row."""
        self._into = f"INSERT INTO {table} ({', '.join(columns)})"
        self._returning = f"ON CONFLICT DO NOTHING RETURNING {columns[0]}"
        values = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
        # The two forms, as of `Statement`.
        self.single = f"{self._into} VALUES ({values}) ON CONFLICT DO NOTHING"
        self.batched: str | None = None

    def learn_types(self, types: list[str]) -> str:
        """Make and return the batched form; `types` are the parameters' types as the server names them."""
        self.batched = f"{self._into} SELECT * FROM unnest({_arrays(types)}) {self._returning}"  # noqa: S608 - names of a store
        return self.batched


class Statements:
    """Finds the statement for the SQL of a store."""

    def __init__(self) -> None:
        """Begin without statements."""
        self._find = lru_cache(STATEMENTS_KEPT)(Statement)
        self._find_unbounded = lru_cache(STATEMENTS_KEPT)(self._unbounded)
        self.insertion = lru_cache(STATEMENTS_KEPT)(Insertion)

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


def _arrays(types: list[str]) -> str:
    """A parameter for each column of many rows."""
    return ", ".join(f"${number}::{each}[]" for number, each in enumerate(types, 1))
