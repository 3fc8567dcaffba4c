"""A finding: the result of one check, its severity and its remedy."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TypeAlias

from muniment.service.running.settings import Settings
from muniment.service.storage.database import Database


class Level(IntEnum):
    """The severity of a finding. The number is the exit status of the command."""

    OK = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `check` is empty for the name in the table; `remedy` is empty without a fault."""

    level: Level
    message: str
    remedy: str = ""
    check: str = ""

    def __str__(self) -> str:
        """The finding, and the remedy on a second line."""
        below = f"\n      {self.remedy}" if self.remedy else ""
        return f"{self.level.name.lower():<4}  {self.check}: {self.message}{below}"

    def shown(self) -> dict[str, str]:
        """The members of a JSON object."""
        return {"check": self.check, "level": self.level.name.lower(), "message": self.message, "remedy": self.remedy}


Findings: TypeAlias = Finding | Sequence[Finding]


@dataclass(frozen=True, slots=True)
class Examined:
    """The registry to examine: settings, URL for clients and directory of backups, both if the operator names them.

    `now_s` is Unix time in seconds. The examination sets `opened` before the checks of the database.
    """

    settings: Settings
    url: str = ""
    backup: Path | None = None
    now_s: float = field(default_factory=time.time)
    opened: Database | None = None

    @property
    def database(self) -> Database:
        """The open database."""
        if self.opened is None:
            raise RuntimeError("the database is not open")
        return self.opened

    @property
    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        return int(self.now_s * 1000)


def ok(message: str, *, check: str = "") -> Finding:
    """A finding without a fault."""
    return Finding(Level.OK, message, check=check)


def warn(message: str, remedy: str, *, check: str = "") -> Finding:
    """A finding that will cause harm later, or under load."""
    return Finding(Level.WARN, message, remedy, check)


def fail(message: str, remedy: str, *, check: str = "") -> Finding:
    """A finding that stops the service, or endangers stored data."""
    return Finding(Level.FAIL, message, remedy, check)


def status_of(findings: Iterable[Finding]) -> int:
    """The exit status: the level of the worst finding."""
    return max((finding.level for finding in findings), default=Level.OK).value
