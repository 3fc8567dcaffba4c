"""GCRA, the generic cell rate algorithm, over shared memory: one time is the state of a bucket.

At that time the bucket will be empty again if nothing more is charged. A charge of one unit moves it forward by the
time in which a unit drains. A charge that would move it further ahead than a full bucket takes to drain is refused, and
moves nothing. So a client never gets more than one full quota plus the units that drained meanwhile.

All processes of a data directory share the memory: two rows of times for each policy. A bucket has one of a fixed
number of slots in each row, so the memory neither grows nor drops a bucket. The slots come from a keyed hash, with a
random key in the file's head: an attacker cannot find names that share a slot. Another bucket in the same slot can only
raise its time, so the smaller of the two times counts. No lock is taken: a process that is suspended in a charge may
undo what others charged meanwhile.
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

from muniment.protocol.errors import RateLimited
from muniment.service.running.limits.policies import LEVELS, NAMES, Name, lines, refusal_facts
from muniment.service.running.shared_memory import Cells, SharedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from muniment.service.running.limits.policies import Policy

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
    """A table of times for each policy, in nanoseconds of the machine's monotonic clock; 0 if unused."""

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


_SECOND_NS: Final = 1_000_000_000


class Bucket:
    """One limit of one client: an account that requests are charged to."""

    __slots__ = ("_cells", "_first", "_lines", "_rate", "_second", "_unit_ns", "_used_ns", "burst_ns", "now_ns")

    def __init__(self, cells: Table, slots: tuple[int, int], rate: Rate, now_ns: Callable[[], int]) -> None:
        """Count in `cells` at `slots`; `now_ns` is a clock that the machine's processes have in common."""
        self._cells = cells
        self._first, self._second = slots
        self._unit_ns = rate.unit_ns
        self.burst_ns = rate.burst_ns
        self._lines = rate.lines
        self.now_ns = now_ns
        self._used_ns = 0
        self._rate = rate

    def charge(self, units: int) -> int:
        """Take `units` and return 0; or take nothing, and return the nanoseconds until they are available.

        More units than the whole quota are charged as the whole quota. It runs for every request: no calls, no loops.
        """
        now = self.now_ns()
        cells = self._cells
        first, second = cells[self._first], cells[self._second]
        empty = first if first < second else second  # noqa: FURB136 - a call of min takes a tenth of a microsecond
        burst = self.burst_ns
        if empty < now:
            empty = now
        elif empty > now + 2 * burst:  # later than any charge: from before a jump of the clock
            first = second = 0
            empty = now
        added = units * self._unit_ns
        empty += added if added < burst else burst  # noqa: FURB136 - likewise
        used = empty - now
        if used > burst:
            return used - burst
        self._used_ns = used
        self._rate.units += units
        if first < empty:
            cells[self._first] = empty
        if second < empty:
            cells[self._second] = empty
        return 0

    def wait_ns(self, units: int) -> int:
        """The result of `charge` for these units; nothing is taken."""
        now = self.now_ns()
        return max(self.filled_by(units, now) - now - self.burst_ns, 0)

    def check(self, units: int) -> None:
        """Raise `RateLimited` where `charge` would refuse; nothing is taken."""
        if wait_ns := self.wait_ns(units):
            raise self.refusal(wait_ns)

    def owe(self, units: int) -> None:
        """Charge `units` that were used already, without a refusal: a client in debt waits longer next time."""
        self._rate.units += units
        self.debit(units)

    def debit(self, units: int) -> None:
        """Charge a debt without counting it. It is at most the quota, so no wait drains more than twice the quota."""
        now = self.now_ns()
        self.note(min(self.filled_by(0, now) + units * self._unit_ns, now + 2 * self.burst_ns), now)

    def filled_by(self, units: int, now: int) -> int:
        """The time at which the bucket would be empty again after `units` more."""
        cells = self._cells
        first, second = cells[self._first], cells[self._second]
        empty = first if first < second else second  # noqa: FURB136 - a call of min takes a tenth of a microsecond
        burst = self.burst_ns
        if empty < now or empty > now + 2 * burst:
            empty = now
        added = units * self._unit_ns
        return empty + (added if added < burst else burst)  # noqa: FURB136 - likewise

    def note(self, empty: int, now: int) -> None:
        """Store `empty` as the time at which the bucket will be empty."""
        cells, far = self._cells, now + 2 * self.burst_ns
        self._used_ns = empty - now
        noted = cells[self._first]
        if noted < empty or noted > far:
            cells[self._first] = empty
        noted = cells[self._second]
        if noted < empty or noted > far:
            cells[self._second] = empty

    @property
    def lines(self) -> bytes:
        """Header fields with the units that the last charge left, as lines of a head; empty without a limit."""
        level = (self._used_ns * LEVELS - 1) // self.burst_ns
        return self._lines[max(0, min(level, LEVELS - 1))]

    def refusal(self, wait_ns: int) -> RateLimited:
        """The refusal of a request that must wait for `wait_ns`; `limits.policies` has its fields."""
        return self._rate.refusal(wait_ns)


