"""Whether a registry has the sample day. It is asked at each start of a demo, so it reads two rows and loads little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from muniment.operate import databases
from muniment.operate.sample_day.operator import NAME
from muniment.operate.sample_day.triggers import ADDRESSES, DAY_MS
from muniment.operate.sample_day.wallets import EMPLOYER, FIRST_DEVELOPER, RELAYER

if TYPE_CHECKING:
    from muniment.service.running.settings import Settings
    from muniment.service.storage.database import Database


class Standing(NamedTuple):
    """What a registry has: no record; a part of the day, or all of it; or records of others alone.

    `begin_ms` is when its day begins, or would begin, in milliseconds since 1970.
    """

    holds: Literal["nothing", "part", "all", "others"]
    begin_ms: int


def standing(settings: Settings, now_ms: int) -> Standing:
    """What the registry of the settings has at `now_ms`. Raises `Refusal` and `ValueError`.

    The day begins with its operator and its first function, and ends with its last trigger. Where others have written
    first, or a transparency log has begun, nothing is added: times of records follow the order in which they are
    stored, and the registry may be in earnest use.
    """

    async def look(database: Database) -> Standing:
        first = await database.fetch_one(
            """SELECT f.created_at_ms FROM function_creators c JOIN functions f ON f.seq = c.function_seq
               WHERE c.creator = ? AND EXISTS (SELECT 1 FROM operators WHERE name = ? AND address = ?)
               ORDER BY c.seq LIMIT 1""",
            (ADDRESSES[FIRST_DEVELOPER].raw, NAME, ADDRESSES[RELAYER].raw),
        )
        last = await database.fetch_one("SELECT 1 FROM triggers WHERE signer = ? LIMIT 1", (ADDRESSES[EMPLOYER].raw,))
        if first is not None and last is not None:
            return Standing("all", first[0])
        records = "EXISTS (SELECT 1 FROM functions) OR EXISTS (SELECT 1 FROM intents) OR" if first is None else ""
        others = await database.fetch_one(f"SELECT 1 WHERE {records} EXISTS (SELECT 1 FROM tlog_epochs)")
        if others is not None:
            return Standing("others", now_ms - DAY_MS)
        return Standing("nothing", now_ms - DAY_MS) if first is None else Standing("part", first[0])

    return databases.run(settings, look)
