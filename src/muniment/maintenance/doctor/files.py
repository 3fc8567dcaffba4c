"""Checks of the settings and of the files of the data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from muniment.auth.secrets import RING_FILE, parse_secrets
from muniment.limits.memory import MEMORY_FILE, find_proxy
from muniment.maintenance.doctor.findings import Finding, fail, ok, warn
from muniment.settings import MIB, SettingError
from muniment.storage import sqlite_file
from muniment.wire import iso_time

if TYPE_CHECKING:
    from pathlib import Path

    from muniment.settings import Settings

_OTHERS: Final = 0o077
# The service copies the log into the database at 32 MiB. A longer log has a reader that never ends.
LOG_BYTES_MAX: Final = 1024 * MIB


def check_secrets(settings: Settings) -> Finding:
    """Whether the ring of secrets can be read, and by its owner only."""
    if settings.secret:
        try:
            return ok("secrets", f"{len(parse_secrets(settings.secret))} in the setting")
        except SettingError as error:
            return fail("secrets", str(error), "repair MUNIMENT_SECRET, or the file that MUNIMENT_SECRET_FILE names")
    path = settings.data_dir / RING_FILE
    try:
        count = len(parse_secrets(path.read_text("ascii")))
        mode = path.stat().st_mode
    except FileNotFoundError:
        return warn("secrets", "there are none", "`muniment serve` makes them; after a restore, look at the backup")
    except (OSError, UnicodeDecodeError, SettingError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is damaged"
        return fail("secrets", f"{path} cannot be read: {reason}", "restore the file from a backup")
    if mode & _OTHERS:
        remedy = f"chmod 600 {path}; then `muniment secrets rotate` and `retire`: others may know the secrets"
        return fail("secrets", f"other users can read {path}", remedy)
    return ok("secrets", f"{count} in {path}")


def check_modes(settings: Settings) -> Finding:
    """Whether other users are kept from the emails and profiles of the data directory."""
    directory = settings.data_dir
    if directory.is_dir() and directory.stat().st_mode & _OTHERS:
        return warn("data directory", f"other users can enter {directory}", f"chmod -R go= {directory}")
    return ok("data directory", f"{directory} is private")


def check_proxies(settings: Settings, url: str) -> Finding:
    """Whether `trusted_proxies` has the proxies that forward requests, and no others; `url` is that for clients."""
    if any(network.prefixlen == 0 for network in settings.proxies):
        return fail(
            "proxies", "trusted_proxies has every address: a client can name any address as its own",
            "name only the networks of your proxies",
        )  # fmt: skip
    if seen := find_proxy(settings.data_dir / MEMORY_FILE):
        address, unix_s = seen
        if not any(address in network for network in settings.proxies):
            day = iso_time(unix_s * 1000)[:10]
            return warn(
                "proxies", f"{address} forwarded requests (noted on {day}) and is not in trusted_proxies: all its "
                "clients share one rate limit",
                "if this is your proxy, name its network in MUNIMENT_TRUSTED_PROXIES and restart; if it was not, stop "
                f"the service and remove {settings.data_dir / MEMORY_FILE}",
            )  # fmt: skip
    if not settings.proxies and (settings.listens_beyond_this_machine or url.startswith("https:")):
        return warn(
            "proxies", "trusted_proxies is empty: behind a proxy all clients share one address and one rate limit",
            "name the network of your proxy in MUNIMENT_TRUSTED_PROXIES",
        )  # fmt: skip
    return ok("proxies", settings.trusted_proxies or "none")


def check_log(settings: Settings, *, bytes_max: int = LOG_BYTES_MAX) -> list[Finding]:
    """Whether the write-ahead log of an SQLite database has a usual length."""
    path = sqlite_file(settings.database_url, data_dir=settings.data_dir)
    if path is None:
        return []
    length = _length(path.with_name(f"{path.name}-wal"))
    shown = f"{length // MIB:,} MiB"
    if length > bytes_max:
        remedy = "end the program that holds a read of the database open (a backup, a shell of sqlite3)"
        return [warn("write-ahead log", shown, remedy)]
    return [ok("write-ahead log", shown)]


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
