"""The database of the settings for one piece of work, its migrations, and a new epoch."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from muniment.protocol.errors import AnotherRevision, DatabaseUnavailable, Unavailable
from muniment.service.running.directory_lock import locked_directory
from muniment.service.storage import epoch, is_away, open_database, sqlite_file
from muniment.service.storage.sqlite.revision import refuse_another_revision as refuse_file

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
    from pathlib import Path

    from muniment.service.running.settings import Settings
    from muniment.service.storage.database import Database

# A starting program waits this long for its database: a restart takes seconds, a failover half a minute. After that
# the supervisor restarts the program.
START_PATIENCE_S: Final = 60.0
_PAUSE_S: Final = 1.0
_LOG_EVERY_S: Final = 10.0

_log = structlog.get_logger(__name__)
T = TypeVar("T")


@asynccontextmanager
async def opened(settings: Settings) -> AsyncGenerator[Database]:
    """The database of the settings. Raises `ValueError` for a URL of no known engine."""
    database = open_database(settings.database_url, data_dir=settings.data_dir)
    try:
        yield database
    finally:
        await close(database)


async def close(database: Database) -> None:
    """Close the database of a command, once services see what it wrote: what it revoked is refused when it ends."""
    await database.until_seen()
    await database.close()


def run(settings: Settings, work: Callable[[Database], Awaitable[T]]) -> T:
    """The result of `work` with the database, whose schema is checked first. Raises `Refusal` and `ValueError`."""

    async def checked() -> T:
        async with opened(settings) as database:
            await database.check()
            return await work(database)

    return asyncio.run(checked())


def migrate(settings: Settings, *, patience_s: float = 0.0) -> list[str]:
    """Apply the missing migrations and return their names.

    Waits at most `patience_s` for a server that does not answer. Raises `DatabaseUnavailable` after that, and at once
    for a permanent error such as a wrong password.
    """

    async def apply() -> list[str]:
        async with opened(settings) as database:
            return await database.migrate()

    async def apply_with_patience() -> list[str]:
        loop = asyncio.get_running_loop()
        deadline_s, logged_s = loop.time() + patience_s, float("-inf")
        while True:
            try:
                return await apply()
            except DatabaseUnavailable as error:
                left_s = deadline_s - loop.time()
                if left_s <= 0 or not is_away(settings.database_url, error):
                    raise
                if loop.time() - logged_s >= _LOG_EVERY_S:
                    logged_s = loop.time()
                    _log.warning("waiting for the database", detail=error.detail, seconds_left=round(left_s))
            await asyncio.sleep(min(_PAUSE_S, left_s))

    return asyncio.run(apply_with_patience())


def refuse_another_revision(settings: Settings) -> None:
    """Raise `AnotherRevision` for a database that another revision made, before anything is written.

    Returns where a server does not answer, or lacks migrations: whoever uses it says so.
    """
    if (path := sqlite_file(settings.database_url, data_dir=settings.data_dir)) is not None:
        refuse_file(path)
        return

    async def look() -> None:
        async with opened(settings) as database:
            try:
                await database.check()
            except AnotherRevision:
                raise
            except Unavailable:
                return

    asyncio.run(look())


@contextmanager
def served_alone(settings: Settings) -> Generator[None]:
    """Keep other services from the data directory, and from an SQLite file elsewhere, within the block.

    Raises `ValueError` with the id of the process that serves, or `OSError`.
    """
    directories = [settings.data_dir]
    if (file := sqlite_file(settings.database_url, data_dir=settings.data_dir)) is not None:
        place = file.resolve().parent
        if place != settings.data_dir.resolve():
            directories.append(place)
    with ExitStack() as locks:
        for directory in directories:
            locks.enter_context(locked_directory(directory))
        yield


def renew_epoch(settings: Settings) -> float:
    """Begin a new epoch, which ends all earlier cursors. Return the seconds until running services use it."""
    run(settings, lambda database: database.write(lambda tx: epoch.renew(tx, new_epoch())))
    return epoch.FRESH_SECONDS


def begin_epoch_in_file(path: Path) -> None:
    """Begin a new epoch in an SQLite file that no other process has open, and leave it on disk without a log.

    Raises `DatabaseUnavailable`.
    """
    url = f"sqlite:///{path.absolute()}"

    async def begin() -> None:
        database = open_database(url, data_dir=path.parent)
        try:
            await database.write(lambda tx: epoch.renew(tx, new_epoch()))
        finally:
            await database.close()

    asyncio.run(begin())


def new_epoch() -> int:
    """A random number for a new epoch."""
    return secrets.randbelow(epoch.NUMBERS)
