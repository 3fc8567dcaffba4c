"""Checks of each new entry of a log, and of each record: two entries of one record would both have a proof."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from muniment.client.failures import Forged
from muniment.protocol.ipfs.cid import Cid
from muniment.protocol.log.entries import (
    BackfilledFact,
    CloseFact,
    DeactivationFact,
    Entry,
    FunctionFact,
    LogFact,
    TriggerFact,
    parse_entry,
)
from muniment.protocol.log.fields import time_ms_of
from muniment.protocol.log.types import MERGE_DELAY_S

_KEY_BYTES: Final = 16
# Keys of names are longer.
_WHOLE: Final = b"whole"
Known = MutableMapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The records in the entries so far.

    `known` has for each name 16 bytes, and as many for the place of its entry; of a function, for what its entries say.
    So an entry that is read a second time, after an interruption, is no second entry. It also has the key of the epoch
    up to which it is whole: one that was filled in part, or for another log, has to be filled again.
    """

    known: Known

    def is_whole(self, vkey: str) -> bool:
        """Whether the names of all records in the epoch with this key are known, as far as they were seen."""
        return self.known.get(_WHOLE) == key_of(vkey)

    def complete(self, vkey: str) -> None:
        """Note that all entries up to those of the epoch with this key were read."""
        self.known[_WHOLE] = key_of(vkey)

    def faults(self, fact: Entry | None, place: str) -> Iterator[str]:
        """Faults of the entry at `place`: it repeats or contradicts another. Its names are recorded."""
        for name, content in _names(fact):
            key, value = key_of(name), key_of(content or place)
            before = self.known.setdefault(key, value)
            if before == value:
                continue
            if content:
                yield f"two entries differ on the creator or the time of {name}"
            else:
                yield f"the log has two entries of {name}"


def key_of(name: str) -> bytes:
    """The key of a name in `known`."""
    return hashlib.sha256(name.encode()).digest()[:_KEY_BYTES]


def name_of(fact: Entry | None) -> str | None:
    """The unique name of the record of an entry; None for entries without a record."""
    return next((name for name, content in _names(fact) if not content), None)


def _names(fact: Entry | None) -> Iterator[tuple[str, str]]:
    """The names of a record: unique if the content is empty; otherwise all entries of a name share the content.

    A consent is one trigger, whatever signature it has; both spellings of a CID are one function, and each of its
    uploaders has an entry.
    """
    if isinstance(fact, TriggerFact):
        yield f"trigger {fact.sig}", ""
        yield f"the consent {fact.digest} by {fact.signer}", ""
    elif isinstance(fact, FunctionFact):
        digest = Cid.parse(fact.cid).digest.hex()
        yield f"function {digest} by {fact.uploader}", ""
        yield f"function {digest}", f"{fact.creator} {fact.created_at}"
    elif isinstance(fact, DeactivationFact):
        yield f"deactivation {fact.signature}", ""


# Gets the index and the fact of each new entry; None: of a kind that this release does not know.
OnEntry = Callable[[int, Entry | None], None]
_FAULTS_MAX: Final = 100


@dataclass(slots=True)
class Entries:
    """The new entries of one epoch. `faults` describes what is wrong with them, at most a hundred.

    `signed_ms` is the time of the checkpoint that has them, and `seen_ms` that of the one that was seen before: a
    new entry is at most ten minutes older than `seen_ms`; otherwise it was logged too late, or is backdated.
    `vkeys` are the keys for the tree and for the time. Only the first entry vouches for the second.
    """

    origin: str
    vkeys: tuple[str, str]
    signed_ms: int
    seen_ms: int | None
    on_entry: OnEntry | None
    duplicates: Duplicates
    # Whether the previous epoch announced the key of this epoch.
    is_announced: bool
    first: LogFact | None = None
    last: Entry | None = None
    faults: list[str] = field(default_factory=list[str])
    # Keys of records with two entries.
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
        if isinstance(fact, BackfilledFact):
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
