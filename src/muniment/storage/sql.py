"""Small parts of SQL text for the stores. Values never enter the text, only `?` does."""

from __future__ import annotations

from typing import Final

# Rows that one sweep changes: a few milliseconds of the writer.
SWEPT_AT_ONCE: Final = 500


class Where:
    """The conditions of a query, collected one by one."""

    def __init__(self) -> None:
        """No condition yet: every row."""
        self._clauses: list[str] = []
        self.parameters: list[object] = []

    def add(self, clause: str, *parameters: object) -> None:
        """Add `clause`, which holds one `?` for each of `parameters`."""
        self._clauses.append(clause)
        self.parameters.extend(parameters)

    def add_if(self, clause: str, parameter: object | None) -> None:
        """Add `clause` with one parameter, unless that is None."""
        if parameter is not None:
            self.add(clause, parameter)

    def with_clause(self, clause: str, *parameters: object) -> Where:
        """A copy with one more condition (none for an empty text)."""
        extended = Where()
        extended._clauses = [*self._clauses, *([clause] if clause else [])]
        extended.parameters = [*self.parameters, *parameters]
        return extended

    def __str__(self) -> str:
        return " WHERE " + " AND ".join(self._clauses) if self._clauses else ""


def placeholders(count: int) -> str:
    """`count` parameters for an IN list: `?, ?, ?`."""
    return ", ".join("?" * count)
