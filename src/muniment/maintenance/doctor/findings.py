"""A finding: what one check saw, how bad it is, and what an operator does about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Level(IntEnum):
    """How bad a finding is. The number is the exit status of the command."""

    OK = 0
    WARN = 1
    FAIL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """What the check `check` saw, on one line. `remedy` is empty when nothing is to be done."""

    check: str
    level: Level
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        """Two lines at most: the finding, and below it the remedy."""
        below = f"\n      {self.remedy}" if self.remedy else ""
        return f"{self.level.name.lower():<4}  {self.check}: {self.message}{below}"

    def shown(self) -> dict[str, str]:
        """The members of a JSON object."""
        return {
            "check": self.check,
            "level": self.level.name.lower(),
            "message": self.message,
            "remedy": self.remedy,
        }


def ok(check: str, message: str) -> Finding:
    """A finding without a fault."""
    return Finding(check, Level.OK, message)


def warn(check: str, message: str, remedy: str) -> Finding:
    """A finding that will hurt later, or under load."""
    return Finding(check, Level.WARN, message, remedy)


def fail(check: str, message: str, remedy: str) -> Finding:
    """A finding that stops the service, or endangers what is stored."""
    return Finding(check, Level.FAIL, message, remedy)


def status_of(findings: Iterable[Finding]) -> int:
    """The exit status: the level of the worst finding."""
    return max((finding.level for finding in findings), default=Level.OK).value
