"""Gauges of the whole registry that are slow to read: readiness, the disk, SQLite's log, the last backup."""

from __future__ import annotations

import math
import shutil
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from muniment.errors import Unavailable
from muniment.storage import sqlite_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.context import Context

# These change slowly, and several monitors may ask.
_AGE_SECONDS_MAX: Final = 15.0


class MachineGauges:
    """Sets the gauges when the metrics are read."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """`now_s` is a clock that only goes forward."""
        self._now_s = now_s
        self._looked_s = -math.inf

    async def look(self, context: Context) -> None:
        """Set the gauges, those of files at most every 15 seconds; unreadable gauges are absent."""
        context.metrics.refresh()
        context.metrics.gauge("ready").set(await _is_ready(context))
        if self._now_s() - self._looked_s < _AGE_SECONDS_MAX:
            return
        self._looked_s = self._now_s()
        context.metrics.gauge("build_info", version=version("muniment")).set(1)
        _look_at_files(context)


async def _is_ready(context: Context) -> bool:
    try:
        await context.check_ready()
    except Unavailable:
        return False
    return True


def _look_at_files(context: Context) -> None:
    metrics, settings = context.metrics, context.settings
    free, size = metrics.gauge("disk_free_bytes"), metrics.gauge("disk_size_bytes")
    log, backup = metrics.gauge("sqlite_wal_bytes"), metrics.gauge("backup_age_seconds")
    for gauge in (free, size, log, backup):
        gauge.forget()
    with suppress(OSError):
        usage = shutil.disk_usage(settings.data_dir)
        free.set(usage.free)
        size.set(usage.total)
    if (file := sqlite_file(settings.database_url, data_dir=settings.data_dir)) is not None:
        with suppress(OSError):
            log.set(file.with_name(f"{file.name}-wal").stat().st_size)
    with suppress(OSError):
        made_s = settings.backup_mark.stat().st_mtime
        backup.set(max(0.0, context.now_ms() / 1000 - made_s))
