"""Follow a log: from what was seen to what is shown now, through every epoch and every entry between them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from muniment.client.failures import Forged
from muniment.client.flows.log import parts
from muniment.client.flows.log.checkpoints import (
    Epoch,
    Late,
    NotAnnounced,
    NotBegun,
    Signed,
    announces,
    check_beginning,
    check_policy,
    check_succession,
    compare,
    end_of,
    opened,
    origin_of,
)
from muniment.client.flows.log.entries import Duplicates, Entries, Known, OnEntry
from muniment.client.flows.log.parts import Tiles
from muniment.protocol.errors import LogPartNotFound
from muniment.protocol.log.checkpoints import open_checkpoint
from muniment.protocol.log.entries import NO_EPOCH, CloseFact, previous_epoch
from muniment.protocol.log.notes import Note, parse_note, verified
from muniment.protocol.log.tiles import WIDTH
from muniment.protocol.log.tree import EMPTY_ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.client.flows.session import Session
    from muniment.client.steps import Flow
    from muniment.protocol.log.notes import VerifierKey
    from muniment.protocol.log.policy import Policy
    from muniment.protocol.log.types import LogEpoch

# Of the number of an epoch.
_DIGITS_MAX: Final = 10
# An open log signs its time every minute. Clocks differ by some minutes.
AGE_S_MAX: Final = 15 * 60


class Seen(msgspec.Struct, frozen=True):
    """State that a client keeps of a log: origin, pinned keys, last verified checkpoint."""

    origin: str
    vkeys: tuple[str, str]
    note: str


@dataclass(frozen=True, slots=True)
class Rules:
    """How to follow. `now_s` is the time in Unix seconds; `policy` names witnesses that must have signed.

    `against` are notes of the log that others have seen. With `accepts`, an unannounced log is followed too.
    `on_entry` gets each new entry after the tree has proved it. A first run begins with the newest epoch, the oldest
    that `against` has a note of, or with `from_start` the oldest of all.

    `known` holds the records of the log, to find a second entry of a record. Keep it with `seen`: if it is empty,
    incomplete or of another log, it is filled by reading the seen epoch again; without it, only new entries are
    compared with each other.
    """

    now_s: int
    policy: Policy | None = None
    against: Sequence[Note] = ()
    accepts: bool = False
    on_entry: OnEntry | None = None
    from_start: bool = False
    known: Known | None = None


@dataclass(slots=True)
class Progress:
    """The result of following. Keep `seen`; `faults` are statements that the log must not have signed."""

    seen: Seen
    size: int = 0
    new_entries: int = 0
    signed_at_s: int = 0
    faults: list[str] = field(default_factory=list[str])


def follow(session: Session, seen: Seen | None, rules: Rules) -> Flow[Progress]:
    """Verify all that the log has shown since `seen`; without `seen`, trust the log's keys, and verify all of it.

    Raises `Forked` with the proof, `NotAnnounced`, `Late`, and `Forged` for answers that belong to no checkpoint.
    """
    epochs = yield from parts.epochs(session)
    chain = _chain(epochs, seen, rules)
    duplicates = Duplicates({} if rules.known is None else rules.known)
    is_all_known = (
        seen is not None and [seen.origin] == [each.origin for each in chain[:1]] and duplicates.is_whole(seen.vkeys[0])
    )
    rereads = seen is not None and rules.known is not None and not is_all_known
    if not is_all_known:
        duplicates.known.clear()
    found: Progress | None = None
    before: Epoch | None = None
    ended = NO_EPOCH
    for at, shown in enumerate(chain):
        known = seen if seen is not None and seen.origin == shown.origin else None
        epoch = yield from _signed(session, shown, known, rules, is_newest=shown is chain[-1])
        if epoch is None:
            ended = previous_epoch(shown.origin, 0, EMPTY_ROOT)
            continue
        # Epochs older than `seen` are read for their checkpoints only: their entries were reported before.
        is_older = seen is not None and seen.origin in {each.origin for each in chain[at + 1 :]}
        read = _Reading(known, duplicates, None if is_older else rules.on_entry, before, rereads=rereads)
        entries = yield from _walk(session, epoch, read)
        session.logged_twice |= entries.twice
        check_succession(before, epoch, entries, accepts=rules.accepts)
        if rules.from_start and seen is None and not announces(before, epoch):
            check_beginning(epoch, entries, ended)
        ended = end_of(epoch)
        if entries.first is not None and (older := entries.first.previous[0]) in {each.origin for each in chain[at:]}:
            raise Forged(f"the registry shows {older} as newer than {shown.origin}")
        if isinstance(entries.last, CloseFact):
            epoch.last = entries.last
        found = _further(found, epoch, known, entries, is_older=is_older)
        before = epoch
    if found is None or before is None:
        raise NotBegun("the log of the registry has no checkpoint yet")
    duplicates.complete(found.seen.vkeys[0])
    if before.last is not None and not found.faults:
        raise Late(f"{before.shown.origin} has ended, and the registry does not show the epoch after it")
    found.faults += _not_shown(rules, epochs)
    return found


def _further(found: Progress | None, epoch: Epoch, known: Seen | None, entries: Entries, *, is_older: bool) -> Progress:
    """The progress so far, with another epoch added."""
    kept = Seen(epoch.shown.origin, (epoch.keys[0].text, epoch.keys[1].text), epoch.signed.note.data.decode())
    size = epoch.signed.checkpoint.size
    before_size = _opened_seen(known).checkpoint.size if known else 0
    new = 0 if is_older else max(size - before_size, 0)
    if found is None:
        return Progress(kept, size, new, epoch.at_s, entries.faults)
    return Progress(kept, size, found.new_entries + new, epoch.at_s, [*found.faults, *entries.faults])


def _not_shown(rules: Rules, epochs: Sequence[LogEpoch]) -> list[str]:
    """Faults for given checkpoints whose log the registry hides, or shows under another key."""
    keys = {each.origin: parts.keys_of(each.origin, each.vkeys)[0] for each in epochs}
    faults = dict[str, None]()
    for note in rules.against:
        key = keys.get(origin := origin_of(note))
        if key is None:
            faults[f"the registry shows no log {origin}, of which a checkpoint was given"] = None
        elif not _is_by(note, key):
            faults[f"the registry shows {origin} under another key than a given checkpoint"] = None
    return sorted(faults)


def _chain(epochs: list[LogEpoch], seen: Seen | None, rules: Rules) -> list[LogEpoch]:
    """The epochs to verify, the oldest first, beginning with the oldest that was seen."""
    for newer, older in pairwise(epochs):
        if _number_of(older.origin, newer.origin) >= (_number_of(newer.origin, newer.origin) or math.inf):
            raise Forged(f"the registry shows {newer.origin} as newer than {older.origin}")
    places = {each.origin: count for count, each in enumerate(epochs, 1)}
    if seen is not None and seen.origin not in places and not rules.accepts:
        raise NotAnnounced(f"the registry no longer shows the log {seen.origin}")
    if rules.from_start and seen is None:
        return epochs[::-1]
    origins = [*(origin_of(note) for note in rules.against), *([seen.origin] if seen else [])]
    return epochs[: max((places.get(each, 1) for each in origins), default=1)][::-1]


def _number_of(origin: str, other: str) -> int:
    """The number at the end of an origin; 0 if the rest differs from that of `other`."""
    name, _, number = origin.rpartition("/")
    is_one = name == other.rpartition("/")[0] and number.isascii() and number.isdigit() and len(number) < _DIGITS_MAX
    return int(number) if is_one else 0


def _opened_seen(seen: Seen) -> Signed:
    return opened(parse_note(seen.note.encode()), parts.keys_of(seen.origin, seen.vkeys)[0])


def _signed(
    session: Session, shown: LogEpoch, known: Seen | None, rules: Rules, *, is_newest: bool
) -> Flow[Epoch | None]:
    """The verified checkpoint of an epoch: signatures, time, witnesses, consistency with seen checkpoints.

    None: another epoch began before this one was signed.
    """
    keys = parts.keys_of(shown.origin, known.vkeys if known else shown.vkeys)
    if [each.text for each in keys] != shown.vkeys:
        raise Forged(f"the registry names other keys of {shown.origin} than before")
    try:
        note = yield from parts.checkpoint(session, shown.prefix)
    except LogPartNotFound:
        if known is not None or is_newest:
            raise
        return None
    signed = opened(note, keys[0])
    at_s = max(verified(signed.note, [keys[1]]).values(), default=None)
    if at_s is None:
        raise Forged("the checkpoint has no signed time")
    seen = _kept(known, signed, accepts=None if is_newest else rules.accepts)
    for each in [*seen, *_seen_by_others(rules, keys[0])]:
        yield from compare(session, shown.prefix, each, signed)
        if each.checkpoint.size > signed.checkpoint.size:
            raise Late(f"the registry shows {signed.checkpoint.size} entries, and {each.checkpoint.size} were seen")
    if is_newest:
        _check_age(shown, at_s, rules.now_s)
        if rules.policy is not None:
            check_policy(rules.policy, signed, keys[0])
    return Epoch(shown, keys, signed, at_s)


def _kept(known: Seen | None, signed: Signed, *, accepts: bool | None) -> list[Signed]:
    """The seen checkpoint of an epoch, if there is one to compare.

    If an older epoch shows fewer entries than were seen, a person must accept the loss, and there is nothing to
    compare. `accepts` is None for the newest epoch. Raises `NotAnnounced`.
    """
    if known is None:
        return []
    kept = _opened_seen(known)
    origin, size, _, _ = signed.checkpoint
    if accepts is None or kept.checkpoint.size <= size:
        return [kept]
    if accepts:
        return []
    raise NotAnnounced(
        f"the registry shows {size} entries of {origin}, of which {kept.checkpoint.size} were seen, and another log "
        "after it"
    )


def _seen_by_others(rules: Rules, key: VerifierKey) -> list[Signed]:
    """The given checkpoints by this key; `_not_shown` reports those by another."""
    return [opened(note, key) for note in rules.against if _is_by(note, key)]


def _is_by(note: Note, key: VerifierKey) -> bool:
    """Whether a note is a checkpoint signed by this key."""
    try:
        open_checkpoint(note, key)
    except ValueError:
        return False
    return True


def _check_age(shown: LogEpoch, at_s: int, now_s: int) -> None:
    if at_s > now_s + AGE_S_MAX:
        raise Late(f"the log was signed {(at_s - now_s) // 60} minutes in the future: is the clock right?")
    if at_s < now_s - AGE_S_MAX:
        why = f"; the registry says it is {shown.state}" if shown.state != "open" else ""
        raise Late(f"the log was signed {(now_s - at_s) // 60} minutes ago{why}")


class _Reading(NamedTuple):
    """How to read an epoch: from its `known` checkpoint on, or with `rereads` all of it.

    The first entry of an epoch after `before` is read too, since it names that epoch.
    """

    known: Seen | None
    duplicates: Duplicates
    on_entry: OnEntry | None
    before: Epoch | None
    rereads: bool


def _walk(session: Session, epoch: Epoch, how: _Reading) -> Flow[Entries]:
    """Read the new entries of an epoch, and at least its last, which may close it."""
    checkpoint = epoch.signed.checkpoint
    if not checkpoint.size:
        raise Forged(f"the checkpoint of {checkpoint.origin} has no entries, and no log is signed before its first one")
    seen = _opened_seen(how.known) if how.known else None
    seen_at = verified(seen.note, [epoch.keys[1]]).values() if seen else ()
    entries = Entries(
        epoch.shown.origin, (epoch.keys[0].text, epoch.keys[1].text), epoch.at_s * 1000,
        max(seen_at, default=0) * 1000 if seen else None, how.on_entry, how.duplicates,
        is_announced=announces(how.before, epoch),
    )  # fmt: skip
    first = seen.checkpoint.size if seen else 0
    tiles = yield from Tiles.below(session, epoch.shown.prefix, checkpoint)
    if how.before is not None and first > 0:
        entries.begin((yield from tiles.entries(0))[0])
    # The entry before the first new one may be the last one of the epoch.
    for n in range(0 if how.rereads else max(first - 1, 0) // WIDTH, -(-checkpoint.size // WIDTH)):
        for index, entry in enumerate((yield from tiles.entries(n)), n * WIDTH):
            if index >= first:
                entries.add(index, entry)
            elif how.rereads:
                entries.learn(index, entry)
            else:
                entries.skip(entry)
    return entries
