"""Checkpoints of a log: consistency of two of them (RFC 6962, section 2.1.2), and the sequence of epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from muniment.client.failures import Forged
from muniment.client.flows.log import parts
from muniment.protocol.errors import LogPartNotFound
from muniment.protocol.log.checkpoints import Checkpoint, open_checkpoint
from muniment.protocol.log.entries import NO_EPOCH, CloseFact, previous_epoch
from muniment.protocol.log.notes import verified
from muniment.protocol.log.tiles import hashes_from, tiles_for
from muniment.protocol.log.tree import Range, check_consistency, consistency_ranges, hashes_of, nodes_of, root_hash

if TYPE_CHECKING:
    from muniment.client.flows.log.entries import Entries
    from muniment.client.flows.session import Session
    from muniment.client.steps import Flow
    from muniment.protocol.log.notes import Note, VerifierKey
    from muniment.protocol.log.policy import Policy
    from muniment.protocol.log.types import LogEpoch


class Signed(NamedTuple):
    """A checkpoint that the log has signed."""

    note: Note
    checkpoint: Checkpoint


class Forked(Exception):
    """The log has signed two inconsistent trees. `one` and `other` prove it."""

    def __init__(self, one: Signed, other: Signed) -> None:
        """Hold both checkpoints."""
        super().__init__(one, other)
        self.one = one
        self.other = other

    def __str__(self) -> str:
        one, other = self.one.checkpoint, self.other.checkpoint
        return f"the log {one.origin} has signed two histories, of {one.size} and {other.size} entries"


class Late(Exception):
    """The registry shows an old or shortened state of its log."""


class NotBegun(Late):
    """The registry keeps a log, and shows no checkpoint of it: one that has just started may have none yet."""


def origin_of(note: Note) -> str:
    """The origin line of a note."""
    return note.text.partition("\n")[0]


def opened(note: Note, key: VerifierKey) -> Signed:
    """A note as a checkpoint by `key`. Raises `Forged`."""
    try:
        return Signed(note, open_checkpoint(note, key))
    except ValueError as error:
        raise Forged(str(error)) from error


def check_policy(policy: Policy, signed: Signed, key: VerifierKey) -> None:
    """Check that the witnesses have signed, and that the policy names the log of `key`, if any. Raises `Late`."""
    if policy.logs and key not in [party.key for party in policy.logs]:
        raise Late(f"the policy names other logs than {key.text}")
    if not policy.is_met(list(verified(signed.note, [party.key for party in policy.witnesses.values()]))):
        raise Late("the witnesses that the policy asks for have not signed the checkpoint")


def compare(session: Session, prefix: str, seen: Signed, shown: Signed) -> Flow[None]:
    """Check that two checkpoints are consistent: the log only grows.

    Raises `Forked` when both prove that they are not, `Late` when the registry shows less than was seen and no longer
    serves the rest, and `Forged` for hashes that belong to no checkpoint.
    """
    old, new = sorted((seen, shown), key=lambda each: each.checkpoint.size)
    small, large = old.checkpoint, new.checkpoint
    if small.size == large.size:
        if small.root != large.root:
            raise Forked(seen, shown)
        return
    ranges = consistency_ranges(small.size, large.size)
    wanted = tiles_for(nodes_of([*ranges, Range(0, small.size)]), large.size) if small.size else []
    tiles = dict[tuple[int, int], bytes]()
    try:
        for each in wanted:
            tiles[each.level, each.n] = yield from parts.tile(session, prefix, each)
    except LogPartNotFound as error:
        raise Late(
            f"the registry shows {shown.checkpoint.size} entries of the log, and {large.size} were seen"
        ) from error
    stored = hashes_from(lambda level, n: tiles[level, n])
    try:
        root = root_hash(small.size, stored)
        check_consistency(small.size, root, large.size, large.root, hashes_of(ranges, stored))
    except (ValueError, KeyError) as error:
        raise Forged(f"the hashes of the log do not belong to its checkpoint of {large.size} entries") from error
    if root != small.root:
        raise Forked(seen, shown)


class NotAnnounced(Exception):
    """The registry shows a new log that the previously seen one does not announce."""


@dataclass(slots=True)
class Epoch:
    """An epoch on the way, and the checkpoint that was verified for it."""

    shown: LogEpoch
    keys: tuple[VerifierKey, VerifierKey]
    signed: Signed
    at_s: int
    last: CloseFact | None = None


def announces(before: Epoch | None, epoch: Epoch) -> bool:
    """Whether the last entry of `before` names the key of `epoch`."""
    return before is not None and before.last is not None and before.last.next_key == epoch.keys[0].text


def check_succession(before: Epoch | None, epoch: Epoch, entries: Entries, *, accepts: bool) -> None:
    """Check that the previous epoch announces this epoch. Raises `NotAnnounced`."""
    if before is None:
        return
    ended, origin = end_of(before), before.shown.origin
    first = entries.first
    if announces(before, epoch):
        if first is None or first.previous != ended:
            entries.faults.append(f"{epoch.shown.origin} names another end of {origin} than that epoch has")
        return
    if accepts:
        return
    reason = ""
    if first is not None and first.previous not in {NO_EPOCH, ended}:
        reason = f"; it says that {first.previous[0]} ended with {first.previous[1]} entries, and {ended[1]} are shown"
    raise NotAnnounced(f"{origin} does not announce {epoch.shown.origin}, which the registry shows now{reason}")


def end_of(epoch: Epoch) -> tuple[str, str, str]:
    """The end that the first entry of the next epoch must name."""
    ended = epoch.signed.checkpoint
    return previous_epoch(ended.origin, ended.size, ended.root)


def check_beginning(epoch: Epoch, entries: Entries, ended: tuple[str, str, str]) -> None:
    """Check that an unannounced epoch names the `ended` one shown before it: otherwise entries are hidden.

    Lost and hidden entries cannot be told apart here.
    """
    if entries.first is None or entries.first.previous == ended:
        return
    origin, size, _ = entries.first.previous
    shown = "none is" if ended == NO_EPOCH else f"{ended[1]} of {ended[0]} are"
    entries.faults.append(f"{epoch.shown.origin} begins after {size} entries of {origin}, and {shown} shown before it")
