"""The generations of intents, and the tables of each.

Each generation has tables of its own, so that processes of the release before never read intents of the second. The
tables have the same columns except those for filters, so the same code reads and writes both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, LiteralString, NamedTuple

from muniment.intents.types import AnyNewIntent, AnyNewProposal, NewIntent, NewProposal


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of intents: its number on the wire, and its tables."""

    number: int
    intents: LiteralString
    proposals: LiteralString
    logs: LiteralString


FIRST: Final = Generation(1, "intents", "intent_proposals", "intent_logs")
SECOND: Final = Generation(2, "intents_2", "intent_proposals_2", "intent_logs_2")
GENERATIONS: Final = (FIRST, SECOND)
# Every sequence number of an intent, as text behind FROM.
ALL_NUMBERS: Final = "(SELECT seq FROM intents UNION ALL SELECT seq FROM intents_2) numbered"
# The highest of them, as text behind FROM.
LAST_NUMBERS: Final = "(SELECT max(seq) AS seq FROM intents UNION ALL SELECT max(seq) FROM intents_2) numbered"


class IntentKey(NamedTuple):
    """The key of an intent's row: numbers are unique among the intents of all generations."""

    seq: int
    generation: Generation


def generation_of(new: AnyNewIntent | AnyNewProposal) -> Generation:
    """The generation whose form an intent or a proposal has."""
    return FIRST if isinstance(new, (NewIntent, NewProposal)) else SECOND
