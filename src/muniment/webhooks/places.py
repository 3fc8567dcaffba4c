"""The places of deliveries: how many requests are on their way at the same time, and to whom.

A receiver that was slow is taken for slow for a while, whatever it does next: else one that is slow every other time
would hold a place of the quick ones each time.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.webhooks.lanes import Lane

# Requests at the same time, and those to one host: a registry must not be a weapon.
REQUESTS_MAX: Final = 32
PER_HOST_MAX: Final = 4
# Receivers that are slow or fail may have so many of them: quick ones always find a place.
SLOW_MAX: Final = 24
# And so many of those to one host, which strangers may share.
PER_HOST_SLOW_MAX: Final = 3
# A request that takes longer makes its receiver slow, and for so long.
SLOW_MS: Final = 1_000
_STAYS_SLOW_MS: Final = 10 * 60 * 1_000


class Places:
    """Who has a place, and who is slow. `monotonic_ms` only goes forward."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        """Begin without requests."""
        self._monotonic_ms = monotonic_ms
        # Whether each has its place as a slow one.
        self._taken: dict[Lane, bool] = {}
        self._hosts: Counter[str] = Counter()
        # By hook: a lane is replaced when somebody changes its hook.
        self._slow_until_ms: dict[bytes, int] = {}
        # Whether somebody wanted a place lately, and there was none.
        self.is_short = False

    def take(self, lanes: list[Lane]) -> list[Lane]:
        """Give places to those of `lanes` for whom there is one, the first first."""
        given = [lane for lane in lanes if self._take(lane)]
        self.is_short = len(given) < len(lanes)
        return given

    def _take(self, lane: Lane) -> bool:
        is_slow = self.is_slow(lane)
        if len(self._taken) >= REQUESTS_MAX or self._hosts[lane.host] >= PER_HOST_MAX:
            return False
        if is_slow and not self._has_slow_place(lane):
            return False
        self._taken[lane] = is_slow
        self._hosts[lane.host] += 1
        return True

    def leave(self, lane: Lane) -> None:
        """Give the place back."""
        del self._taken[lane]
        self._hosts[lane.host] -= 1
        if not self._hosts[lane.host]:
            del self._hosts[lane.host]

    def may_keep(self, lane: Lane) -> bool:
        """Whether the place may be kept for another request: it is of the kind that is due now."""
        return self._taken[lane] == self.is_slow(lane)

    def is_slow(self, lane: Lane) -> bool:
        """Whether the receiver fails, or was slow lately."""
        return lane.hook.failures > 0 or self._slow_until_ms.get(lane.hook.id, 0) > self._monotonic_ms()

    def note_slow(self) -> list[Lane]:
        """Take receivers that have not answered for `SLOW_MS` for slow; those for whom there is no place as such."""
        now_ms = self._monotonic_ms()
        gone: list[Lane] = []
        for lane, is_slow in self._taken.items():
            if lane.sends_since_ms is None or now_ms - lane.sends_since_ms <= SLOW_MS:
                continue
            self._slow_until_ms[lane.hook.id] = now_ms + _STAYS_SLOW_MS
            if not is_slow and not self._has_slow_place(lane):
                gone.append(lane)
            else:
                self._taken[lane] = True
        return gone

    def forget_quick(self) -> None:
        """Forget who was slow, but is not any more."""
        now_ms = self._monotonic_ms()
        self._slow_until_ms = {hook: until for hook, until in self._slow_until_ms.items() if until > now_ms}

    def _has_slow_place(self, lane: Lane) -> bool:
        """Whether `lane` may have a place as one that is slow."""
        if sum(self._taken.values()) >= SLOW_MAX:
            return False
        if self._hosts[lane.host] < PER_HOST_SLOW_MAX:
            return True
        return sum(is_slow and each.host == lane.host for each, is_slow in self._taken.items()) < PER_HOST_SLOW_MAX
