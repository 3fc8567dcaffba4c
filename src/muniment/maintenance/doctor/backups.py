"""The check of a backup's age."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from muniment.maintenance.backup_format import find_description
from muniment.maintenance.doctor.findings import Finding, fail, ok, warn

if TYPE_CHECKING:
    from pathlib import Path

# A backup every night, and two hours for making it.
AGE_HOURS_MAX: Final = 26


def check_backup(directory: Path | None, *, now_s: float) -> Finding:
    """Whether `directory` has a backup of the last night. None: the operator named no directory."""
    if directory is None:
        return ok("backup", "not looked at: name its directory with --backup")
    remedy = f"run `muniment backup {directory}`, every night"
    try:
        found = find_description(directory)
    except (OSError, ValueError) as error:
        return fail("backup", str(error), remedy)
    if found is None:
        return fail("backup", f"there is none in {directory}", remedy)
    hours = (now_s - datetime.fromisoformat(found.made_at).timestamp()) / 3600
    shown = f"{hours:.0f} hours old"
    return warn("backup", shown, remedy) if hours > AGE_HOURS_MAX else ok("backup", shown)
