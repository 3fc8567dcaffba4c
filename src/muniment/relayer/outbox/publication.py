"""Publication of a run, from the bytes in the journal: the record, then each intent with the lines of the log.

Each request may be repeated, so a relayer that was killed begins again. Two relayers that publish the same run make one
record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import structlog
from msgspec.structs import replace

from muniment.protocol.errors import Conflicting, IntentDiffers, Invalid, NonceTaken, TooLarge, TriggerNotFound
from muniment.protocol.evm.hex import HexString
from muniment.protocol.forms import decode_record
from muniment.protocol.intents.hashes import intent_hash
from muniment.protocol.intents.texts import LogId, LogText
from muniment.protocol.intents.types import AnyNewIntent, LogLevel, NewLog
from muniment.protocol.json_text import parse_json
from muniment.protocol.runs.hashes import hash_of
from muniment.protocol.runs.payloads import EventPayload, read_payload
from muniment.protocol.runs.types import LOGS_SHOWN, NewRun
from muniment.protocol.wire import Record, encode

if TYPE_CHECKING:
    from muniment.client import AsyncRegistry
    from muniment.protocol.evm.signature import Signature
    from muniment.protocol.runs.types import Run
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.journal.sqlite import Entry

# The levels of lines such as `[Warning] text`, as those of an intent's log.
_LEVELS: Final[dict[str, LogLevel]] = {
    "Critical": "critical", "Error": "error", "Warning": "warning", "Info": "info", "Debug": "debug",
}  # fmt: skip
_LINE_BYTES_MAX: Final = 4 * 1024
# A record that the registry refuses for what it is stays refused.
_FINAL: Final = (Invalid, Conflicting, TooLarge, TriggerNotFound)

_log = structlog.get_logger(__name__)


class Content(Record, frozen=True):
    """What a run is to publish: its record, and its intents in the registry's form."""

    run: NewRun
    intents: list[Any]

    @classmethod
    def of(cls, run: NewRun, intents: Sequence[AnyNewIntent]) -> Content:
        """The content of a run, each intent with the lines of its log."""
        hash_ = "0x" + hash_of(run).hex()
        logs = _lines(run, hash_)
        return cls(run=run, intents=[
            replace(each, execution_hash=HexString.parse(hash_), logs=logs) for each in intents
        ])  # fmt: skip

    @classmethod
    def read(cls, body: bytes) -> tuple[NewRun, list[AnyNewIntent]]:
        """The record and the intents in the bytes of a journal."""
        content = cast("dict[str, Any]", parse_json(body))
        run: NewRun = decode_record(content["run"], NewRun)
        return run, [decode_record(each, AnyNewIntent) for each in content["intents"]]

    def bytes_and_hash(self) -> tuple[bytes, bytes]:
        """The bytes for the journal, and the hash of the run."""
        return encode(self), hash_of(self.run)


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
        return "" if all(int(each.deadline) > now_s for each in intents) else "the deadline of an intent has passed"

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


def _lines(run: NewRun, hash_: str) -> list[NewLog]:
    """The first lines of the run's log, as lines of the log of its intents."""
    return [
        NewLog(level=_level(line), data=LogText.parse(_within(line)), id=LogId.parse(f"{hash_}/{n}"))
        for n, line in enumerate(run.logs[:LOGS_SHOWN])
        if line
    ]


def _level(line: str) -> LogLevel:
    return _LEVELS.get(line.partition("]")[0].removeprefix("["), "info")


def _within(line: str) -> str:
    """As much of a line as the log of an intent takes."""
    return line.encode()[:_LINE_BYTES_MAX].decode("utf-8", "ignore")
