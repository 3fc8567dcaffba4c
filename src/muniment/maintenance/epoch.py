"""A new epoch: it ends every cursor that was made before."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING

from muniment.maintenance import databases
from muniment.pins import queue
from muniment.storage import epoch, open_database

if TYPE_CHECKING:
    from pathlib import Path

    from muniment.settings import Settings
    from muniment.storage.database import Transaction


def renew(settings: Settings) -> float:
    """Begin a new epoch. The result is the number of seconds until running services use it."""
    databases.run(settings, lambda database: database.write(_renew))
    return epoch.FRESH_SECONDS


def begin_in_file(path: Path) -> None:
    """Begin a new epoch in an SQLite file that no other process has open. The file is on disk, without a log, after it.

    Raises `DatabaseUnavailable`.
    """
    url = f"sqlite:///{path.absolute()}"

    async def begin() -> None:
        database = open_database(url, data_dir=path.parent)
        try:
            await database.write(_renew)
        finally:
            await database.close()

    asyncio.run(begin())


async def _renew(tx: Transaction) -> None:
    """Begin a new epoch. The IPFS node is asked again about every pin: it may have lost data too."""
    await epoch.renew(tx, new_number())
    await queue.recheck(tx, time.time_ns() // 1_000_000)


def new_number() -> int:
    """A random number for a new epoch."""
    return secrets.randbelow(epoch.NUMBERS)
