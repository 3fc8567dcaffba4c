"""Events planned in the journal: what can still be run and fits into the caps; the rest is told in notes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

from msgspec.structs import replace

from muniment.protocol.evm.hex import HexString
from muniment.protocol.runs.payloads import event_payload
from muniment.protocol.triggers.typed_data import EVENT
from muniment.relayer.schedule.due import Due, Gap

if TYPE_CHECKING:
    from muniment.protocol.evm.address import Address
    from muniment.protocol.evm.signature import Signature
    from muniment.relayer.journal.sqlite import Journal
    from muniment.relayer.lives.following import Tracked
    from muniment.relayer.schedule.due import Occurrence
    from muniment.relayer.settings import RelayerSettings

# An event, and the triggers that wait for it.
Found = tuple["Occurrence", "Sequence[Tracked]"]
Unplanned = Literal["run-cap", "too-busy", "nodes-differ"]
# Rows of one transaction, after which others have a turn of the loop.
_ROWS: Final = 200
# Rows that are sorted before they are written.
_SORTED: Final = 20 * _ROWS
_PAYLOAD_BYTES_MAX: Final = 64 * 1024
_DAY_MS: Final = 86_400_000
# The part of the journal that the runs of one signer may fill.
_SHARE: Final = 16
# The part that a signer may still fill of a journal that is full.
_SMALL_SHARE: Final = 256
# What a signer's runs take is counted once in so long: it may be a million rows.
_HELD_MS: Final = 60_000


class Telling(Protocol):
    """What tells of missed and unplanned events, see `Ledger`."""

    def note(self, gap: Gap, now_ms: int) -> None:
        """An event is missed."""

    def tell(self, due: Due, code: Unplanned, text: str, now_ms: int) -> None:
        """Events of a trigger are not planned; `due` is for the last of them."""


class Untold:
    """Tells nobody."""

    def note(self, gap: Gap, now_ms: int) -> None:
        """Nothing."""

    def tell(self, due: Due, code: Unplanned, text: str, now_ms: int) -> None:
        """Nothing."""


@dataclass(slots=True, kw_only=True)
class _Rest:
    """Events of a trigger that are not planned: why, how many, and the last of them."""

    code: Unplanned
    text: str
    last: Due
    count: int = 1


@dataclass(slots=True, kw_only=True)
class EventPlanner:
    """Plans the runs that events make due."""

    journal: Journal
    settings: RelayerSettings
    telling: Telling = field(default_factory=Untold)
    _held: dict[Address, tuple[int, int]] = field(default_factory=dict["Address", "tuple[int, int]"], init=False)

    async def plan(self, found: Iterable[Found], now_ms: int, *, is_new: bool = False) -> int:
        """Plan the runs that are new and can still be made, and tell of the others; how many were planned.

        With `is_new` only logs count that the journal does not have yet.
        """
        count, dues = 0, list[Due]()
        rests: dict[Signature, _Rest] = {}
        beyond: dict[bytes, Due] = {}
        room = _Room(self.journal, self.settings, now_ms, self._held)
        for n, candidate in enumerate(self._candidates(found, is_new=is_new), 1):
            if n % _ROWS == 0:
                await asyncio.sleep(0)
            if candidate is None:
                continue
            signer, due = candidate
            if now_ms > due.until_ms:
                self._miss(due, now_ms)
                await asyncio.sleep(0)
                continue
            code, text = room.refused(signer, due)
            if code is None:
                dues.append(due)
                if len(dues) >= _SORTED:
                    count += await self._write(dues, now_ms)
                    dues = []
                continue
            if code == "run-cap":
                beyond[due.payload] = due
            if (rest := rests.get(due.sig)) is not None and rest.code == code:
                rest.count, rest.last = rest.count + 1, due
            else:
                rests[due.sig] = _Rest(code=code, text=text, last=due)
        count += await self._write(dues, now_ms)
        self.journal.keep_events(beyond.values())
        for rest in rests.values():
            self.telling.tell(_noted(rest.last), rest.code, f"{rest.count} events: {rest.text}", now_ms)
            await asyncio.sleep(0)
        return count

    async def _write(self, dues: list[Due], now_ms: int) -> int:
        """Write these runs in slices, by trigger: neighbours in the journal are written together."""
        dues.sort(key=lambda due: due.sig)
        for start in range(0, len(dues), _ROWS):
            self.journal.plan(dues[start : start + _ROWS], now_ms, is_flushed=False)
            await asyncio.sleep(0)
        return len(dues)

    def delta_ms(self, tracked: Tracked) -> int:
        """How long after its block an event of a trigger may be run, in milliseconds."""
        return min(tracked.plan.delta_ms, self.settings.event_window_max_ms)

    async def tell(self, found: Iterable[Found], code: Unplanned, text: str, now_ms: int) -> None:
        """Tell of events that are given up: once for each trigger, with the last one."""
        last = {tracked.plan.sig: (tracked, occurrence) for occurrence, triggers in found for tracked in triggers}
        for tracked, occurrence in last.values():
            at_ms = 1_000 * occurrence.block_time_s
            due = Due(tracked.plan.sig, EVENT, event_payload(occurrence.log), at_ms, at_ms, occurrence)
            if at_ms > tracked.plan.created_ms:
                self.telling.tell(_noted(due), code, text, now_ms)
                await asyncio.sleep(0)

    def _candidates(self, found: Iterable[Found], *, is_new: bool) -> Iterator[tuple[Address, Due] | None]:
        """The signer and the run of each trigger that waits for a log; None where nothing is to do."""
        for occurrence, triggers in found:
            payload, at_ms = event_payload(occurrence.log), 1_000 * occurrence.block_time_s
            planned = self.journal.triggers_of_event(payload)
            if planned is not None and is_new:
                yield None
                continue
            for tracked in triggers:
                plan = tracked.plan
                due = Due(plan.sig, EVENT, payload, at_ms, at_ms + self.delta_ms(tracked), occurrence)
                if (planned and plan.sig in planned) or at_ms <= plan.created_ms or 0 < plan.end_ms < at_ms:
                    yield None
                else:
                    yield tracked.trigger.signer, due

    def _miss(self, due: Due, now_ms: int) -> None:
        known = self.journal.known(due.sig)
        if known is not None and known.seen.since_ms <= due.timestamp_ms:
            gap = Gap(due.sig, EVENT, due.payload, 1, due.timestamp_ms, due.timestamp_ms)
            self.telling.note(gap, now_ms)


@dataclass(slots=True)
class _Room:
    """What caps leave of the runs of each trigger today, and of the journal for each signer."""

    journal: Journal
    settings: RelayerSettings
    now_ms: int
    # What the runs of signers take, and when that was counted.
    held: dict[Address, tuple[int, int]]
    _left: dict[Signature, int] = field(default_factory=dict["Signature", int], init=False)
    _total: int | None = field(default=None, init=False)

    def refused(self, signer: Address, due: Due) -> tuple[Unplanned | None, str]:
        """Why the run of an event is not planned, and in words; None if it is, which counts."""
        if len(due.payload) > _PAYLOAD_BYTES_MAX:
            return "too-busy", f"the log has {len(due.payload)} bytes, more than the {_PAYLOAD_BYTES_MAX} of a run"
        if self._is_full(signer, len(due.payload)):
            return "too-busy", "the journal of this operator has no more room for the signer"
        runs_max = self.settings.runs_per_trigger_and_day_max
        if due.sig not in self._left:
            self._left[due.sig] = runs_max - self.journal.event_runs(due.sig, self.now_ms - self.now_ms % _DAY_MS)
        if self._left[due.sig] <= 0:
            return "run-cap", f"the trigger has {runs_max} runs a day at this operator"
        self._left[due.sig] -= 1
        return None, ""

    def _is_full(self, signer: Address, size: int) -> bool:
        """Whether the journal, or the share of a signer, is full. A small journal has room for each share."""
        most = self.settings.journal_bytes_max
        if self._total is None:
            self._total = self.journal.bytes()
        self._total += size
        if self._total <= most // _SHARE:
            return False
        at_ms, held = self.held.get(signer, (0, 0))
        if not 0 <= self.now_ms - at_ms < _HELD_MS:
            at_ms, held = self.now_ms, self.journal.bytes_of(signer)
        self.held[signer] = at_ms, held + size
        # Full, it still takes what small shares need: those that filled it stop nobody else.
        return held + size > most // (_SHARE if self._total <= most else _SMALL_SHARE)


def _noted(due: Due) -> Due:
    """What a note says of an event; of a log that is too long it leaves out the data."""
    if due.event is None or len(due.payload) <= _PAYLOAD_BYTES_MAX:
        return due
    log = replace(due.event.log, data=HexString.parse("0x"))
    return due._replace(payload=event_payload(log), event=due.event._replace(log=log))
