"""Small parts of SQL text. Values never become part of the text, which has `?` for them."""

from __future__ import annotations

from typing import Final, NamedTuple

# Rows that one sweep marks: a few milliseconds of the writer.
SWEPT_PER_BATCH: Final = 500


class Condition(NamedTuple):
    """A condition on a row: its SQL, and a value for each `?` in it."""

    sql: str
    values: tuple[object, ...] = ()


class Where:
    """The conditions of a query; all of them must hold."""

    def __init__(self) -> None:
        """Begin without conditions: every row."""
        self._clauses: list[str] = []
        self.parameters: list[object] = []

    def add(self, clause: str, *parameters: object) -> None:
        """Require `clause`, which has one `?` for each of `parameters`."""
        self._clauses.append(clause)
        self.parameters.extend(parameters)

    def add_if(self, clause: str, parameter: object | None) -> None:
        """Require `clause`, which has one `?`, unless `parameter` is None."""
        if parameter is not None:
            self.add(clause, parameter)

    @classmethod
    def all_of(cls, *conditions: Condition) -> Where:
        """The conjunction of `conditions`."""
        where = cls()
        for sql, values in conditions:
            where.add(sql, *values)
        return where

    def __str__(self) -> str:
        return " WHERE " + " AND ".join(self._clauses) if self._clauses else ""


def placeholders(count: int) -> str:
    """`count` parameters for an IN list: `?, ?, ?`."""
    return ", ".join("?" * count)
