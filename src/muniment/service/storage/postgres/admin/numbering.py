"""Row numbers follow the order of commits: each begins with the number of its transaction (decision 0041).

In a cluster where a dump was restored, transactions count from the start again; `raise_numbers` makes up for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from muniment.service.storage.postgres.connection import Connection

_NUMBERED_TABLES: Final = """SELECT quote_ident(c.relname) FROM pg_attrdef d JOIN pg_class c ON c.oid = d.adrelid
    WHERE pg_get_expr(d.adbin, d.adrelid) = 'next_seq()' ORDER BY c.oid"""
# STABLE, because prepared plans keep the value of an IMMUTABLE function after it was replaced.
_BASE: Final = "CREATE OR REPLACE FUNCTION seq_base() RETURNS bigint LANGUAGE sql STABLE RETURN {}"


async def raise_numbers(connection: Connection) -> None:
    """Give new rows higher numbers than all existing rows, also after a dump was restored."""
    highest = 0
    for (table,) in await connection.fetch(_NUMBERED_TABLES):
        ((last,),) = await connection.fetch(f"SELECT coalesce(max(seq), 0) FROM {table}")  # noqa: S608 - a quoted name
        highest = max(highest, int(last))
    ((base, current),) = await connection.fetch("SELECT seq_base(), pg_current_xact_id()::text::bigint")
    if highest >> 16 > base + current:
        await connection.execute(_BASE.format((highest >> 16) - current))
