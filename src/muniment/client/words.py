"""The registries whose log-ins were in words: none of them gets the signature of a bare nonce again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from muniment.durable import make_directory

_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Words:
    """Origins of registries, in memory, and in the lines of a file if there is one."""

    path: Path | None = None
    _origins: set[str] = field(default_factory=set[str], init=False)

    def __contains__(self, origin: str) -> bool:
        if origin in self._origins or self.path is None:
            return origin in self._origins
        try:
            with self.path.open("rb") as file:
                return origin.encode() in file.read(_BYTES_MAX).split()
        except OSError:  # as `add`: a user whose file cannot be read can log in
            return False

    def add(self, origin: str) -> None:
        """Add an origin. A user whose file cannot be written can log in nevertheless."""
        with suppress(OSError):
            if self.path is not None and origin not in self:
                make_directory(self.path.parent)
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(f"{origin}\n")
        self._origins.add(origin)

    def __str__(self) -> str:
        return "the memory of this client" if self.path is None else str(self.path)
