"""Checks of each new entry of a log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from muniment.client.failures import Forged
from muniment.client.flows.log.once import Duplicates, key_of, name_of
from muniment.tlog.entries import (
    CloseFact,
    DeactivationFact,
    Entry,
    FunctionFact,
    LogFact,
    TakenOverFact,
    TriggerFact,
    parse_entry,
)
from muniment.tlog.fields import time_ms_of
from muniment.tlog.types import MERGE_DELAY_S

# Gets the index and the fact of each new entry; None: of a kind that this release does not know.
OnEntry = Callable[[int, Entry | None], None]
_FAULTS_MAX: Final = 100


@dataclass(slots=True)
class Entries:
    """The new entries of one epoch. `faults` describes what is wrong with them, at most a hundred.

    `signed_ms` is the time of the checkpoint that has them, and `seen_ms` that of the one that was seen before: an
    entry that is new since then is at most ten minutes older than that, or it came too late, or is dated back.
    `vkeys` are the keys for the tree and for the time. Only the first entry vouches for the second.
    """

    origin: str
    vkeys: tuple[str, str]
    signed_ms: int
    seen_ms: int | None
    on_entry: OnEntry | None
    duplicates: Duplicates
    # Whether the epoch before has named the key of this one.
    is_announced: bool
    first: LogFact | None = None
    last: Entry | None = None
    faults: list[str] = field(default_factory=list[str])
    # Records of which there are two entries.
    twice: set[bytes] = field(default_factory=set[bytes])

    def add(self, index: int, data: bytes) -> None:
        """Check an entry, in the order of the log. Raises `Forged` if it names another key for the time."""
        try:
            fact = parse_entry(data)
        except ValueError as error:
            return self._add_fault(index, str(error))
        if isinstance(self.last, CloseFact):
            self._add_fault(index, "it comes after the last entry")
        if isinstance(fact, LogFact) != (index == 0):
            self._add_fault(index, "the first entry, and no other, is about the log itself")
        elif isinstance(fact, LogFact):
            self.first = fact
            if (fact.origin, fact.key) != (self.origin, self.vkeys[0]):
                self._add_fault(index, "it names another log, or another key")
            elif fact.time_key != self.vkeys[1]:
                raise Forged(f"the registry shows another key for the time of {self.origin} than the log has")
        self._check_time(index, fact)
        self._check_duplicates(index, fact)
        self.last = fact
        if self.on_entry is not None:
            self.on_entry(index, fact)
        return None

    def begin(self, data: bytes) -> None:
        """Read the first entry, which was checked before."""
        with suppress(ValueError):
            fact = parse_entry(data)
            self.first = fact if isinstance(fact, LogFact) else None

    def skip(self, data: bytes) -> None:
        """Read an entry that was checked before."""
        with suppress(ValueError):
            self.last = parse_entry(data)

    def learn(self, index: int, data: bytes) -> None:
        """Read an entry that was checked before, and record its names."""
        self.skip(data)
        self._check_duplicates(index, self.last)

    def _check_duplicates(self, index: int, fact: Entry | None) -> None:
        if index == 0 and isinstance(fact, LogFact) and fact.reason == "restored" and not self.is_announced:
            # A restored registry records lost records again; the previous epoch could not announce it.
            self.duplicates.known.clear()
        for fault in self.duplicates.faults(fact, f"{self.origin} {index}"):
            self._add_fault(index, fault)
            if (name := name_of(fact)) is not None and len(self.twice) < _FAULTS_MAX:
                self.twice.add(key_of(name))

    def _check_time(self, index: int, fact: Entry | None) -> None:
        if isinstance(fact, TakenOverFact):
            made_ms = time_ms_of(fact.at, "a time")
        elif isinstance(fact, FunctionFact | TriggerFact | DeactivationFact):
            made_ms = time_ms_of(fact.created_at, "a time")
        else:
            return
        if made_ms >= self.signed_ms + 1_000:  # times of checkpoints are whole seconds
            self._add_fault(index, "dated later than its checkpoint")
        # The record of a function has the time of its first creator.
        is_first = not isinstance(fact, FunctionFact) or fact.uploader == fact.creator
        if is_first and self.seen_ms is not None and made_ms < self.seen_ms - MERGE_DELAY_S * 1000:
            minutes = (self.seen_ms - made_ms) // 60_000
            self._add_fault(index, f"absent {minutes} minutes after its date: backdated, or logged too late")

    def _add_fault(self, index: int, why: str) -> None:
        if len(self.faults) < _FAULTS_MAX:
            self.faults.append(f"entry {index} of {self.origin}: {why}")
