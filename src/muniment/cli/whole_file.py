"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from muniment.durable import flush_directory

# Written at once.
_BUFFER_BYTES: Final = 256 * 1024


@contextmanager
def written(place: str) -> Generator[IO[bytes]]:
    """A file to write that takes its name, an older one's too, once all of it is on disk; `-` is standard output.

    What is there and is no regular file, such as a pipe, is written as it is. Raises `OSError`.
    """
    path = Path(place)
    if place == "-":
        with _streamed(sys.stdout.buffer) as stream:
            yield stream
    elif path.exists() and not path.is_file():
        with path.open("wb") as file, _streamed(file) as stream:
            yield stream
    else:
        with _moved_when_whole(path.resolve()) as file:  # a link goes on to lead to the file
            yield file


@contextmanager
def _streamed(stream: IO[bytes]) -> Generator[IO[bytes]]:
    try:
        yield stream
        stream.flush()
    except BaseException:
        with suppress(OSError):  # io.UnsupportedOperation: a stream without a descriptor holds nobody up
            _let_go(stream.fileno())
        raise


def _let_go(descriptor: int) -> None:
    """Send what is still buffered nowhere: closing writes it out, and would wait for a reader that may never read."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, descriptor)
    finally:
        os.close(nowhere)


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
    flush_directory(path.parent)
