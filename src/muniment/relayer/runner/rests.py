"""Triggers that fail again and again: they rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from muniment.protocol.evm.signature import Signature
    from muniment.relayer.journal.sqlite import Journal, Known

# After so many failures in sequence a trigger rests: a minute, then twice as long each time, at most an hour.
FAILURES_MAX: Final = 3
_REST_MS: Final = 60_000
REST_MS_MAX: Final = 3_600_000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rests:
    """Counts the failures in sequence of each trigger, in the journal."""

    journal: Journal

    def judge(self, sig: Signature, now_ms: int, *, is_failure: bool) -> None:
        """Count the end of a run: from the third failure in sequence on the trigger rests."""
        known = self.journal.known(sig)
        if known is None or not (is_failure or known.failures):
            return
        failures = known.failures + 1 if is_failure else 0
        rest_ms = min(REST_MS_MAX, _REST_MS << min(failures - FAILURES_MAX, 10)) if failures >= FAILURES_MAX else 0
        self.journal.failed(sig, failures, now_ms + rest_ms if rest_ms else 0)
        if rest_ms:
            _log.warning("the trigger rests after failures", trigger=sig, failures=failures, seconds=rest_ms // 1_000)


def rests_until_ms(known: Known, now_ms: int) -> int:
    """Until when a trigger rests, in milliseconds since 1970: the clock may have gone back, so an hour at most."""
    return min(known.rests_until_ms, now_ms + REST_MS_MAX)
