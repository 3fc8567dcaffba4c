"""The runs of the journal that the registry does not have yet: they are published, and what came of it is kept."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from muniment.protocol.runs.reasons import is_verdict
from muniment.relayer.journal.entries import ORPHANED, State
from muniment.relayer.lives.following import FAILURES
from muniment.relayer.runner.pinning import Incomplete
from muniment.relayer.schedule.agenda import RETRY_MS

if TYPE_CHECKING:
    from muniment.protocol.evm.signature import Signature
    from muniment.relayer.clock import RegistryClock
    from muniment.relayer.figures import Figures
    from muniment.relayer.journal.entries import Entry
    from muniment.relayer.journal.sqlite import Journal
    from muniment.relayer.outbox.publication import Published
    from muniment.relayer.runner.caps import Caps

_PUBLISHED_AT_ONCE: Final = 8
_PAUSE_S_MAX: Final = 60.0
# What passes: the run, or the publication, is tried again.
PASSING: Final = (*FAILURES, Incomplete)

_log = structlog.get_logger(__name__)


class Publishing(Protocol):
    """What publishes a run of the journal, see `Publication`."""

    async def publish(self, entry: Entry) -> Published:
        """Publish a run."""
        ...


@dataclass(slots=True, kw_only=True)
class Outbox:
    """Publishes runs from the journal by `publishing`, and tells `caps` the address of this relayer."""

    journal: Journal
    publishing: Publishing
    clock: RegistryClock
    caps: Caps
    figures: Figures
    _published_now: set[tuple[Signature, bytes]] = field(default_factory=set[tuple["Signature", bytes]], init=False)

    def __post_init__(self) -> None:
        """Tell the address that was learnt before."""
        self.caps.relayer = self.journal.fact("relayer")

    async def publish(self, entry: Entry) -> bool:
        """Publish a run, unless that is being done or was; False: that failed, and is to be tried again."""
        key, kept = (entry.sig, entry.payload), self.journal.entry(entry.sig, entry.kind, entry.payload)
        if key in self._published_now or kept is None or kept.state is not State.RAN:
            return True
        self._published_now.add(key)
        try:
            published = await self.publishing.publish(entry)
        except PASSING as error:
            self.figures.fail("registry", "a run cannot be published yet", error, trigger=entry.sig)
            return False
        except Exception as error:  # noqa: BLE001 - one run must not keep the others from being published
            self.figures.fail("internal", "a run cannot be published", error, trigger=entry.sig)
            return False
        finally:
            self._published_now.discard(key)
        if published.is_orphaned:
            self.journal.mark(entry, ORPHANED)
        self.journal.published(entry, self.clock.own_ms())
        self._report(entry, published)
        return True

    def _report(self, entry: Entry, published: Published) -> None:
        lateness_s = (self.clock.own_ms() - entry.timestamp_ms) / 1_000
        if entry.result != "missed":
            self.figures.show("lateness_seconds", lateness_s)
        for outcome, count in (("written", published.written), ("refused", len(published.refused))):
            self.figures.add("intents_total", outcome, count=count)
        if published.run is None:
            self.figures.add("failures_total", "refused")
            return
        code = published.run.reason.code if published.run.reason else None
        # A note may be answered with the verdict of another relayer, or with an earlier note of this one.
        if published.run.hash.raw != entry.hash and is_verdict(published.run.result, code):
            self._learn_address(self.caps.relayer or "")
        elif len(published.run.records) == 1:
            self._learn_address(published.run.records[0].relayer)
        withheld = {"withheld": published.withheld} if published.withheld else {}
        _log.info(
            "published", trigger=entry.sig, run=published.run.hash, result=published.run.result,
            intents=published.written, seconds=round(lateness_s, 1), **withheld,
        )  # fmt: skip

    def _learn_address(self, relayer: str) -> None:
        if relayer != self.caps.relayer:
            self.caps.relayer = relayer
            self.journal.keep_fact("relayer", relayer)

    async def publish_left(self) -> bool:
        """Publish the runs in the journal that the registry does not have; whether nothing failed."""
        self.figures.show("runs_unpublished", self.journal.count(State.RAN))
        left, done = self.journal.unfinished(State.RAN), True
        while entries := [*islice(left, _PUBLISHED_AT_ONCE)]:
            done &= all(await asyncio.gather(*map(self.publish, entries)))
        return done

    async def serve(self) -> None:
        """Publish what is left, for ever; it pauses longer after a failure."""
        pause_s = RETRY_MS / 1_000
        while True:
            try:
                done = await self.publish_left()
            except Exception as error:  # noqa: BLE001 - it may pass
                self.figures.fail("internal", "cannot publish", error)
                done = False
            pause_s = RETRY_MS / 1_000 if done else min(2 * pause_s, _PAUSE_S_MAX)
            await asyncio.sleep(pause_s)
