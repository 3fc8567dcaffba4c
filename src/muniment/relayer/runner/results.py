"""What becomes of a run whose turn it is: a result with its intents, none yet, or a reason why it is not made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from muniment.protocol.intents.types import AnyNewIntent
    from muniment.protocol.runs.reasons import RunReasonCode
    from muniment.protocol.runs.types import NewRun
    from muniment.protocol.triggers.types import Trigger
    from muniment.relayer.schedule.due import Due


class Made(NamedTuple):
    """A run that came to a result: its record, and its intents in the registry's form."""

    run: NewRun
    intents: Sequence[AnyNewIntent]


class NotYet(NamedTuple):
    """A run that has no result yet: an answer is missing. `code` is a reason of `incomplete`."""

    code: str
    text: str


# In place of such a code: its time was over, or in doubt, before it was tried.
LATE: Final = "late"


class Skipped(NamedTuple):
    """A run that this relayer does not make, and why."""

    code: RunReasonCode


class GivenUp(NamedTuple):
    """A run that nobody is to make, and why: its trigger has ended, or its event has left the chain."""

    text: str


# What became of a run.
Outcome = Made | NotYet | Skipped | GivenUp


class Running(Protocol):
    """What runs a function."""

    async def run(self, trigger: Trigger, due: Due) -> Made | NotYet:
        """Run the function of a trigger. Raises the errors of the client."""
        ...
