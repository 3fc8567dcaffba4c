"""Files and directories on the disk: when these functions return, a power failure loses neither content nor name.

Every function raises `OSError`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

# The size of one read or write.
_PIECE_BYTES: Final = 1024 * 1024
_BUFFER_BYTES: Final = 256 * 1024


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_file(path: Path, content: bytes) -> None:
    """Write a new file, which only its owner can read."""
    with _new_file(path) as file:
        file.write(content)


def copy_file(source: Path, target: Path) -> str:
    """Copy a file to a new one, which only its owner can read. The result is the SHA-256 in hex."""
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


@contextmanager
def whole_file(path: Path, *, is_private: bool = False) -> Generator[IO[bytes]]:
    """A file to write, which replaces the file at `path` at the end of the block. An error leaves `path` unchanged.

    With `is_private` only its owner can read it, independent of the umask.
    """
    # Random, because a restarted container has the same process id, and would meet the file of a crash.
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    permissions = 0o600 if is_private else 0o666
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, permissions)
        with os.fdopen(descriptor, "wb", buffering=_BUFFER_BYTES) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    flush_directory(path.parent)


def write_through(descriptor: int, data: bytes) -> None:
    """Write all of `data` to an open file, and the file to the disk."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


def prove_writing(directory: Path) -> None:
    """Write a file in `directory` to the disk. The file has no name and vanishes."""
    with TemporaryFile(buffering=0, dir=directory) as file:
        write_through(file.fileno(), b"\0")


def make_directory(directory: Path) -> None:
    """Make `directory` and its missing parents; only their owner can enter them. An existing directory stays."""
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in made:
        flush_directory(path.parent)


def flush_file(path: Path) -> None:
    """Write the content of a file to the disk. Another program may have written it."""
    _flush(path, os.O_RDONLY)


def flush_directory(directory: Path | str) -> None:
    """Write the names in `directory` to the disk."""
    _flush(directory, os.O_RDONLY | os.O_DIRECTORY)


def _flush(path: Path | str, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
