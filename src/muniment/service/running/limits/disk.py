"""The reserve of disk for deactivations and log-ins: below it, all other additions are refused.

Wallets cost nothing, so anyone may add records. Without a reserve a stranger could fill the disk, and deactivations
would fail.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import structlog

from muniment.protocol.errors import DiskAlmostFull

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# A deactivation of a hundred of the longest triggers writes 30 MB, into the log of the database and then the file. The
# log itself grows by some hundred megabytes while a long read keeps it.
_RESERVE_BYTES_MAX: Final = 2**30
_RESERVE_SHARE: Final = 8
# Uploads end at twice the reserve: those that have begun, each up to a further piece, must not use it up.
UPLOAD_RESERVES: Final = 2
# Wallets cost nothing, so log-ins of strangers would use up the reserve too.
LOGIN_RESERVES: Final = 0.25
# An operator has to free space.
_RETRY_AFTER_S: Final = 60

_log = structlog.get_logger(__name__)


def reserve_of(size: int) -> int:
    """The reserve on a disk of `size` bytes: an eighth of it, at most 1 GiB."""
    return min(size // _RESERVE_SHARE, _RESERVE_BYTES_MAX)


class DiskReserve:
    """The disks that a process stores on, without those of a PostgreSQL server or a bucket.

    Asking takes some microseconds for each disk.
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        """`directories` are those of the data, of an SQLite file and of blocks."""
        self._directories = tuple({_disk_of(each): str(each) for each in directories}.values())
        # Whether the last upload, and the last other record, was refused. A change is logged.
        self._refused = {LOGIN_RESERVES: False, 1: False, UPLOAD_RESERVES: False}

    @property
    def is_used(self) -> bool:
        """Whether only deactivations and log-ins are stored."""
        return self._is_any_below(1)

    def require(self) -> None:
        """Return when another record may be added. Raises `DiskAlmostFull`."""
        self._require(1)

    def require_for_upload(self) -> None:
        """Return when a piece of an upload, of a megabyte or so, may be stored. Raises `DiskAlmostFull`."""
        self._require(UPLOAD_RESERVES)

    def require_for_login(self) -> None:
        """Return when a log-in may be stored: the last quarter of the reserve is for deactivations alone.

        Raises `DiskAlmostFull`.
        """
        self._require(LOGIN_RESERVES)

    def _require(self, reserves: float) -> None:
        is_below = self._is_any_below(reserves)
        if is_below != self._refused[reserves]:
            self._refused[reserves] = is_below
            kind = {UPLOAD_RESERVES: "uploads", LOGIN_RESERVES: "log-ins"}.get(reserves, "creates")
            _log.error("the disk is almost full", refused=kind) if is_below else _log.info("the disk has room again")
        if is_below:
            raise DiskAlmostFull(
                "the disk of this registry is almost full, and what is left is kept for deactivations and log-ins; "
                "tell the operator, and try again later",
                facts={"retryAfter": _RETRY_AFTER_S},
            )

    def _is_any_below(self, reserves: float) -> bool:
        return any(_is_below(each, reserves) for each in self._directories)


def _disk_of(directory: Path) -> object:
    """Equal for directories with the same free bytes: their device, and its size, which a quota on one may change."""
    try:
        return directory.stat().st_dev, shutil.disk_usage(directory).total
    except OSError:  # the directory does not exist yet
        return directory


def _is_below(directory: str, reserves: float) -> bool:
    """Whether less than so many reserves is free on the disk of a directory."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:  # the directory does not exist: the write itself fails, or creates it
        return False
    return usage.free < reserves * reserve_of(usage.total)
