"""What block stores need of the local disk: room for uploads, and its failures as refusals."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Final

from muniment.errors import StorageUnavailable

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import ReadableBuffer

# Up to here an upload waits in memory: most bundles are 80 to 140 KB.
SPOOL_MEMORY_MAX: Final = 1024 * 1024


class Spool(SpooledTemporaryFile[bytes]):
    """An upload on its way: in memory first, then in a file without a name, which no crash can leave behind."""

    def __init__(self, directory: Path) -> None:
        """In memory up to 1 MiB, then in `directory`."""
        super().__init__(max_size=SPOOL_MEMORY_MAX, dir=str(directory))

    def write(self, s: ReadableBuffer) -> int:
        """Raises `StorageUnavailable` at once when the disk does not take it."""
        with disk_failures():
            written = super().write(s)
            self.flush()
        return written

    def close(self) -> None:
        """Forget the content; a failing disk is no matter any more."""
        with suppress(OSError):
            super().close()

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def disk_failures() -> Generator[None]:
    """An `OSError` inside is a refusal outside: full, over quota, read-only, broken or gone."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "input/output error"
        raise StorageUnavailable(f"the block store does not answer: {reason}") from error
