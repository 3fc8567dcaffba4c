"""Checks of the machine: libraries, descriptors, disks, and the files of the data directory."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import statistics
import time
from contextlib import suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from muniment import durable
from muniment.operate.backup_format import find_description
from muniment.operate.doctor.findings import Finding, fail, ok, warn
from muniment.service.app import directories_of
from muniment.service.auth.secrets import RING_FILE, parse_secrets
from muniment.service.running.environment import unread_variables
from muniment.service.running.limits.disk import UPLOAD_RESERVES, reserve_of
from muniment.service.running.settings import MIB, SettingError
from muniment.service.storage import sqlite_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from muniment.operate.doctor.findings import Examined
    from muniment.service.running.settings import Settings

# A connection takes a descriptor; files, the database and outgoing requests take some hundred more.
DESCRIPTORS_MIN: Final = 1_024
DESCRIPTORS_SPARE: Final = 128
# Below this share of free bytes or inodes an operator has days, not months.
FREE_SHARE_MIN: Final = 0.1
# A commit waits for one fsync. A disk with a battery or flash takes 0.1 to 5 ms.
FSYNC_SECONDS_MAX: Final = 0.05
_FSYNC_TRIES: Final = 5
# Their locks and shared memory do not work between machines (https://sqlite.org/wal.html, section 1).
_NETWORK_FILE_SYSTEMS: Final = re.compile(r"nfs4?|cifs|smb3?|smbfs|9p|ceph|glusterfs|lustre|afs|fuse\.(?!overlay).*")
_MORE_SPACE: Final = "free space on the file system of {}, or enlarge it"
_INSTALL: Final = "reinstall: pip install --upgrade 'muniment[server]'"
_OTHERS: Final = 0o077
# The service copies the log into the database at 32 MiB. A reader that never ends makes it longer.
LOG_BYTES_MAX: Final = 1024 * MIB
# A backup every night, and two hours for making it.
AGE_HOURS_MAX: Final = 26
# Clocks differ by seconds. A backup that is further ahead was made by a wrong clock.
_AHEAD_HOURS_MAX: Final = 0.1


def check_libraries(_: Examined, *, tested: Mapping[str, str] | None = None) -> Finding:
    """Whether no library is older than `tested`: by default the versions in the bill of materials of the package."""
    older: list[str] = []
    newer: list[str] = []
    for name, expected in (tested_versions() if tested is None else tested).items():
        with suppress(PackageNotFoundError):  # those of optional extras may be absent
            installed = version(name)
            if _numbers(installed) != _numbers(expected):
                found = older if _numbers(installed) < _numbers(expected) else newer
                found.append(f"{name} {installed} ({expected})")
    if older:
        return warn(f"older than the tested versions: {', '.join(older)}", _INSTALL)
    shown = f"at least the versions tested with muniment {version('muniment')}"
    return ok(f"{shown}; newer: {', '.join(newer)}" if newer else shown)


def tested_versions() -> dict[str, str]:
    """The version of each library in the bill of materials that comes with the package (PEP 770)."""
    text = distribution("muniment").read_text("sboms/muniment.cdx.json")
    return {each["name"]: each["version"] for each in json.loads(text)["components"]} if text else {}


def _numbers(text: str) -> list[int]:
    """The numbers of a version (PEP 440), before its local part."""
    return [int(number) for number in re.findall(r"[0-9]+", text.partition("+")[0])]


def check_environment(_: Examined, *, environ: Mapping[str, str] | None = None) -> Finding:
    """Whether each variable that begins like a setting is one. Values are not shown: they may be secrets."""
    given = os.environ if environ is None else environ
    if found := unread_variables(name for name, value in given.items() if value):
        return warn(f"nothing reads {', '.join(found)}", "correct the names, or remove the variables")
    return ok("each variable is known")


def check_descriptors(examined: Examined) -> Finding:
    """Whether a process may open enough files. The service raises its soft limit to the hard limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = max(DESCRIPTORS_MIN, examined.settings.connections_max + DESCRIPTORS_SPARE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        return warn(f"the hard limit of open files is {hard}; {needed} are needed",
            "raise LimitNOFILE= of the unit, or `ulimit -Hn` where the service starts",
        )  # fmt: skip
    limit = "none" if hard == resource.RLIM_INFINITY else str(hard)
    return ok(f"limit of open files in this shell: {limit}")


def check_space(examined: Examined) -> list[Finding]:
    """Whether each disk that the service stores on has free space beyond its reserve, and free inodes."""
    directories, by_disk = _directories(examined.settings), dict[int, Path]()
    for directory in directories:
        with suppress(OSError):
            by_disk.setdefault(directory.stat().st_dev, directory)
    disks = [*by_disk.values()] or directories[:1]
    return [*map(space_at, disks), *(found for each in disks for found in _inodes_at(each))]


def _directories(settings: Settings) -> list[Path]:
    """Where the service stores, each directory once."""
    try:
        return list(dict.fromkeys(directories_of(settings)))
    except ValueError:  # the check of the blocks reports a wrong setting
        return [settings.data_dir]


def space_at(directory: Path) -> Finding:
    """What is free at `directory` and kept for deactivations and log-ins, and the refusals if it is too little."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError as error:
        return fail(f"{directory} cannot be read: {error.strerror}", "mount its volume, or name another")
    reserve = reserve_of(usage.total)
    uploads = UPLOAD_RESERVES * reserve
    shown = f"{usage.free // MIB:,} MiB free at {directory}, of which {reserve // MIB:,} MiB are kept"
    remedy = f"free space on its file system, or enlarge it: uploads need {uploads // MIB:,} MiB free"
    if usage.free < reserve:
        reason = f"{shown}: new records are refused, except deactivations and log-ins"
        return fail(reason, remedy)
    if usage.free < uploads:
        return warn(f"{shown}: uploads are refused", remedy)
    shown = f"{shown} for deactivations and log-ins"
    is_low = usage.free < FREE_SHARE_MIN * usage.total
    return warn(shown, _MORE_SPACE.format(directory)) if is_low else ok(shown)


def _inodes_at(directory: Path) -> Iterator[Finding]:
    with suppress(OSError):  # `space_at` reports it
        disk = os.statvfs(directory)
        if not disk.f_files:
            yield ok(f"no limit at {directory}", check="inodes")
            return
        share = disk.f_favail / disk.f_files
        shown, is_low = f"{disk.f_favail:,} ({share:.0%}) free at {directory}", share < FREE_SHARE_MIN
        yield warn(shown, _MORE_SPACE.format(directory), check="inodes") if is_low else ok(shown, check="inodes")


def check_fsync(examined: Examined, *, seconds_max: float = FSYNC_SECONDS_MAX) -> Finding:
    """The time of an fsync in the data directory, with a nameless file, which is gone afterwards."""
    directory, times = examined.settings.data_dir, list[float]()
    try:
        for _ in range(_FSYNC_TRIES):
            began = time.perf_counter()
            durable.prove_writing(directory)
            times.append(time.perf_counter() - began)
    except OSError as error:
        reason = f"this user cannot write to {directory}: {error.strerror}"
        return fail(reason, "run doctor as the service's user; else repair the mode, the owner or the disk")
    shown = f"{statistics.median(times) * 1000:.1f} ms"
    if statistics.median(times) > seconds_max:
        return warn(f"{shown}: every commit waits for one", "use a local disk with a flash or battery cache")
    return ok(shown)


def check_file_systems(examined: Examined, *, mounts: str | None = None) -> list[Finding]:
    """Whether data and blocks are on local disks; `mounts` is the text of /proc/self/mountinfo (proc(5))."""
    try:
        text = Path("/proc/self/mountinfo").read_text("utf-8", "replace") if mounts is None else mounts
    except OSError:
        return [ok("unknown: this system has no /proc")]
    settings, data = examined.settings, examined.settings.data_dir
    database = sqlite_file(settings.database_url, data_dir=data)
    return [
        _file_system_at(directory, text, holds_database=database is not None and directory == database.parent)
        for directory in (data, *(each for each in _directories(settings) if not each.is_relative_to(data)))
    ]


def _file_system_at(directory: Path, mounts: str, *, holds_database: bool) -> Finding:
    kind = _file_system(directory.resolve(), mounts)
    if not _NETWORK_FILE_SYSTEMS.fullmatch(kind):
        return ok(f"{kind or 'unknown'} at {directory}")
    message = f"{directory} is on the network file system {kind}"
    if holds_database:
        return fail(message, "keep an SQLite database on a local disk, or use PostgreSQL")
    return warn(message, "use a local disk, or keep the blocks in the database")


def _file_system(directory: Path, mounts: str) -> str:
    """The type of the file system that was mounted last at the mount point nearest to `directory`."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        place = Path(before.split()[4].replace(r"\040", " "))
        if directory.is_relative_to(place) and len(place.parts) >= best:
            best, kind = len(place.parts), after.split()[0]
    return kind


def check_secrets(examined: Examined) -> Finding:
    """Whether the file of secrets can be read, and only by its owner."""
    settings = examined.settings
    if settings.secret:
        try:
            return ok(f"{len(parse_secrets(settings.secret))} in the setting")
        except SettingError as error:
            return fail(str(error), "repair MUNIMENT_SECRET, or the file that MUNIMENT_SECRET_FILE names")
    path = settings.data_dir / RING_FILE
    try:
        count = len(parse_secrets(path.read_text("ascii")))
        mode = path.stat().st_mode
    except FileNotFoundError:
        return warn("not found", "`muniment serve` makes them; after a restore, look at the backup")
    except (OSError, UnicodeDecodeError, SettingError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is damaged"
        return fail(f"{path} cannot be read: {reason}", "restore the file from a backup")
    if mode & _OTHERS:
        remedy = f"chmod 600 {path}; then `muniment secrets rotate` and `retire`: others may know the secrets"
        return fail(f"other users can read {path}", remedy)
    return ok(f"{count} in {path}")


def check_modes(examined: Examined) -> Finding:
    """Whether other users cannot enter the data directory, which has emails and profiles."""
    directory = examined.settings.data_dir
    if directory.is_dir() and directory.stat().st_mode & _OTHERS:
        return warn(f"other users can enter {directory}", f"chmod -R go= {directory}")
    return ok(f"{directory} is private")


def check_write_ahead_log(examined: Examined) -> list[Finding]:
    """Whether the write-ahead log of an SQLite database has a usual length."""
    path = sqlite_file(examined.settings.database_url, data_dir=examined.settings.data_dir)
    if path is None:
        return []
    status = _status(path.with_name(f"{path.name}-wal"))
    length = 0 if status is None else status.st_size
    shown = f"{length // MIB:,} MiB"
    if length > LOG_BYTES_MAX:
        return [warn(shown, "end the program that holds a read transaction open (a backup, a sqlite3 shell)")]
    return [ok(shown)]


def check_file_rights(examined: Examined) -> list[Finding]:
    """Whether this user may write the files of an SQLite database."""
    path = sqlite_file(examined.settings.database_url, data_dir=examined.settings.data_dir)
    if path is None:
        return []
    files = [path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))]
    closed = [str(each) for each in (path.parent, *files) if _is_closed(each)]
    if closed:
        remedy = "run doctor as the service's user; else repair owner and mode, or mount the disk for writing"
        return [fail(f"this user cannot write {', '.join(closed)}", remedy)]
    owner = _owner(path.parent)
    strange = [str(each) for each in files if _owner(each) not in {None, owner}]
    if strange:
        remedy = "run every command as the service's user; chown these files to it"
        return [warn(f"the owner of the directory does not own {', '.join(strange)}", remedy)]
    return [ok("this user may write the database")]


