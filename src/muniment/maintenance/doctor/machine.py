"""Checks of the machine: the interpreter, the libraries, descriptors, disks."""

from __future__ import annotations

import json
import os
import re
import resource
import statistics
import sysconfig
import time
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from muniment import durable
from muniment.app import DISK_BYTES_MIN
from muniment.limits.disk import UPLOAD_RESERVES, room_at
from muniment.maintenance.doctor.findings import Finding, fail, ok, warn
from muniment.settings import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
_INSTALL: Final = "install again: pip install --upgrade 'muniment[server]'"
# "name>=1.2" of the package's own requirements; names as in PEP 508, versions as far as they are numbers (PEP 440).
_REQUIREMENT: Final = re.compile(r"([\w.-]+)>=([0-9.]+)")
# The extras that few need, for example `s3`: the service itself says at start when one is missing.
_OPTIONAL: Final = re.compile(r"extra == ['\"](?!server)")


def check_interpreter(build: Mapping[str, Any] | None = None) -> Finding:
    """Whether Python was built with optimisation; `build` is the result of `sysconfig.get_config_vars`.

    `--enable-optimizations` is the option of Python's `configure` (https://docs.python.org/3/using/configure.html).
    Debian builds with the Makefile's `profile-opt` in place of the option, so a Python that belongs to /usr is good.
    """
    build = sysconfig.get_config_vars() if build is None else build
    arguments, flags = str(build.get("CONFIG_ARGS") or ""), str(build.get("PY_CFLAGS") or "")
    remedy = "use the Python of your distribution, of python.org's image or of uv"
    if build.get("Py_DEBUG"):
        return warn("interpreter", "this Python is a debug build", remedy)
    levels = re.findall(r"-O(\S*)", flags)
    if flags and levels[-1:] in ([], ["0"]):
        return warn("interpreter", "this Python was compiled without optimisation (-O0)", remedy)
    if arguments and not re.search(r"--enable-optimizations|'--prefix=/usr'", arguments):
        return warn("interpreter", "this Python was built without --enable-optimizations", remedy)
    return ok("interpreter", "built with optimisation")


def check_libraries(requirements: Iterable[str] | None = None, tested: Mapping[str, str] | None = None) -> Finding:
    """Whether each library that the package requires is installed, and not older than allowed or than was tested.

    `requirements` are those of the package, `tested` the versions of its bill of materials, where they are not given.
    """
    wrong: list[str] = []
    for each in (requires("muniment") or []) if requirements is None else requirements:
        match = _REQUIREMENT.match(each)
        if not match or "sys_platform" in each or _OPTIONAL.search(each):
            continue
        name, oldest = match.groups()
        try:
            installed = version(name)
        except PackageNotFoundError:
            wrong.append(f"{name} is not installed")
            continue
        if _numbers(installed) < _numbers(oldest):
            wrong.append(f"{name} {installed} is older than {oldest}")
    if wrong:
        return fail("libraries", "; ".join(wrong), _INSTALL)
    older, newer = _against(tested_versions() if tested is None else tested)
    if older:
        return warn("libraries", f"older than the release was tested with: {', '.join(older)}", _INSTALL)
    shown = f"as muniment {version('muniment')} requires them"
    return ok("libraries", f"{shown}; newer than the release was tested with: {', '.join(newer)}" if newer else shown)


def tested_versions() -> dict[str, str]:
    """The version of each library in the bill of materials that comes with the package (PEP 770)."""
    text = distribution("muniment").read_text("sboms/muniment.cdx.json")
    return {each["name"]: each["version"] for each in json.loads(text)["components"]} if text else {}


