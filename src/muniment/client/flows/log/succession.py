"""How the epochs of a log follow each other: each names the end of the one before, which names its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from muniment.tlog.entries import NO_EPOCH, CloseFact, previous_epoch

if TYPE_CHECKING:
    from muniment.client.flows.log.comparing import Signed
    from muniment.client.flows.log.entering import Entries
    from muniment.tlog.keys import VerifierKey
    from muniment.tlog.types import LogEpoch


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
    """Whether the last entry of an epoch names the key of another one."""
    return before is not None and before.last is not None and before.last.next_key == epoch.keys[0].text


def check_succession(before: Epoch | None, epoch: Epoch, entries: Entries, *, accepts: bool) -> None:
    """Check that an epoch is the one that the epoch before it announces. Raises `NotAnnounced`."""
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
