"""What the check of a record comes upon, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Outcome = Literal["same", "consistent", "unchecked", "different"]


class Verification(NamedTuple):
    """What came of it, and why, a sentence each; `omissions` are what was not compared of a record that may be true.

    `same`: the answers of nodes lead to the recorded result, or it needs none. `consistent`: the recorded answers lead
    to it, and were not checked. `unchecked`: it cannot be decided. `different`: the record is wrong.
    """

    outcome: Outcome
    reasons: tuple[str, ...] = ()
    omissions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Sentences: what is wrong with a record, what cannot be decided, and what was not compared."""

    faults: list[str] = field(default_factory=list[str])
    doubts: list[str] = field(default_factory=list[str])
    omissions: list[str] = field(default_factory=list[str])

    def add(self, more: Report) -> None:
        """Add what another check came upon."""
        self.faults.extend(more.faults)
        self.doubts.extend(more.doubts)
        self.omissions.extend(more.omissions)

    def verification(self, otherwise: Outcome) -> Verification:
        """What comes of it: a fault counts first, then a doubt. `otherwise` is for a record with neither."""
        if self.faults:
            return Verification("different", tuple(self.faults))
        if self.doubts:
            return Verification("unchecked", tuple(self.doubts))
        return Verification(otherwise, (), tuple(self.omissions))