def _is_closed(path: Path) -> bool:
    """Whether the file exists and cannot be written.

    SQLite may replace its log at any moment. So a refusal counts only if the file is the same before and after it.
    """
    before = _status(path)
    if before is None or os.access(path, os.W_OK):
        return False
    after = _status(path)
    return after is not None and os.path.samestat(before, after)


def _owner(path: Path) -> int | None:
    status = _status(path)
    return None if status is None else status.st_uid


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def check_backup(examined: Examined) -> Finding:
    """Whether the named directory has a backup of the last night, or without a name, the time of `last-backup`."""
    if examined.backup is not None:
        return _check_directory(examined.backup, examined.now_s)
    mark, now_s = examined.settings.backup_mark, examined.now_s
    remedy = f"run `muniment backup DIRECTORY` every night; after other backups, touch {mark}"
    try:
        made_s = mark.stat().st_mtime
    except FileNotFoundError:
        return warn("not found: no backup was made, or by another tool", remedy)
    except OSError as error:
        return fail(f"{mark} cannot be read: {error.strerror}", remedy)
    return _judge_age(made_s, now_s, remedy)


def _check_directory(directory: Path, now_s: float) -> Finding:
    remedy = f"run `muniment backup {directory}`, every night"
    try:
        found = find_description(directory)
        if found is None:
            return fail(f"not found in {directory}", remedy)
        return _judge_age(datetime.fromisoformat(found.made_at).timestamp(), now_s, remedy)
    except (OSError, ValueError) as error:
        return fail(str(error), remedy)


def _judge_age(made_s: float, now_s: float, remedy: str) -> Finding:
    hours = (now_s - made_s) / 3600
    if hours < -_AHEAD_HOURS_MAX:
        return warn(f"its time is {-hours:.1f} hours in the future", "set the clock; then back up again")
    shown = f"{max(hours, 0):.0f} hours old"
    return warn(shown, remedy) if hours > AGE_HOURS_MAX else ok(shown)
