"""Checkpoints: signed notes with the size and the root of a log's tree (c2sp.org/tlog-checkpoint 1.0.0)."""

from __future__ import annotations

from typing import Final, NamedTuple

from muniment.protocol.log.fields import HASH_BYTES, SIZE_MAX, base64_of, check_line, hash_of, number_of
from muniment.protocol.log.keys import VerifierKey
from muniment.protocol.log.notes import Note, verified

# The origin, the size and the root.
_LINES: Final = 3


class Checkpoint(NamedTuple):
    """The text of a checkpoint: the tree of the log `origin` had this root when it had `size` leaves."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text that is signed. Raises `ValueError` for values that a checkpoint cannot have."""
        lines = [check_line(self.origin, "the origin"), str(self.size), base64_of(self.root)]
        lines += [check_line(each, "a line of the checkpoint") for each in self.extensions]
        if not 0 <= self.size <= SIZE_MAX or len(self.root) != HASH_BYTES:
            raise ValueError("a checkpoint has a size below 2^63 and a root of 32 bytes")
        return "".join(f"{line}\n" for line in lines)


def parse_checkpoint(text: str) -> Checkpoint:
    """The checkpoint that the text of a note is. Each checkpoint has one text. Raises `ValueError`."""
    lines = text.split("\n")
    if len(lines) <= _LINES or lines.pop():
        raise ValueError("a checkpoint has lines for the origin, the size and the root")
    origin, size, root, *extensions = lines
    return Checkpoint(
        check_line(origin, "the origin of the checkpoint"),
        number_of(size, "the size of the checkpoint"),
        hash_of(root, "the root of the checkpoint"),
        tuple(check_line(each, "a line of the checkpoint") for each in extensions),
    )


def open_checkpoint(note: Note, key: VerifierKey) -> Checkpoint:
    """The checkpoint in `note` if `key` signed it, and if its origin is the name of the key. Raises `ValueError`."""
    checkpoint = parse_checkpoint(note.text)
    if checkpoint.origin != key.name:
        raise ValueError(f"the checkpoint is of the log {checkpoint.origin}, not of {key.name}")
    if key not in verified(note, [key]):
        raise ValueError(f"the checkpoint has no signature by {key.text}")
    return checkpoint
