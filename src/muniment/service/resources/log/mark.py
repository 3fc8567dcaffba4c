"""The mark: a file of the host with the newest checkpoint that a process here has signed or seen published.

Backups do not contain it. So a database that was rolled back has fewer entries than the mark, and its log halts: it
would sign another tree than the one that was shown.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from muniment.durable import whole_file
from muniment.protocol.log.checkpoints import Checkpoint, parse_checkpoint
from muniment.protocol.log.notes import parse_note

MARK_FILE: Final = "tlog-mark"
_BYTES_MAX: Final = 2 * 1024 * 1024


class Mark(msgspec.Struct, frozen=True):
    """The place of the database (empty if unknown), and the note of the last checkpoint, if any."""

    place: str
    note: str | None = None

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint in the note."""
        return None if self.note is None else parse_checkpoint(parse_note(self.note.encode()).text)


def read_mark(data_dir: Path) -> Mark | None:
    """The mark of this host, if it has one. Raises `ValueError` for a damaged file, and `OSError`."""
    try:
        with (data_dir / MARK_FILE).open("rb") as file:
            text = file.read(_BYTES_MAX)
    except FileNotFoundError:
        return None
    try:
        mark = msgspec.json.decode(text, type=Mark)
        _ = mark.checkpoint
    except (msgspec.DecodeError, ValueError):
        raise ValueError(f"{MARK_FILE} in the data directory is damaged") from None
    return mark


def claim_place(data_dir: Path, new: str) -> Mark:
    """The mark of this host, which gets the place `new` if it has none. Raises `ValueError` and `OSError`."""
    with _alone(data_dir):
        mark = read_mark(data_dir) or Mark("")
        if not mark.place:
            mark = Mark(new, mark.note)
            _replace(data_dir, mark)
        return mark


def raise_mark(data_dir: Path, note: str) -> None:
    """Put `note` into the mark, unless the mark has at least this size of the same log.

    Raises `ValueError` if the mark has another tree of the same size, and `OSError`.
    """
    new = parse_checkpoint(parse_note(note.encode()).text)
    with _alone(data_dir):
        mark = read_mark(data_dir) or Mark("")
        before = mark.checkpoint
        if before is None or before.origin != new.origin or before.size < new.size:
            _replace(data_dir, Mark(mark.place, note))
        elif before.size == new.size and before.root != new.root:
            raise ValueError(f"this host has signed another tree of {new.size} leaves")


def _replace(data_dir: Path, mark: Mark) -> None:
    with whole_file(data_dir / MARK_FILE, is_private=True) as file:
        file.write(msgspec.json.encode(mark))


@contextmanager
def _alone(data_dir: Path) -> Generator[None]:
    """Lock the mark against other processes of this host."""
    descriptor = os.open(data_dir, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
