"""The triggers that a relayer serves: read from a registry that may lie, and followed by its change feed."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog
from msgspec import UNSET

from muniment.client.failures import Forged, NotARegistry, Unreachable
from muniment.protocol.errors import CursorTooOld, DeactivationNotFound, Refusal, TriggerNotFound
from muniment.protocol.evm.signature import Signature
from muniment.protocol.ipfs.cid import Cid
from muniment.relayer.journal.entries import Ownership
from muniment.relayer.schedule.due import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from muniment.client import AsyncRegistry, Bundle
    from muniment.client.flows.following import Event
    from muniment.protocol.evm.address import Address
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.journal.sqlite import Journal
    from muniment.relayer.lives.logged_ends import LoggedEnds
    from muniment.relayer.settings import Served

CREATED: Final = "muniment.trigger.created"
DEACTIVATED: Final = "muniment.trigger.deactivated"
# Bundles that are kept. A sandbox runs no module above 1 MiB, so a larger one is needed once, to say so.
_BUNDLES_KEPT: Final = 64
_KEPT_BYTES_MAX: Final = 2 * 1024 * 1024

_log = structlog.get_logger(__name__)


class Tracked(NamedTuple):
    """A trigger that is served, and when it runs."""

    trigger: Trigger
    plan: Plan


@dataclass(slots=True, kw_only=True)
class Following:
    """The active triggers of a registry that are served here.

    Each is proved by the client: its signature under the protocol name, its CID, the manifest of its function. What was
    seen of them is kept in the journal. `on_change` is called with each trigger that appears, ends or returns.
    """

    registry: AsyncRegistry
    journal: Journal
    served: Served
    ends: LoggedEnds
    own_ms: Callable[[], int]
    on_change: Callable[[Signature], None] = lambda _: None
    tracked: dict[Signature, Tracked] = field(default_factory=dict[Signature, Tracked], init=False)
    _bundles: OrderedDict[bytes, Bundle] = field(default_factory=OrderedDict[bytes, "Bundle"], init=False)

    async def begin(self) -> str:
        """Read the active triggers; the result is the cursor of the feed from which to follow.

        The cursor is taken first, so that no trigger is missed between the two. Raises the errors of the client.
        """
        cursor = await self.registry.events.begin()
        await self.ends.read()
        triggers: list[Trigger] = [
            each
            async for each in self.registry.triggers.list(active=True, on_forged=_report_forged)
            if not self.served.refused(each)
        ]
        # Triggers that were followed before and are not active now: their end may be news.
        known = {each.sig for each in triggers}
        others = [sig for sig in {*self.journal.unended(), *self.tracked} if sig not in known]
        for start in range(0, len(others), 100):
            await self._read_again(others[start : start + 100])
        await self._take(triggers)
        return cursor

    async def follow(self, cursor: str) -> None:
        """Follow the triggers from a cursor of the feed, for ever. Raises the client's errors that do not pass."""
        while True:
            try:
                async for page in self.registry.events.follow(after=cursor, types=(CREATED, DEACTIVATED)):
                    await self._read_again(_subjects(page))
            except CursorTooOld:
                _log.warning("the change feed begins later; all triggers are read again")
                cursor = await self.begin()

    def signer_of(self, sig: Signature) -> Address | None:
        """The signer of a trigger that is served."""
        tracked = self.tracked.get(sig)
        return None if tracked is None else tracked.trigger.signer

    async def asked_again(self, sig: Signature) -> Trigger | None:
        """The trigger as the registry shows it now; None: it is not to run. Raises the errors of the client.

        One that the registry does not find has not ended: it may be found again.
        The signer is the one of the first reading: a signature recovers to some address for any content.
        """
        tracked = self.tracked.get(sig)
        if tracked is None:
            return None
        try:
            shown = await self.registry.triggers.get(sig, signer=tracked.trigger.signer)
        except TriggerNotFound:
            _log.error("the registry has lost a trigger", trigger=sig)
            raise
        await self._take([shown])
        return shown if sig in self.tracked else None

    async def bundle(self, trigger: Trigger) -> Bundle:
        """The files of the trigger's function, proved by its CID. Raises the errors of the client."""
        digest = Cid.parse(trigger.function_cid).digest
        bundle = self._bundles.pop(digest, None) or await self.registry.functions.bundle(trigger.function_cid)
        if len(bundle.wasm) + len(bundle.manifest) <= _KEPT_BYTES_MAX:
            self._bundles[digest] = bundle
            while len(self._bundles) > _BUNDLES_KEPT:
                self._bundles.popitem(last=False)
        return bundle

    async def _read_again(self, sigs: Iterable[Signature]) -> None:
        """Read triggers that an event names, or that were followed before. Events prove nothing."""
        asked = [*sigs]
        if not asked:
            return
        try:
            await self._take((await self.registry.triggers.refresh(asked)).values())
        except Forged as forged:
            _report_forged(forged)
            for sig in asked if len(asked) > 1 else ():
                await self._read_again([sig])

    async def _take(self, triggers: Iterable[Trigger]) -> None:
        """Track the triggers that are served and have not ended, and forget the others."""
        active: list[Trigger] = []
        for each in triggers:
            if each.deactivate_sig is not UNSET:
                await self._end(each, each.deactivate_sig)
            elif not self.served.refused(each) and self._may_return(each):
                active.append(each)
        new = [each for each in active if each.sig not in self.tracked]
        self.journal.see(
            [Ownership(each.sig, each.signer, Cid.parse(each.function_cid).digest) for each in new], self.own_ms()
        )
        for each in new:
            try:
                self.tracked[each.sig] = Tracked(each, Plan.of(each))
                self.on_change(each.sig)
            except (Refusal, ValueError, TypeError, KeyError) as error:
                # A config that no registry takes, or a time that is none: it must not keep the others from being read.
                self.tracked.pop(each.sig, None)
                _log.error("a trigger cannot be read", trigger=each.sig, reason=str(error))

    def _may_return(self, trigger: Trigger) -> bool:
        known = self.journal.known(trigger.sig)
        if known is None or known.ended_ms is None:
            deactivation = self.journal.logged_end(trigger.sig, trigger.signer)
            if deactivation is None:
                return True
            _log.error(
                "the registry shows a trigger as active whose deactivation is in its log", trigger=trigger.sig,
                deactivation=deactivation,
            )  # fmt: skip
            self.journal.end(trigger.sig, deactivation, self.own_ms())
            self._forget(trigger.sig)
            return False
        _log.error("the registry shows a trigger as active that was seen ended", trigger=trigger.sig)
        self._forget(trigger.sig)
        return False

    async def _end(self, trigger: Trigger, deactivation: Signature) -> None:
        """Stop running a trigger that is shown as ended; remember for ever what its owner signed."""
        self._forget(trigger.sig)
        if self.served.refused(trigger):
            return
        known = self.journal.known(trigger.sig)
        if known is not None and known.ended_ms is not None:
            return
        try:
            ending = await self.registry.triggers.deactivation(deactivation)
            is_proved = trigger.sig in ending.trigger_sigs and ending.signer == trigger.signer
        except (DeactivationNotFound, Forged):
            is_proved = False
        if is_proved:
            self.journal.end(trigger.sig, deactivation, self.own_ms())
        else:
            _log.error("the registry shows a trigger as ended that its owner did not end", trigger=trigger.sig)

    def _forget(self, sig: Signature) -> None:
        if self.tracked.pop(sig, None) is not None:
            self.on_change(sig)


def _subjects(events: Iterable[Event]) -> list[Signature]:
    """The triggers that events name, each once, in order."""
    sigs: dict[Signature, None] = {}
    for each in events:
        try:
            sigs[Signature.parse(each.subject)] = None
        except Refusal:
            _log.error("an event names no trigger", id=each.id)
    return [*sigs]


def _report_forged(forged: Forged) -> None:
    _log.error("the registry shows a false trigger", reason=str(forged))


# What the client raises when a registry does not answer, or another program does, when it refuses, or lies.
FAILURES: Final = (Unreachable, NotARegistry, Forged, Refusal)
