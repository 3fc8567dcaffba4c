"""Files and directories that are on disk, and their names with them, when they are said to be."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

# Read and written at once.
_PIECE_BYTES: Final = 1024 * 1024


def sha256_of(path: Path) -> str:
    """The hash of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_file(path: Path, content: bytes) -> None:
    """Write a new file durably, for its owner alone."""
    with _new_file(path) as file:
        file.write(content)


def copy_file(source: Path, target: Path) -> str:
    """Copy a file durably to a new one, for its owner alone; its SHA-256 in hex."""
    sha256 = hashlib.sha256()
    with source.open("rb") as read, _new_file(target) as file:
        while piece := read.read(_PIECE_BYTES):
            sha256.update(piece)
            file.write(piece)
    return sha256.hexdigest()


@contextmanager
def _new_file(path: Path) -> Generator[IO[bytes]]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def make_directory(directory: Path) -> None:
    """Make `directory`, where it is not there, for its owner alone; durable when this returns."""
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in made:
        flush_directory(path.parent)


def flush_directory(directory: Path) -> None:
    """Make the names in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
