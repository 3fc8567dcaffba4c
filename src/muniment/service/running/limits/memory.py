"""Memory that all processes of a data directory share: two rows of times for each policy.

A bucket has one of a fixed number of slots in each row, so the memory neither grows nor drops a bucket. The slots come
from a keyed hash, with a random key in the file's head: an attacker cannot find names that share a slot.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Address, ip_address
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import structlog

from muniment.service.running.limits.policies import NAMES, Name
from muniment.service.running.shared_memory import Cells, SharedFile

if TYPE_CHECKING:
    from pathlib import Path

# Its name in the data directory.
MEMORY_FILE: Final = "rate-limits"
# With a thousand buckets in use, another finds both of its slots taken once in 4,300 times. 1 MiB a policy.
ROW: Final = 65_536
_TABLE_BYTES: Final = 2 * ROW * 8
_KEY_BYTES: Final = 32
# The mark of this layout. A file without it is overwritten: its counts matter for minutes only.
_MARK: Final = b"muniment rates 1"
_HEAD_BYTES: Final = 4_096
# In the head, after mark and key: a proxy that is missing in `trusted_proxies`. Unix seconds, length, address.
_PROXY: Final = struct.Struct("<qB45s")
_PROXY_PLACE: Final = 64
# The year 2242, later than any working clock.
_UNIX_S_MAX: Final = 2**33
_BYTES: Final = _HEAD_BYTES + len(NAMES) * _TABLE_BYTES

Table: TypeAlias = "memoryview[int] | Cells"

_log = structlog.get_logger(__name__)


class Memory:
    """A table of times for each policy, in nanoseconds of the machine's monotonic clock; 0 if unused.

    No lock is taken: a process that is suspended in a charge may undo what others charged meanwhile.
    """

    def __init__(self, file: SharedFile | None, key: bytes, *, is_new: bool = True) -> None:
        """Use `file`, or memory of this process alone; `is_new`: its tables are empty."""
        self._file, self._key, self._is_new = file, key, is_new
        self._tables: dict[Name, Table] = {
            name: memoryview(mmap(-1, _TABLE_BYTES, MAP_ANONYMOUS | MAP_PRIVATE)).cast("q")
            if file is None
            else Cells(file, _start_of(name))
            for name in NAMES
        }

    @classmethod
    def of_process(cls) -> Self:
        """Memory of this process alone."""
        return cls(None, os.urandom(_KEY_BYTES))

    @classmethod
    def at(cls, path: Path) -> Self:
        """Share the file at `path`. Raises `OSError`."""
        file = SharedFile(path, _BYTES)
        fcntl.flock(file.descriptor, fcntl.LOCK_EX)
        try:
            is_new = file.read(0, len(_MARK)) != _MARK
            if is_new:
                file.write(0, bytes(_BYTES))
                file.write(len(_MARK), os.urandom(_KEY_BYTES))
                file.write(0, _MARK)  # last: without it, the next process begins again
            return cls(file, file.read(len(_MARK), _KEY_BYTES), is_new=is_new)
        finally:
            fcntl.flock(file.descriptor, fcntl.LOCK_UN)

    def table(self, name: Name) -> Table:
        """The times of a policy: the second row begins at `ROW`."""
        return self._tables[name]

    def slots(self, bucket: str) -> tuple[int, int]:
        """The places of `bucket` in a table, one in either row."""
        digest = blake2b(bucket.encode(), digest_size=4, key=self._key).digest()
        return int.from_bytes(digest[:2]), ROW + int.from_bytes(digest[2:])

    def note_proxy(self, address: IPv4Address | IPv6Address, unix_s: int) -> None:
        """Remember that a proxy at `address` forwards requests and is not trusted; `find_proxy` reads it."""
        text = str(address).encode()[:45]
        if self._file is not None:
            with suppress(OSError):
                self._file.write(_PROXY_PLACE, _PROXY.pack(unix_s, len(text), text))

    def forget_after(self, name: Name, time_ns: int) -> None:
        """Empty the table of a policy where something in it is later than `time_ns`.

        After a restart of the machine its monotonic clock begins anew, and the older times would lie in the future.
        """
        if self._file is None or self._is_new:
            return
        with suppress(OSError):
            if max(memoryview(self._file.read(_start_of(name), _TABLE_BYTES)).cast("q")) > time_ns:
                self._file.write(_start_of(name), bytes(_TABLE_BYTES))


def find_proxy(path: Path) -> tuple[IPv4Address | IPv6Address, int] | None:
    """The last untrusted proxy in the file at `path`, and when it was seen (Unix seconds); None for any other file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            head = file.read(_HEAD_BYTES)
        unix_s, length, text = _PROXY.unpack_from(head, _PROXY_PLACE)
        is_ours = head.startswith(_MARK) and 0 < unix_s < _UNIX_S_MAX
        return (ip_address(text[:length].decode("ascii")), unix_s) if is_ours else None
    except (OSError, ValueError, struct.error):
        return None


def open_memory(path: Path) -> Memory:
    """The memory at `path`; if that fails, memory of this process alone, with a warning."""
    try:
        return Memory.at(path)
    except OSError as error:
        _log.warning("rate limits are counted by each process for itself", reason=str(error))
        return Memory.of_process()


def _start_of(name: Name) -> int:
    return _HEAD_BYTES + NAMES.index(name) * _TABLE_BYTES
