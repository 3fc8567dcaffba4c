"""Deactivations in the transparency log of a registry: they end triggers, whatever the registry shows of these.

The tree of the log proves that none is left out, and the signature of its owner proves each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from muniment.client import Forged, NotAnnounced, NotBegun, Rules, Seen
from muniment.client.proof import check_deactivation
from muniment.protocol.errors import Refusal, UnknownPath
from muniment.protocol.evm.address import Address
from muniment.protocol.evm.signature import Signature
from muniment.protocol.log.entries import DeactivationFact
from muniment.relayer.journal.entries import LoggedEnd

if TYPE_CHECKING:
    from muniment.client import AsyncRegistry, Progress
    from muniment.protocol.log.entries import Entry
    from muniment.relayer.journal.sqlite import Journal

# A log is signed at least once a minute.
_PAUSE_S: Final = 60.0
# The name of what was seen of the log, in the journal.
_SEEN: Final = "log"
# Ends that are written together.
_WRITTEN_AT_ONCE: Final = 1_000

_log = structlog.get_logger(__name__)


class _Forgetful(dict[bytes, bytes]):
    """Keeps no name of a record: a log that is read from its beginning may have millions, and 300 bytes for each."""

    def setdefault(self, key: bytes, default: bytes = b"") -> bytes:  # noqa: ARG002 - as the first of its name
        return default


@dataclass(slots=True, kw_only=True)
class LoggedEnds:
    """Keeps in the journal which triggers the log has ended, under this protocol name."""

    registry: AsyncRegistry
    journal: Journal
    protocol: str
    own_ms: Callable[[], int]
    _found: list[LoggedEnd] = field(default_factory=list[LoggedEnd], init=False)

    async def read_always(self) -> None:
        """Read for ever, as often as a log is signed."""
        while True:
            await asyncio.sleep(_PAUSE_S)
            try:
                await self.read()
            except Exception as error:  # noqa: BLE001 - a journal that cannot be written now ends no run
                _alarm(error)

    async def read(self) -> None:
        """Learn the deactivations that came into the log since the last time; the first time all of them.

        A log that cannot be followed is an alarm and no more: a registry need not have one, and hides nothing by it
        that it could not hide without.
        """
        kept = self.journal.fact(_SEEN)
        seen = None if kept is None else msgspec.json.decode(kept, type=Seen)
        try:
            found = await self._follow(seen)
        except Exception as error:  # noqa: BLE001 - whatever a log is like, it stops no run
            # A registry that keeps no log, or has just started, is no alarm.
            if seen is not None or not isinstance(error, (UnknownPath, NotBegun)):
                _alarm(error)
            return
        finally:
            self._write()
        if found.faults:
            _log.error("the log of the registry has what it must not sign", faults=found.faults[:3])
        self.journal.keep_fact(_SEEN, msgspec.json.encode(found.seen).decode())

    async def _follow(self, seen: Seen | None) -> Progress:
        """The progress since `seen`. A log that began anew is followed from its beginning, after an alarm."""
        now_s = self.own_ms() // 1_000
        log = self.registry.log
        try:
            known = _Forgetful() if seen is None else None
            return await log.follow(seen, Rules(now_s, on_entry=self._take, from_start=True, known=known))
        except NotAnnounced as error:
            _alarm(error)
            return await log.follow(seen, Rules(now_s, on_entry=self._take, from_start=True, accepts=True))

    def _take(self, _: int, fact: Entry | None) -> None:
        if not isinstance(fact, DeactivationFact):
            return
        try:
            signature, signer = Signature.parse(fact.signature), Address.parse(fact.signer)
            sigs = [Signature.parse(each) for each in fact.trigger_sigs]
            check_deactivation(sigs, signature, signer, self.protocol)
        except (Forged, Refusal):  # of another protocol name, or of nobody
            return
        self._found += [LoggedEnd(each, signer, signature) for each in sigs]
        if len(self._found) >= _WRITTEN_AT_ONCE:
            self._write()

    def _write(self) -> None:
        if self._found:
            self.journal.keep_logged_ends(self._found)
        self._found.clear()


def _alarm(error: Exception) -> None:
    _log.error("the log of the registry cannot be followed", error=type(error).__name__, reason=str(error))
