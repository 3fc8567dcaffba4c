"""Small parts of SQL text. Values never become part of the text, which has `?` for them."""

from __future__ import annotations

from typing import Final, LiteralString, NamedTuple, cast

# Rows that one sweep marks: a few milliseconds of the writer.
SWEPT_PER_BATCH: Final = 500


class Condition(NamedTuple):
    """A condition on a row: its SQL, and a value for each `?` in it."""

    sql: LiteralString
    values: tuple[object, ...] = ()


class Where:
    """The conditions of a query; all of them must hold."""

    def __init__(self) -> None:
        """Begin without conditions: every row."""
        self._clauses: list[LiteralString] = []
        self.parameters: list[object] = []

    def add(self, clause: LiteralString, *parameters: object) -> None:
        """Require `clause`, which has one `?` for each of `parameters`."""
        self._clauses.append(clause)
        self.parameters.extend(parameters)

    @classmethod
    def all_of(cls, *conditions: Condition) -> Where:
        """The conjunction of `conditions`."""
        where = cls()
        for sql, values in conditions:
            where.add(sql, *values)
        return where

    @property
    def sql(self) -> LiteralString:
        """The conditions as SQL, with WHERE before them; empty without conditions."""
        return " WHERE " + " AND ".join(self._clauses) if self._clauses else ""


def placeholders(count: int) -> LiteralString:
    """`count` parameters for an IN list: `?, ?, ?`."""
    return ("?, " * count).removesuffix(", ")


def number_text(number: int) -> LiteralString:
    """A number of ours as SQL text, such as a bound that is part of an index and so cannot be a parameter."""
    # Whatever the number is, its digits are no SQL: only here a text becomes SQL that the type checker has not seen.
    return cast("LiteralString", str(int(number)))


def begins_with(column: LiteralString, digits: str, size: int) -> Condition:
    """The condition that `size` bytes in a column begin with these hex digits, for an index on the column."""
    low, high = (bytes.fromhex(digits.ljust(2 * size, fill)) for fill in "0f")
    return Condition(f"{column} >= ? AND {column} <= ?", (low, high))
