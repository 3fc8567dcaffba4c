"""Checkpoints: signed notes with the size and the root of a log's tree (c2sp.org/tlog-checkpoint 1.0.0).

With one comes the proof that an entry is in a log, which can be checked without a connection (c2sp.org/tlog-proof@v1,
a draft).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from muniment.protocol.log.fields import HASH_BYTES, SIZE_MAX, base64_of, bytes_of, check_line, hash_of, number_of
from muniment.protocol.log.notes import NOTE_BYTES_MAX, Note, VerifierKey, parse_note, verified
from muniment.protocol.log.tiles import ENTRY_BYTES_MAX
from muniment.protocol.log.tree import check_inclusion

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


_HEAD: Final = "c2sp.org/tlog-proof@v1"
_HASHES_MAX: Final = 63
# The head, the extra data, the index, the hashes.
_PROOF_BYTES_MAX: Final = NOTE_BYTES_MAX + 2 * ENTRY_BYTES_MAX + (_HASHES_MAX + 3) * 64


class Proof(msgspec.Struct, frozen=True):
    """An entry's index, the hashes from its leaf to the root, and the checkpoint of the log, all unverified.

    `extra` is optional data that the proof does not cover.
    """

    index: int
    hashes: tuple[bytes, ...]
    checkpoint: Note
    extra: bytes | None = None

    @property
    def data(self) -> bytes:
        """The proof as it is sent and stored."""
        lines = [_HEAD] if self.extra is None else [_HEAD, f"extra {base64_of(self.extra)}"]
        lines += [f"index {self.index}", *map(base64_of, self.hashes), "", ""]
        return "\n".join(lines).encode() + self.checkpoint.data


def parse_proof(data: bytes) -> Proof:
    """The proof in `data`, unverified. Raises `ValueError`."""
    if len(data) > _PROOF_BYTES_MAX:
        raise ValueError(f"a proof has at most {_PROOF_BYTES_MAX} bytes")
    head, empty, note = data.partition(b"\n\n")
    try:
        lines = head.decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise ValueError("the lines of a proof before its checkpoint are ASCII") from None
    if not empty or lines.pop(0) != _HEAD:
        raise ValueError(f"a proof begins with {_HEAD}, and an empty line comes before its checkpoint")
    extra = None
    if lines and lines[0].startswith("extra "):
        extra = bytes_of(lines.pop(0).removeprefix("extra "), "the extra data of the proof")
    if not lines or not lines[0].startswith("index "):
        raise ValueError("a proof has a line with the index of the entry")
    index = number_of(lines.pop(0).removeprefix("index "), "the index of the proof")
    if len(lines) > _HASHES_MAX:
        raise ValueError(f"a proof has at most {_HASHES_MAX} hashes")
    return Proof(index, tuple(hash_of(line, "a hash of the proof") for line in lines), parse_note(note), extra)


def check_proof(proof: Proof, leaf: bytes, key: VerifierKey) -> Checkpoint:
    """Check that the log of `key` has an entry with the leaf hash `leaf`. Raises `ValueError`.

    Returns the checkpoint. `policy` decides whether enough witnesses signed it.
    """
    checkpoint = open_checkpoint(proof.checkpoint, key)
    check_inclusion(leaf, proof.index, checkpoint.size, checkpoint.root, proof.hashes)
    return checkpoint