def _against(tested: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The installed libraries that are older, and those that are newer. A library that is not needed may be absent."""
    older: list[str] = []
    newer: list[str] = []
    for name, expected in tested.items():
        try:
            installed = version(name)
        except PackageNotFoundError:
            continue
        if _numbers(installed) != _numbers(expected):
            (older if _numbers(installed) < _numbers(expected) else newer).append(f"{name} {installed} ({expected})")
    return older, newer


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", text.partition("+")[0])]


def check_descriptors(connections_max: int) -> Finding:
    """Whether a process may open enough files. The service raises its soft limit to the hard one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = max(DESCRIPTORS_MIN, connections_max + DESCRIPTORS_SPARE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        return warn(
            "descriptors", f"the hard limit of open files is {hard}; {needed} are needed",
            "raise LimitNOFILE= of the unit, or `ulimit -Hn` where the service starts",
        )  # fmt: skip
    limit = "none" if hard == resource.RLIM_INFINITY else str(hard)
    return ok("descriptors", f"limit of open files in this shell: {limit}")


def check_space(directory: Path) -> list[Finding]:
    """Whether the file system of `directory` has free bytes and free inodes."""
    remedy = f"free space on the file system of {directory}, or enlarge it"
    try:
        disk = os.statvfs(directory)
    except OSError as error:
        return [fail("disk", f"{directory} cannot be read: {error.strerror}", "mount its volume, or name another")]
    free = disk.f_bavail * disk.f_frsize
    share = disk.f_bavail / disk.f_blocks if disk.f_blocks else 1.0
    shown = f"{free // MIB:,} MiB ({share:.0%}) free at {directory}"
    if free < DISK_BYTES_MIN:
        space = fail("disk", shown, remedy)
    else:
        space = warn("disk", shown, remedy) if share < FREE_SHARE_MIN else ok("disk", shown)
    if not disk.f_files:
        return [space, ok("inodes", "this file system has no limit of them")]
    share = disk.f_favail / disk.f_files
    shown = f"{disk.f_favail:,} ({share:.0%}) free at {directory}"
    return [space, warn("inodes", shown, remedy) if share < FREE_SHARE_MIN else ok("inodes", shown)]


def check_reserve(directory: Path) -> Finding:
    """Whether more is free at `directory` than is kept for deactivations and log-ins, and what is refused if not."""
    try:
        free, reserve = room_at(directory)
    except OSError as error:
        reason = f"{directory} cannot be read: {error.strerror}"
        return fail("disk reserve", reason, "mount its volume, or name another")
    uploads = UPLOAD_RESERVES * reserve
    shown = f"{free // MIB:,} MiB free at {directory}, of which {reserve // MIB:,} MiB are kept"
    remedy = f"free space on its file system, or enlarge it: uploads are taken from {uploads // MIB:,} MiB free on"
    if free < reserve:
        reason = f"{shown}: uploads and creates are refused, and only deactivations and log-ins are stored"
        return fail("disk reserve", reason, remedy)
    if free < uploads:
        return warn("disk reserve", f"{shown}: uploads are refused", remedy)
    return ok("disk reserve", f"{shown} for deactivations and log-ins")


def check_fsync(directory: Path, *, seconds_max: float = FSYNC_SECONDS_MAX) -> Finding:
    """The time of an fsync in `directory`, with a file that has no name and leaves nothing behind."""
    times: list[float] = []
    try:
        for _ in range(_FSYNC_TRIES):
            began = time.perf_counter()
            durable.prove_writing(directory)
            times.append(time.perf_counter() - began)
    except OSError as error:
        reason = f"{directory} takes no write from this user: {error.strerror}"
        return fail("fsync", reason, "run doctor as the service's user; else repair the mode, the owner or the disk")
    shown = f"{statistics.median(times) * 1000:.1f} ms"
    if statistics.median(times) > seconds_max:
        return warn("fsync", f"{shown}: every commit waits for one", "use a local disk with a flash or battery cache")
    return ok("fsync", shown)


def check_file_system(directory: Path, *, holds_database: bool, mounts: str | None = None) -> Finding:
    """Whether `directory` is on a local disk; `mounts` is the text of /proc/self/mountinfo (proc(5))."""
    try:
        text = Path("/proc/self/mountinfo").read_text("utf-8", "replace") if mounts is None else mounts
    except OSError:
        return ok("file system", "unknown: this system has no /proc")
    kind = _file_system(directory.resolve(), text)
    if not _NETWORK_FILE_SYSTEMS.fullmatch(kind):
        return ok("file system", f"{kind or 'unknown'} at {directory}")
    message = f"{directory} is on the network file system {kind}"
    if holds_database:
        return fail("file system", message, "keep an SQLite database on a local disk, or use PostgreSQL")
    return warn("file system", message, "every upload waits for the network; blocks may also be in the database")


def _file_system(directory: Path, mounts: str) -> str:
    """The type of the file system that was mounted last among those whose mount point is nearest to `directory`."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        place = Path(before.split()[4].replace(r"\040", " "))
        if directory.is_relative_to(place) and len(place.parts) >= best:
            best, kind = len(place.parts), after.split()[0]
    return kind
