"""The database of the settings, opened for one piece of work and closed after it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from muniment.errors import DatabaseUnavailable
from muniment.storage import is_away, open_database

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from muniment.settings import Settings
    from muniment.storage.database import Database

# How long a program that starts waits for its database: a restart takes seconds, a failover half a minute. What takes
# longer is left to who starts programs again.
START_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 1.0
# Between two lines of the log about it.
_SAID_S: Final = 10.0

_log = structlog.get_logger(__name__)
T = TypeVar("T")


@asynccontextmanager
async def opened(settings: Settings) -> AsyncGenerator[Database]:
    """The database of the settings. Raises `ValueError` for a URL of no known engine."""
    database = open_database(settings.database_url, data_dir=settings.data_dir)
    try:
        yield database
    finally:
        await database.close()


def run(settings: Settings, work: Callable[[Database], Awaitable[T]]) -> T:
    """The result of `work` with the database, whose schema is checked first. Raises `Refusal` and `ValueError`."""

    async def checked() -> T:
        async with opened(settings) as database:
            await database.check()
            return await work(database)

    return asyncio.run(checked())


def migrate(settings: Settings, *, patience_s: float = 0.0) -> list[str]:
    """Apply the missing migrations. The result is their names.

    A server that is away is waited for, at most `patience_s`. Raises `DatabaseUnavailable` after that, and at once for
    what no wait mends, such as a wrong password.
    """

    async def apply() -> list[str]:
        async with opened(settings) as database:
            return await database.migrate()

    async def apply_with_patience() -> list[str]:
        loop = asyncio.get_running_loop()
        deadline_s, said_s = loop.time() + patience_s, float("-inf")
        while True:
            try:
                return await apply()
            except DatabaseUnavailable as error:
                left_s = deadline_s - loop.time()
                if left_s <= 0 or not is_away(settings.database_url, error):
                    raise
                if loop.time() - said_s >= _SAID_S:
                    said_s = loop.time()
                    _log.warning("waiting for the database", detail=error.detail, seconds_left=round(left_s))
            await asyncio.sleep(min(_PAUSE_S, left_s))

    return asyncio.run(apply_with_patience())
