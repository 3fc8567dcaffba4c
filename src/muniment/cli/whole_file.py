"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

# Written at once.
_BUFFER_BYTES: Final = 256 * 1024


@contextmanager
def written(place: str) -> Generator[IO[bytes]]:
    """A file to write that takes its name, an older one's too, once all of it is on disk; `-` is standard output.

    What is there and is no regular file, such as a pipe, is written as it is. Raises `OSError`.
    """
    path = Path(place)
    if place == "-":
        stream = sys.stdout.buffer
        yield stream
        stream.flush()
    elif path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
    else:
        with _moved_when_whole(path.resolve()) as file:  # a link goes on to lead to the file
            yield file


@contextmanager
def _moved_when_whole(path: Path) -> Generator[IO[bytes]]:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb", buffering=_BUFFER_BYTES) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    _sync(path.parent)


def _sync(directory: Path) -> None:
    """Make names in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
