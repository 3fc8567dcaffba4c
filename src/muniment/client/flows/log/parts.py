"""Parts of a log as a registry serves them: unproved, but checked for form and length."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from muniment.client.failures import Forged
from muniment.client.steps import Flow, Send
from muniment.tlog.fields import HASH_BYTES
from muniment.tlog.keys import VerifierKey, parse_verifier_key
from muniment.tlog.notes import Note, parse_note
from muniment.tlog.tiles import ENTRIES, Tile, split_entries, unpacked
from muniment.tlog.types import LogEpoch, LogShown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from muniment.client.flows.session import Session

_PREFIX: Final = re.compile(r"log/[1-9][0-9]{0,8}", re.ASCII)
# A log under a random name begins another epoch whenever it is restored.
_EPOCHS_MAX: Final = 10_000


def epochs(session: Session) -> Flow[list[LogEpoch]]:
    """The epochs that the registry names, the newest first. Raises `Forged` for malformed keys."""
    found = (yield from session.read("/log", LogShown)).epochs
    if len(found) > _EPOCHS_MAX:
        raise Forged(f"the log has more than {_EPOCHS_MAX} epochs")
    for each in found:
        if not _PREFIX.fullmatch(each.prefix):
            raise Forged("an epoch of the log has a prefix of another form than log/1")
        keys_of(each.origin, each.vkeys)
    return found


def keys_of(origin: str, vkeys: Sequence[str]) -> tuple[VerifierKey, VerifierKey]:
    """The keys of an epoch: for its tree, and for its time. Raises `Forged`."""
    try:
        keys = [parse_verifier_key(each) for each in vkeys]
    except ValueError as error:
        raise Forged(f"the log names a malformed key: {error}") from error
    match keys:
        case [of_tree, of_time] if of_tree.name == of_time.name == origin:
            return of_tree, of_time
        case _:
            raise Forged(f"the log {origin} does not have exactly two keys of its own name")


def checkpoint(session: Session, prefix: str) -> Flow[Note]:
    """The last checkpoint of an epoch, whose signatures are not verified."""
    reply = yield from session.answered(Send("GET", f"/{prefix}/checkpoint"))
    try:
        return parse_note(reply.content)
    except ValueError as error:
        raise Forged(f"the checkpoint is malformed: {error}") from error


def tile(session: Session, prefix: str, wanted: Tile) -> Flow[bytes]:
    """The hashes of a tile."""
    reply = yield from session.answered(Send("GET", f"/{prefix}/tile/{wanted.path}"))
    if len(reply.content) != HASH_BYTES * wanted.width:
        raise Forged(f"tile {wanted.path} has {len(reply.content)} bytes")
    return reply.content


def bundle(session: Session, prefix: str, n: int, width: int) -> Flow[Sequence[bytes]]:
    """The first `width` entries of a bundle."""
    wanted = Tile(ENTRIES, n, width)
    reply = yield from session.answered(Send("GET", f"/{prefix}/tile/{wanted.path}", takes_gzip=True))
    is_packed = reply.headers.get("content-encoding", "identity").lower() == "gzip"
    try:
        return split_entries(unpacked(reply.content) if is_packed else reply.content, width)
    except ValueError as error:
        raise Forged(f"tile {wanted.path} is malformed: {error}") from error
