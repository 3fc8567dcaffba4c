"""The check of a backup's age."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from muniment.maintenance.backup_format import find_description
from muniment.maintenance.doctor.findings import Finding, fail, ok, warn

if TYPE_CHECKING:
    from pathlib import Path

    from muniment.settings import Settings

# A backup every night, and two hours for making it.
AGE_HOURS_MAX: Final = 26
# Clocks differ by seconds. A backup that is further ahead was made while a clock was wrong.
_AHEAD_HOURS_MAX: Final = 0.1


def check_backup(settings: Settings, directory: Path | None, *, now_s: float) -> Finding:
    """Whether `directory` has a backup of the last night; with None, whether one was noted in the data directory."""
    if directory is not None:
        return _check_directory(directory, now_s)
    mark = settings.backup_mark
    remedy = f"run `muniment backup DIRECTORY` every night; after other backups, touch {mark}"
    try:
        made_s = mark.stat().st_mtime
    except FileNotFoundError:
        return warn("backup", "none was made of this registry, or another tool made it", remedy)
    except OSError as error:
        return fail("backup", f"{mark} cannot be read: {error.strerror}", remedy)
    return _judge(made_s, now_s, remedy)


def _check_directory(directory: Path, now_s: float) -> Finding:
    remedy = f"run `muniment backup {directory}`, every night"
    try:
        found = find_description(directory)
        if found is None:
            return fail("backup", f"there is none in {directory}", remedy)
        return _judge(datetime.fromisoformat(found.made_at).timestamp(), now_s, remedy)
    except (OSError, ValueError) as error:
        return fail("backup", str(error), remedy)


def _judge(made_s: float, now_s: float, remedy: str) -> Finding:
    hours = (now_s - made_s) / 3600
    if hours < -_AHEAD_HOURS_MAX:
        return warn("backup", f"its time is {-hours:.1f} hours in the future", "set the clock; then back up again")
    shown = f"{max(hours, 0):.0f} hours old"
    return warn("backup", shown, remedy) if hours > AGE_HOURS_MAX else ok("backup", shown)
