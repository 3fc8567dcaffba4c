"""What came of triggers, as people are told it. Pure.

*Not carried out* is a view, not a status: an intent that is `expired`, `discarded` or `failed`; a run that is `missed`,
`skipped`, or `stopped` other than by abort; and a run whose intent is not recorded. An abort is an answer of the
function: it is *declined*.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from muniment.protocol.runs.reasons import REASONS
from muniment.protocol.wire import ms_of

if TYPE_CHECKING:
    from muniment.protocol.intents.types import AnyIntent
    from muniment.protocol.runs.types import Run

# The statuses of intents that were not carried out.
UNDONE: Final = ("expired", "discarded", "failed")
_UNDONE_RESULTS: Final = ("stopped", "missed", "skipped")
DECLINED: Final = "declined"
NO_OFFER: Final = "no solver made an offer"
_MEANINGS: Final = {(str(name), str(code)): words for name, codes in REASONS.items() for code, words in codes.items()}
# A relayer publishes the intents of a run right after the run, and tries again for some seconds.
PUBLISHED_MS: Final = 60_000
_LIFE_S: Final = 300


def why_undone(status: str, *, has_offers: bool, is_sent: bool) -> str:
    """Why an intent of this status was not carried out; empty for one that is open or succeeded.

    `is_sent`: a transaction for it is known.
    """
    if status == "expired" and is_sent:
        return "a transaction was sent, and no success was seen in time"
    if status == "expired":
        return "no offer was sent to the chain before the deadline" if has_offers else NO_OFFER
    return {"discarded": "the relayer discarded it", "failed": "its transaction failed on the chain"}.get(status, "")


def why_intent_undone(intent: AnyIntent) -> str:
    """The same of a record."""
    return why_undone(intent.status, has_offers=bool(intent.proposals), is_sent=bool(intent.transaction_hash))


def outcome_of(result: str, reason: str | None) -> str:
    """The result of a run as a word: `declined` where the function itself ended it."""
    return DECLINED if (result, reason) == ("stopped", "abort") else result


def why_run_undone(result: str, reason: str | None, *, is_lost: bool) -> str:
    """Why a run was not carried out; empty for any other. `is_lost`: its intent is not recorded."""
    if result == "intents":
        return "too late when published, or refused" if is_lost else ""
    if outcome_of(result, reason) not in _UNDONE_RESULTS:
        return ""
    return _MEANINGS.get((result, reason or ""), reason or result)


def is_lost(run: Run, now_ms: int) -> bool:
    """Whether an intent of a run is not recorded, and will hardly be.

    A run whose block was dropped is `invalid`: its intents are not to be.
    """
    is_due = now_ms - ms_of(run.created_at) >= PUBLISHED_MS and run.status != "invalid"
    return is_due and not all(each.recorded for each in run.outputs)


def lateness(run: Run, life_s: int | None = None) -> str:
    """When the intents of a run that are not recorded were published, after the words `too late when published`.

    `life_s` is how long after a due time its intents are good, if that is known; most functions give five minutes.
    Where that was in time, it begins with `not recorded here`.
    """
    late_s = max(ms_of(run.created_at) - run.timestamp, 0) // 1_000
    if late_s < (life_s or _LIFE_S):
        return f"not recorded here: published {span(late_s)} after it was due"
    lives = f", and the function gives its intents {span(life_s)}" if life_s else ""
    return f"too late when published: {span(late_s)} after it was due{lives}"


def span(seconds: int) -> str:
    """A span of time in the largest unit that it has at least twice, or exactly once: `9 minutes`, `1 hour`."""
    for name, length in (("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * length or seconds == length:
            return f"{seconds // length} {name}{'' if seconds == length else 's'}"
    return f"{seconds} seconds"


@dataclass(slots=True)
class Tally:
    """How many were looked at, how many of them were declined, and why others were not carried out."""

    counted: int = 0
    declined: int = 0
    reasons: Counter[str] = field(default_factory=Counter[str])

    def add_intent(self, why: str, count: int = 1) -> None:
        """Count intents with the result of `why_undone`."""
        self.counted += count
        self.reasons.update({why: count} if why else {})

    def add_run(self, result: str, reason: str | None, *, is_lost: bool, count: int = 1) -> None:
        """Count runs."""
        self.add_intent(why_run_undone(result, reason, is_lost=is_lost), count)
        self.declined += count if outcome_of(result, reason) == DECLINED else 0

    def words(self, noun: str) -> str:
        """`25 of the newest 30 intents not carried out: no solver made an offer`; empty if there is nothing to say."""
        several = len(self.reasons) > 1
        kinds = [f"{why} ({count:,})" if several else why for why, count in self.reasons.most_common()]
        whole = f"the newest {self.counted:,} {noun}s" if self.counted != 1 else f"1 {noun}"
        undone = f"{self.reasons.total():,} of {whole} not carried out: {' · '.join(kinds)}" if kinds else ""
        declined = f"{self.declined:,} of {whole} declined by the function" if self.declined else ""
        return "; ".join(filter(None, (undone, declined)))