class Joint(Bucket):
    """A bucket with wider ones; a charge needs room in each of them. The header fields describe this one."""

    __slots__ = ("_wider",)

    def __init__(
        self, cells: Table, slots: tuple[int, int], rate: Rate, now_ns: Callable[[], int], wider: Sequence[Bucket]
    ) -> None:
        """As `Bucket`, with the wider ones."""
        super().__init__(cells, slots, rate, now_ns)
        self._wider = tuple(wider)

    def charge(self, units: int) -> int:
        """As `Bucket.charge`; the longest wait of all, a refusal by one bucket takes nothing from the others."""
        now, buckets = self.now_ns(), (self, *self._wider)
        wait = 0
        filled: list[int] = []
        for bucket in buckets:
            empty = bucket.filled_by(units, now)
            wait = max(wait, empty - now - bucket.burst_ns)
            filled.append(empty)
        if wait:
            return wait
        for bucket, empty in zip(buckets, filled, strict=True):
            bucket.note(empty, now)
        self._rate.units += units
        return 0

    def wait_ns(self, units: int) -> int:
        """As `Bucket.wait_ns`."""
        return max(super().wait_ns(units), *(bucket.wait_ns(units) for bucket in self._wider))

    def debit(self, units: int) -> None:
        """As `Bucket.debit`."""
        super().debit(units)
        for bucket in self._wider:
            bucket.debit(units)


class Unlimited:
    """No limit, with the methods of a `Bucket`."""

    __slots__ = ()

    @property
    def lines(self) -> bytes:
        """Always empty."""
        return b""

    def charge(self, units: int) -> int:  # noqa: ARG002 - as `Bucket.charge`
        """Always 0."""
        return 0

    def wait_ns(self, units: int) -> int:  # noqa: ARG002 - as `Bucket.wait_ns`
        """Always 0."""
        return 0

    def check(self, units: int) -> None:
        """Never raises."""

    def owe(self, units: int) -> None:
        """Does nothing."""

    def refusal(self, wait_ns: int) -> RateLimited:
        """Never needed."""
        raise NotImplementedError


# The account that a request is charged to.
Key: TypeAlias = Bucket | Unlimited


class Rate:
    """A policy at a multiple of its quota, with the values that are computed from it once."""

    __slots__ = ("_policy", "_scale", "burst_ns", "lines", "refused", "unit_ns", "units")

    def __init__(self, policy: Policy, scale: int) -> None:
        """`scale` times the quota of `policy`."""
        quota = policy.quota * scale
        # Rounded up, so that the rate never exceeds the policy; the burst still holds the quota exactly.
        self.unit_ns = -(-policy.window_ns // quota)
        self.burst_ns = quota * self.unit_ns
        self.lines = lines(policy, scale)
        self._policy = policy
        self._scale = scale
        # The units that were charged, and the requests that were refused, since the process began.
        self.units = 0
        self.refused = 0

    def refusal(self, wait_ns: int) -> RateLimited:
        """As `Bucket.refusal`."""
        self.refused += 1
        policy, seconds = self._policy, max(-(-wait_ns // _SECOND_NS), 1)
        return RateLimited(
            f"the limit `{policy.name}` is used up: try again in {seconds} second{'s' if seconds > 1 else ''}",
            facts=refusal_facts(policy.name, policy.quota * self._scale, policy.window_s, seconds),
        )
