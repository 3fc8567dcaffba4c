"""The rows of a table by their numbers, `seq`, which follow the order of commits; the transparency log reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, LiteralString, TypeVar

if TYPE_CHECKING:
    from muniment.service.storage.database import Reader

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class OrderedRows(Generic[R]):
    """The rows of `table`. Each is a `make` of its number and `columns`, perhaps of tables that `joined` adds."""

    make: Callable[..., R]
    table: LiteralString
    columns: LiteralString
    joined: LiteralString = ""

    async def last_seq(self, reader: Reader) -> int:
        """The highest number; 0 without rows."""
        return (await reader.fetch(f"SELECT coalesce(max(seq), 0) FROM {self.table}"))[0][0]

    async def count(self, reader: Reader, first: int, before: int) -> int:
        """The count of rows with numbers from `first` to below `before`."""
        sql = f"SELECT count(*) FROM {self.table} WHERE seq >= ? AND seq < ?"
        return (await reader.fetch(sql, (first, before)))[0][0]

    async def seq_at(self, reader: Reader, first: int, offset: int) -> int | None:
        """The number of the row at an offset from the number `first`."""
        sql = f"SELECT seq FROM {self.table} WHERE seq >= ? ORDER BY seq LIMIT 1 OFFSET ?"
        rows = await reader.fetch(sql, (first, offset))
        return rows[0][0] if rows else None

    async def read(self, reader: Reader, after: int, before: int, limit: int) -> list[R]:
        """Rows with numbers between `after` and `before`, both not included, in their order."""
        seq = f"{self.table}.seq"
        sql = f"{self._select} WHERE {seq} > ? AND {seq} < ? ORDER BY {seq} LIMIT ?"
        return [self.make(*row) for row in await reader.fetch(sql, (after, before, limit))]

    async def find(self, reader: Reader, condition: LiteralString, *values: object) -> R | None:
        """The one row that fulfils a condition."""
        row = await reader.fetch_one(f"{self._select} WHERE {condition}", values)
        return self.make(*row) if row else None

    @property
    def _select(self) -> LiteralString:
        return f"SELECT {self.table}.seq, {self.columns} FROM {self.table}{self.joined}"
