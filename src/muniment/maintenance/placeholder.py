"""A placeholder stands at the database's path until a restore is complete.

It is no database, so the service cannot start from it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from muniment import durable
from muniment.maintenance.backup_format import lock

PLACEHOLDER: Final = b"This is no database: `muniment restore` has not finished here. Run it again.\n"
_SUFFIX: Final = ".mark"


@contextmanager
def reserved(place: Path) -> Generator[None]:
    """Reserve the path of the database with a placeholder: neither a service nor another restore can use it."""
    if not place.exists():
        aside = place.with_name(f"{place.name}.{secrets.token_hex(8)}{_SUFFIX}")
        try:
            durable.write_file(aside, PLACEHOLDER)
            with suppress(FileExistsError):  # another command was faster; the check below finds out which
                os.link(aside, place)
        finally:
            aside.unlink(missing_ok=True)
        durable.flush_directory(place.parent)
    with place.open("rb") as mark:
        lock(mark.fileno(), fcntl.LOCK_EX, f"another restore is using {place}")
        if not os.path.samestat(os.fstat(mark.fileno()), place.stat()) or not is_placeholder(place):
            raise ValueError(f"{place} exists now: another command made a registry there")
        for left in place.parent.iterdir():
            if left.name.startswith(f"{place.name}.") and left.name.endswith(_SUFFIX):
                left.unlink(missing_ok=True)
        yield


def is_placeholder(place: Path) -> bool:
    """Whether the file at `place` is a placeholder. Raises `OSError`."""
    with place.open("rb") as file:
        return file.read(len(PLACEHOLDER) + 1) == PLACEHOLDER
