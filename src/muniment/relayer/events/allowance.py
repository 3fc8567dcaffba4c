"""How many event triggers of one signer are read."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address
    from muniment.protocol.evm.signature import Signature

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Allowance:
    """The event triggers of each signer that are read: the `most` that were registered first."""

    most: int
    # When each trigger was registered, in milliseconds since 1970, and its signer.
    _known: dict[Signature, tuple[int, Address]] = field(
        default_factory=dict["Signature", "tuple[int, Address]"], init=False
    )
    _read: defaultdict[Address, set[Signature]] = field(
        default_factory=lambda: defaultdict["Address", "set[Signature]"](set), init=False
    )
    # The others, the oldest first; some have ended.
    _over: defaultdict[Address, list[tuple[int, Signature]]] = field(
        default_factory=lambda: defaultdict["Address", "list[tuple[int, Signature]]"](list), init=False
    )

    def add(self, signer: Address, sig: Signature, created_ms: int) -> Signature | None:
        """A trigger is to be read; the one that is not read therefore, which may be itself."""
        read = self._read[signer]
        if sig in self._known:
            return None if sig in read else sig
        self._known[sig] = created_ms, signer
        read.add(sig)
        if len(read) <= self.most:
            return None
        newest = max(read, key=lambda each: (self._known[each][0], each))
        read.remove(newest)
        heappush(self._over[signer], (self._known[newest][0], newest))
        _log.error(
            "a signer has too many event triggers: one is not read", trigger=newest, signer=signer, most=self.most
        )
        return newest

    def remove(self, sig: Signature) -> Signature | None:
        """A trigger has ended; the one that is read in its place."""
        _, signer = self._known.pop(sig, (0, None))
        if signer is None or sig not in self._read[signer]:
            return None
        read, over = self._read[signer], self._over[signer]
        read.remove(sig)
        while over:
            _, oldest = heappop(over)
            if oldest in self._known and oldest not in read:
                read.add(oldest)
                return oldest
        return None
