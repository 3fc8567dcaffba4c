"""GCRA, the generic cell rate algorithm: one time is the state of a bucket.

At that time the bucket will be empty again if nothing more is charged. A charge of one unit moves it forward by the
time in which a unit drains. A charge that would move it further ahead than a full bucket takes to drain is refused, and
moves nothing. So a client never gets more than one full quota plus the units that drained meanwhile.

The times are in the memory of the process, in a table for each policy. Anybody can fill it with made-up names, so it
has a bound. Beyond it, buckets that have drained are forgotten, which changes nothing. If too few have drained, the
emptiest are forgotten, and a bucket without a time counts as being as full as the fullest forgotten one. So nobody
gains by being forgotten, and a newcomer is refused only when all buckets that are kept are full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from muniment.protocol.errors import RateLimited
from muniment.service.running.limits.policies import LEVELS, lines, refusal_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from muniment.service.running.limits.policies import Policy

# Buckets of a policy that have a time: at some 200 bytes each, 6 MiB. Only those that have not drained need one. With
# the default policies these are a few thousand: the CPU of a process is worth 40,000 units a second, and all of them
# drain meanwhile. Half of this number are full only after 16,384 clients have used up their quotas within a window.
BUCKETS_MAX: Final = 32_768
_KEPT_MAX: Final = BUCKETS_MAX // 2


class Times:
    """When each bucket of a policy will be empty, in nanoseconds of a clock that only goes forward.

    A bucket that is not in `known` will be empty at `floor`, if not before.
    """

    __slots__ = ("floor", "known")

    def __init__(self) -> None:
        """Begin with empty buckets."""
        self.known: dict[str, int] = {}
        self.floor = 0

    def make_room(self, now: int) -> None:
        """Forget buckets, so that at least half of `BUCKETS_MAX` are free. Those that remain keep their times."""
        self._forget_until(max(now, self.floor))
        if len(self.known) > _KEPT_MAX:
            self.floor = sorted(self.known.values())[-_KEPT_MAX - 1]
            self._forget_until(self.floor)

    def _forget_until(self, time_ns: int) -> None:
        self.known = {name: empty for name, empty in self.known.items() if empty > time_ns}


_SECOND_NS: Final = 1_000_000_000


class Bucket:
    """One limit of one client: an account that requests are charged to."""

    __slots__ = ("_lines", "_name", "_rate", "_times", "_unit_ns", "_used_ns", "burst_ns", "now_ns")

    def __init__(self, times: Times, name: str, rate: Rate, now_ns: Callable[[], int]) -> None:
        """The bucket `name` of `times`; `now_ns` is a clock that only goes forward."""
        self._times = times
        self._name = name
        self._unit_ns = rate.unit_ns
        self.burst_ns = rate.burst_ns
        self._lines = rate.lines
        self.now_ns = now_ns
        self._used_ns = 0
        self._rate = rate

    def charge(self, units: int) -> int:
        """Take `units` and return 0; or take nothing, and return the nanoseconds until they are available.

        More units than the whole quota are charged as the whole quota.
        """
        now = self.now_ns()
        empty = self.filled_by(units, now)
        if (used := empty - now) > self.burst_ns:
            return used - self.burst_ns
        self._rate.units += units
        self.note(empty, now)
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
        empty = self._times.known.get(self._name, self._times.floor)
        return max(empty, now) + min(units * self._unit_ns, self.burst_ns)

    def note(self, empty: int, now: int) -> None:
        """Store `empty` as the time at which the bucket will be empty."""
        times = self._times
        self._used_ns = empty - now
        times.known[self._name] = empty
        if len(times.known) > BUCKETS_MAX:
            times.make_room(now)

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

    def __init__(self, times: Times, name: str, rate: Rate, now_ns: Callable[[], int], wider: Sequence[Bucket]) -> None:
        """As `Bucket`, with the wider ones."""
        super().__init__(times, name, rate, now_ns)
        self._wider = tuple(wider)

    def charge(self, units: int) -> int:
        """As `Bucket.charge`; the longest wait of all, a refusal by one bucket takes nothing from the others."""
        now, buckets, wait = self.now_ns(), (self, *self._wider), 0
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
