"""Whether a registry has the sample day. It is asked at each start of a demo, so it reads two rows and loads little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from muniment.operate import databases
from muniment.operate.sample_day.triggers import ADDRESSES, DAY_MS
from muniment.operate.sample_day.wallets import EMPLOYER, FIRST_DEVELOPER

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

    The day begins with its first function and ends with its last trigger. Where others have written first, nothing is
    added: times of records follow the order in which they are stored, and the registry may be in earnest use.
    """

    async def look(database: Database) -> Standing:
        first = await database.fetch_one(
            """SELECT f.created_at_ms FROM function_creators c JOIN functions f ON f.seq = c.function_seq
               WHERE c.creator = ? ORDER BY c.seq LIMIT 1""",
            (ADDRESSES[FIRST_DEVELOPER].raw,),
        )
        if first is None:
            others = await database.fetch_one(
                "SELECT 1 WHERE EXISTS (SELECT 1 FROM functions) OR EXISTS (SELECT 1 FROM intents)"
            )
            return Standing("others" if others else "nothing", now_ms - DAY_MS)
        last = await database.fetch_one("SELECT 1 FROM triggers WHERE signer = ? LIMIT 1", (ADDRESSES[EMPLOYER].raw,))
        return Standing("all" if last else "part", first[0])

    return databases.run(settings, look)
