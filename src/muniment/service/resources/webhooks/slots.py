"""Slots for requests to receivers: a limit on concurrent requests, in total, by host, and for slow receivers.

A receiver that was slow counts as slow for ten minutes: one that is slow every other time must not take a quick slot
each time.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.service.resources.webhooks.store import Hook

# Concurrent requests, and those to one host: a registry must not be a weapon.
REQUESTS_MAX: Final = 32
PER_HOST_MAX: Final = 4
# Of these, requests to slow or failing receivers: the rest is for quick ones.
SLOW_MAX: Final = 24
PER_HOST_SLOW_MAX: Final = 3
# A longer request makes its receiver slow, and for this time.
SLOW_MS: Final = 1_000
_STAYS_SLOW_MS: Final = 10 * 60 * 1_000


class Sender(Protocol):
    """A hook with its request; `sends_since_ms` is None without a request."""

    sends_since_ms: int | None

    @property
    def hook(self) -> Hook:
        """The hook as it is now."""
        ...

    @property
    def host(self) -> str:
        """The host of the receiver."""
        ...


S = TypeVar("S", bound=Sender)


class Slots(Generic[S]):
    """The slots in use, and the slow receivers. `monotonic_ms` only goes forward."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        """Begin without requests."""
        self._monotonic_ms = monotonic_ms
        # Whether each sender has a slow slot.
        self._taken: dict[S, bool] = {}
        self._hosts: Counter[str] = Counter()
        # By hook id: a sender is replaced when a person changes its hook.
        self._slow_until_ms: dict[bytes, int] = {}
        # Whether a sender found no slot at the last call of `take`.
        self.is_short = False

    def take(self, senders: list[S]) -> list[S]:
        """Give slots to senders in this order; returns those that have one now."""
        given = [sender for sender in senders if self._take(sender)]
        self.is_short = len(given) < len(senders)
        return given

    def _take(self, sender: S) -> bool:
        is_slow = self.is_slow(sender)
        if len(self._taken) >= REQUESTS_MAX or self._hosts[sender.host] >= PER_HOST_MAX:
            return False
        if is_slow and not self._has_slow_slot(sender):
            return False
        self._taken[sender] = is_slow
        self._hosts[sender.host] += 1
        return True

    def leave(self, sender: S) -> None:
        """Free the slot of a sender."""
        del self._taken[sender]
        self._hosts[sender.host] -= 1
        if not self._hosts[sender.host]:
            del self._hosts[sender.host]

    def may_keep(self, sender: S) -> bool:
        """Whether the slot may serve another request: it is still of the right kind."""
        return self._taken[sender] == self.is_slow(sender)

    def is_slow(self, sender: S) -> bool:
        """Whether the receiver fails, or was slow lately."""
        return sender.hook.failures > 0 or self._slow_until_ms.get(sender.hook.id, 0) > self._monotonic_ms()

    def note_slow(self) -> list[S]:
        """Mark receivers without an answer for `SLOW_MS` as slow; returns those for which no slow slot is free."""
        now_ms = self._monotonic_ms()
        excess: list[S] = []
        for sender, is_slow in self._taken.items():
            if sender.sends_since_ms is None or now_ms - sender.sends_since_ms <= SLOW_MS:
                continue
            self._slow_until_ms[sender.hook.id] = now_ms + _STAYS_SLOW_MS
            if not is_slow and not self._has_slow_slot(sender):
                excess.append(sender)
            else:
                self._taken[sender] = True
        return excess

    def forget_quick(self) -> None:
        """Forget receivers that are no longer slow."""
        now_ms = self._monotonic_ms()
        self._slow_until_ms = {hook: until for hook, until in self._slow_until_ms.items() if until > now_ms}

    def _has_slow_slot(self, sender: S) -> bool:
        if sum(self._taken.values()) >= SLOW_MAX:
            return False
        if self._hosts[sender.host] < PER_HOST_SLOW_MAX:
            return True
        return sum(is_slow and each.host == sender.host for each, is_slow in self._taken.items()) < PER_HOST_SLOW_MAX
