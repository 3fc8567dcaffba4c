"""Send a request again when the same request may succeed later."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from muniment.client.failures import Reply, Unreachable
from muniment.client.steps import Flow, Send, Sleep
from muniment.protocol.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

# Statuses with which the same request may succeed later (RFC 9110 sections 15.5.9, 15.6.3 to 15.6.5, RFC 6585). 500 is
# a defect, and 409 a fact.
PASSING: Final = frozenset({408, 429, 502, 503, 504})
# Of these, statuses of requests that the service has certainly not begun to carry out.
_NOT_BEGUN: Final = frozenset({408, 429})
_FIRST_PAUSE_S: Final = 0.5
_PAUSE_S_MAX: Final = 8.0
_DIGITS_MAX: Final = 9


@dataclass(frozen=True, slots=True)
class Retry:
    """Limits of retries.

    If the service asks for a longer pause than `pause_s_max`, the refusal is raised. `seconds` is a
    monotonic clock, `now` the time since 1970 in seconds, `chance` gives numbers from 0 up to 1.
    """

    tries: int = 6
    seconds_max: float = 120.0
    pause_s_max: float = 60.0
    seconds: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random

    def reply(self, send: Send) -> Flow[Reply]:
        """The answer to `send`, of any status. Raises `Unreachable`.

        A request that is not repeatable is sent again only if the service has certainly not begun to carry it out.
        """
        begun_s, failures = self.seconds(), 0
        while True:
            failures += 1
            try:
                reply: Reply = yield send
            except Unreachable as error:
                if (error.sent and not send.is_repeatable) or (pause := self._pause_s(failures, begun_s, {})) is None:
                    raise
            else:
                is_passing = reply.status in (PASSING if send.is_repeatable else _NOT_BEGUN)
                if not is_passing or (pause := self._pause_s(failures, begun_s, reply.headers)) is None:
                    return reply
            yield Sleep(pause)

    def pause_after_loss(self, error: Unreachable | Unavailable, failures: int, begun_s: float) -> float | None:
        """The pause after a request that the service may have carried out; None: raise the error.

        For operations that read the state before they send the request again.
        """
        if isinstance(error, Unreachable):
            return self._pause_s(failures, begun_s, {}) if error.sent else None
        return self._pause_s(failures, begun_s, error.answer.headers)

    def _pause_s(self, failures: int, begun_s: float, headers: Mapping[str, str]) -> float | None:
        """The pause before the next try; None: do not retry.

        The time that the service asks for plus random jitter, so that clients do not return all at once.
        """
        asked_s = retry_after_s(headers, self.now())
        pause = asked_s + self.chance() * min(_PAUSE_S_MAX, _FIRST_PAUSE_S * 2 ** (failures - 1))
        is_late = self.seconds() + pause - begun_s > self.seconds_max
        return None if failures >= self.tries or asked_s > self.pause_s_max or is_late else pause


def retry_after_s(headers: Mapping[str, str], now_s: float) -> float:
    """The seconds of `Retry-After` (RFC 9110 section 10.2.3), which is a number or a date; 0 without it."""
    text = headers.get("retry-after", "")
    if text.isascii() and text.isdigit():
        return float(text[:_DIGITS_MAX])
    try:
        at = parsedate_to_datetime(text)
        return max(0.0, at.replace(tzinfo=at.tzinfo or UTC).timestamp() - now_s)
    except (ValueError, OverflowError):
        return 0.0
