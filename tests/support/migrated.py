"""An SQLite file with every migration and no row, to copy: it is made in a fifteenth of a migration's time."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from muniment.service.running.settings import Settings
from muniment.service.storage import open_database


@cache
def migrated_sqlite() -> Path:
    """The file, which is made once; a test has a copy."""
    directory = Path(tempfile.mkdtemp(prefix="migrated-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)

    async def migrated() -> None:
        database = open_database(Settings().database_url, data_dir=directory)
        await database.migrate()
        await database.close()

    with ThreadPoolExecutor(1) as alone:  # the caller may have an event loop
        alone.submit(asyncio.run, migrated()).result()
    return directory / "muniment.db"


def migrated_directory(directory: Path) -> None:
    """Make the data directory of a registry without a row, unless it is there."""
    if not directory.exists():
        directory.mkdir(mode=0o700, parents=True)
        shutil.copy2(migrated_sqlite(), directory)
