"""Publication of a run, from the bytes in the journal: the record, then each intent with the lines of the log.

Each request may be repeated, so a relayer that was killed begins again. Two relayers that publish the same run make one
record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from muniment.protocol.errors import Conflicting, IntentDiffers, Invalid, NonceTaken, TooLarge, TriggerNotFound
from muniment.protocol.intents.hashes import intent_hash
from muniment.protocol.intents.types import AnyNewIntent
from muniment.protocol.runs.hashes import hash_of
from muniment.protocol.runs.payloads import EventPayload, read_payload
from muniment.protocol.runs.types import NewRun
from muniment.relayer.runner.content import Content

if TYPE_CHECKING:
    from muniment.client import AsyncRegistry
    from muniment.protocol.evm.signature import Signature
    from muniment.protocol.runs.types import Run
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.journal.entries import Entry

# A record that the registry refuses for what it is stays refused.
_FINAL: Final = (Invalid, Conflicting, TooLarge, TriggerNotFound)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a run at the registry.

    `run` is the record; None: the registry refused it for ever. `withheld` says why no intent was written. `refused`
    are hashes of intents that the registry does not take. `is_orphaned`: its event has left the chain.
    """

    run: Run | None
    written: int = 0
    withheld: str = ""
    refused: tuple[str, ...] = ()
    is_orphaned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Publishes runs to a registry.

    `asked_again` is the trigger as it is now, or None if it is not to run any more; `is_canonical` whether the block of
    an event is still on its chain; it gets the time of the block too, in milliseconds since 1970.
    """

    registry: AsyncRegistry
    asked_again: Callable[[Signature], Awaitable[Trigger | None]]
    now_ms: Callable[[], int]
    is_canonical: Callable[[EventPayload, int], Awaitable[bool]]

    async def publish(self, entry: Entry) -> Published:
        """Publish a run that `ran`. Raises the errors of the client: then nothing is lost, and it is tried again."""
        new, intents = Content.read(entry.body)
        payload = read_payload(entry.kind, entry.payload)
        event = payload if isinstance(payload, EventPayload) else None
        if new.reason is not None and new.reason.code == "nodes-differ":
            event = None  # nodes may differ about its block too, for ever
        if event is not None and not await self.is_canonical(event, entry.timestamp_ms):
            return await self._publish_orphan(new, event)
        run = await self._record(new)
        if run is None:
            return Published(None)
        if not intents:
            return Published(run)
        if withheld := await self._withheld(entry, intents):
            _log.warning("intents are not published", trigger=entry.sig, run=run.hash, reason=withheld)
            return Published(run, withheld=withheld)
        refused = [hash_ for each in intents if (hash_ := await self._put(each))]
        return Published(run, len(intents) - len(refused), refused=tuple(refused))

    async def _record(self, new: NewRun) -> Run | None:
        try:
            return await self.registry.runs.record(new)
        except _FINAL as refusal:
            if not refusal.code:  # the page of a proxy, not by a registry
                raise
            _log.error(
                "the registry refuses a run", trigger=new.trigger_sig, result=new.result, code=refusal.code,
                reason=refusal.detail,
            )  # fmt: skip
            return None

    async def _publish_orphan(self, new: NewRun, event: EventPayload) -> Published:
        """Record a run whose event left the chain, say so, and write no intent."""
        run = await self._record(new)
        if run is not None and run.hash.raw == hash_of(new):  # a note may be answered with the run of another relayer
            await self.registry.runs.orphan(run.hash, event.chain_id, event.block_hash)
        return Published(run, withheld="the event's block is not canonical any more", is_orphaned=True)

    async def _withheld(self, entry: Entry, intents: Sequence[AnyNewIntent]) -> str:
        """Why intents of a recorded run must not be written now; empty if they may."""
        if await self.asked_again(entry.sig) is None:
            return "the trigger has ended"
        now_s = self.now_ms() // 1_000
        return "" if all(int(each.deadline) > now_s for each in intents) else "too late when published"

    async def _put(self, intent: AnyNewIntent) -> str:
        """Write an intent; its hash if the registry refuses it for ever."""
        hash_ = "0x" + intent_hash(intent).hex()
        try:
            await self.registry.intents.put(intent)
        except IntentDiffers as refusal:
            _log.warning("the intent is recorded with another run", intent=hash_, reason=refusal.detail)
        except NonceTaken as refusal:
            _log.error(
                "another intent has the nonce", intent=hash_, other=refusal.facts.get("intent"), reason=refusal.detail
            )
            return hash_
        except _FINAL as refusal:
            if not refusal.code:
                raise
            _log.error("the registry refuses an intent", intent=hash_, code=refusal.code, reason=refusal.detail)
            return hash_
        return ""
