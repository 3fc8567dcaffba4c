"""The database of the settings, opened for one piece of work and closed after it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from muniment.storage import numbering_of, open_database

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from muniment.settings import Settings
    from muniment.storage.database import Database
    from muniment.storage.postgres.admin.numbering import Numbering, Way

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


def migrate(settings: Settings) -> list[str]:
    """Apply the missing migrations. The result is their names."""

    async def apply() -> list[str]:
        async with opened(settings) as database:
            return await database.migrate()

    return asyncio.run(apply())


def way_of_numbering(settings: Settings) -> Way:
    """The way in which the registry numbers its rows. Raises `Refusal` and `ValueError`."""
    return run(settings, lambda _: _numbering(settings).way())


def number_by(settings: Settings, way: Way) -> bool:
    """Number rows in this way from now on; whether another way was in use. Raises `Refusal` and `ValueError`."""
    return run(settings, lambda _: _numbering(settings).use(way))


def _numbering(settings: Settings) -> Numbering:
    if (numbering := numbering_of(settings.database_url)) is None:
        raise ValueError("SQLite has one writer at a time, which numbers the rows: there is no other way")
    return numbering
