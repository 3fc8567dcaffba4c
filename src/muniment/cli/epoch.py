"""`muniment epoch renew`: refuse the cursors of a state that is gone."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from muniment.storage import epoch, open_database

if TYPE_CHECKING:
    from pathlib import Path

    from muniment.settings import Settings


def renew(settings: Settings) -> str:
    """Begin another epoch; what to tell the operator."""

    async def run() -> None:
        database = open_database(settings.database_url, data_dir=settings.data_dir)
        try:
            await database.check()
            await database.write(lambda tx: epoch.renew(tx, new_number()))
        finally:
            await database.close()

    asyncio.run(run())
    return (
        "another epoch has begun: every cursor that was given out before is refused (410 cursor-too-old), by services "
        f"that run within {epoch.FRESH_SECONDS:g} seconds; whoever follows a listing begins it again"
    )


def begin_in_file(path: Path) -> None:
    """Begin another epoch in an SQLite file that nobody else has open; durable, with no log, when this returns.

    A file of a release that had no epochs is migrated: else the first epoch would begin there later, in which cursors
    of before are good. Raises `DatabaseUnavailable`.
    """
    url = f"sqlite:///{path.absolute()}"

    async def run() -> None:
        database = open_database(url, data_dir=path.parent)
        try:
            if not await database.fetch("SELECT 1 FROM schema_migrations WHERE name = ?", (epoch.MIGRATION,)):
                await database.migrate()
            await database.write(lambda tx: epoch.renew(tx, new_number()))
        finally:
            await database.close()

    asyncio.run(run())


def new_number() -> int:
    """The number of an epoch that is about to begin."""
    return secrets.randbelow(epoch.NUMBERS)
