"""Whether a log has each record once. Two entries of one record would both be proved, under one checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Final

from muniment.ipfs.cid import Cid
from muniment.tlog.entries import DeactivationFact, Entry, FunctionFact, TriggerFact

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
    """The names of a record: unique without a content; with one, all entries of the name must have the same.

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
