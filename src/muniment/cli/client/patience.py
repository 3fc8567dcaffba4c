"""Ask again until a server answers, for commands that go on until a signal."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

from muniment.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
# Pauses after the first, the second, … failure in a row; the last one repeats.
PAUSES_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_RETRY_AFTER_S_MAX: Final = 300


def until_answered(ask: Callable[[], T], stop: output.StopRequest, *more: type[Exception]) -> T:
    """The result of `ask`, which is repeated after failures that pass, and after those of the types `more`.

    The first failure is printed. Raises other errors, and `StoppedWhileWaiting` after a signal.
    """
    from muniment.client.flows.following import PASSING

    for failures in count():
        try:
            with stop.waiting():
                return ask()
        except (*PASSING, *more) as error:
            if not failures:
                output.print_note(f"{_reason(error)}; trying again")
            with stop.waiting():
                time.sleep(max(_asked_s(error), PAUSES_S[min(failures, len(PAUSES_S) - 1)]))
    raise AssertionError


def _reason(error: Exception) -> str:
    reply = getattr(error, "answer", None)
    return str(error) if reply is None else f"the service answers {reply.status}: {error}"


def _asked_s(error: Exception) -> float:
    """The seconds that an answer asks to wait for, at most five minutes."""
    from muniment.client.retrying import retry_after_s

    reply = getattr(error, "answer", None)
    return 0 if reply is None else min(retry_after_s(reply.headers, time.time()), _RETRY_AFTER_S_MAX)
