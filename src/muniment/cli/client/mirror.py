"""A file with every intent of a service, which grows with each download."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from muniment.cli.output import counted

if TYPE_CHECKING:
    from muniment.client import Registry
    from muniment.intents.types import AnyIntent

# A listing has the newest fifty proposals and logs of an intent; the rest is read with the intent itself.
_LISTED_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class Mirror:
    """The file, and beside it a checkpoint with the cursor and the length up to which the file is whole."""

    file: Path
    url: str

    def add(self, registry: Registry, say: Callable[[str], None]) -> int:
        """Add the intents after the checkpoint; returns their number. Raises `ValueError` for another service."""
        from muniment.client import Checkpoint
        from muniment.wire import encode

        checkpoint = Checkpoint(self.file.with_name(f"{self.file.name}.position"), url=self.url)
        length_text, _, after = (checkpoint.read() or "0:").partition(":")
        if not length_text.isdigit():
            raise ValueError(f"{self.file} has a damaged position file: remove both to start over")
        length, count = int(length_text), 0
        with self.file.open("r+b" if self.file.exists() else "w+b") as file:
            if file.seek(0, os.SEEK_END) < length:
                raise ValueError(f"{self.file} is shorter than its position file says: remove both to start over")
            file.truncate(length)
            file.seek(length)
            for page in registry.intents.list().pages(after or None):
                for intent in page:
                    file.write(encode(_whole(registry, intent)) + b"\n")
                file.flush()
                os.fsync(file.fileno())
                count += len(page)
                if page.cursor is not None:
                    checkpoint.write(f"{file.tell()}:{page.cursor}")
                say(counted(count, "intent"))
        return count


def _whole(registry: Registry, intent: AnyIntent) -> AnyIntent:
    is_cut = len(intent.proposals) >= _LISTED_MAX or len(intent.logs) >= _LISTED_MAX
    whole = registry.intents.get(intent.hash) if is_cut else intent
    # `expired` follows from the deadline; it is never recorded.
    return replace(whole, status="created") if whole.status == "expired" else whole
