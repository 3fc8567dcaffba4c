"""Lets an IPFS node pin the bundles of a registry, which knows nothing of it.

There is no state: the registry lists its functions and tells of new ones, and the node is asked what it has pinned.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from muniment.cli import output
from muniment.cli.client.kubo import NodeAway, NotPinned
from muniment.cli.client.patience import until_answered
from muniment.cli.client.service import FailedError
from muniment.client import CursorTooOld, Forged, NotARegistry
from muniment.client.flows.following import PASSING
from muniment.protocol.errors import InvalidCid, Refusal, UnknownPath
from muniment.protocol.ipfs.cid import BundleCid, Cid

if TYPE_CHECKING:
    from collections.abc import Callable

    from muniment.cli.client.kubo import Kubo
    from muniment.client import Page, Registry
    from muniment.protocol.functions.types import Function

T = TypeVar("T")
# The list is read again after this time: the first if bundles were not pinned, doubled each time, up to the second.
_AGAIN_S: Final = 60.0
_AGAIN_S_MAX: Final = 3_600.0
# A service with too many followers answers at once, and without events.
_EMPTY_PAUSE_S: Final = 1.0
_FILTER: Final = {"types": ["function.created"]}


@dataclass(slots=True)
class Pinning:
    """Pins bundles one after another. `waits`: for a registry or a node that is away, whose errors are raised else."""

    registry: Registry
    node: Kubo
    stop: output.StopRequest
    waits: bool
    # Bundles that were not pinned since the list was begun.
    refusals: int = field(default=0, init=False)

    def follow(self) -> None:
        """Pin all bundles, then each new one, forever; from time to time all again.

        Raises `FailedError` if the registry has no change feed.
        """
        again_s = _AGAIN_S
        while True:
            start_s = time.monotonic()
            try:
                cursor = self._answer(self.registry.events.begin)
                self.pin_all()
                while time.monotonic() - start_s < (again_s if self.refusals else _AGAIN_S_MAX):
                    cursor = self._pin_new(cursor)
            except CursorTooOld:
                output.print_note("the registry has begun anew or forgotten the position: reading the list again")
                self._answer(partial(time.sleep, _EMPTY_PAUSE_S))
            except UnknownPath as error:
                raise FailedError("the registry has no change feed: run the command with --once, by a timer") from error
            again_s = min(2 * again_s, _AGAIN_S_MAX) if self.refusals else _AGAIN_S

    def pin_all(self) -> None:
        """Pin the bundles of the functions in the list, the oldest first."""
        self.refusals = 0
        after: str | None = None
        while (page := self._answer(partial(self._page, after))) is not None:
            for function in page:
                self._pin(function.cid)
            if page.cursor in {None, after}:
                return
            after = page.cursor

    def _page(self, after: str | None) -> Page[Function] | None:
        return next(self.registry.functions.list().pages(after), None)

    def _pin_new(self, cursor: str) -> str:
        """Wait for new functions, and pin their bundles; the cursor after them."""
        page = self._answer(partial(self.registry.events.page, cursor, _FILTER))
        for event in page:
            try:
                cid = Cid.parse(event.subject)
            except InvalidCid as error:
                raise NotARegistry("answers with a function that has no CID") from error
            self._pin(cid)
        if not page:
            self._answer(partial(time.sleep, _EMPTY_PAUSE_S))
        return page.cursor or cursor

    def _pin(self, cid: Cid) -> None:
        """Pin a bundle, or print why not."""
        try:
            if self._answer(partial(self._send_missing, cid)):
                output.print_text(f"pinned {cid}")
        except PASSING:
            raise
        except (Forged, NotARegistry, NotPinned, Refusal) as error:
            self.refusals += 1
            output.print_note(f"not pinned: {cid}: {error}")

    def _send_missing(self, cid: Cid) -> bool:
        """Send a bundle to the node, unless it has pinned it; whether it had to be sent."""
        bundle = BundleCid.parse(cid)
        if self.node.has_pinned(bundle):
            return False
        self.node.pin(bundle, self.registry.functions.car(bundle))
        return True

    def _answer(self, ask: Callable[[], T]) -> T:
        if self.waits:
            return until_answered(ask, self.stop, NodeAway)
        with self.stop.waiting():
            return ask()
