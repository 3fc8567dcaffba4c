"""A circuit breaker for a slow server: during an outage only one request at a time waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from muniment.protocol.errors import StorageUnavailable

# A slower failure is an outage. A quick failure occupies no thread, so the next request may try at once.
SLOW_SECONDS: Final = 1.0
# A server that works again answers the trial within this time: a request takes some milliseconds.
_TRIAL_SECONDS: Final = 0.25


class Outage:
    """The outages of one server. During an outage one request at a time tries it, and the others are refused soon.

    Many threads may use an `Outage` concurrently.
    """

    def __init__(self) -> None:
        """Begin without an outage."""
        self._lasts = False
        self._trial = threading.Lock()

    @contextmanager
    def trying(self, *, always: bool = False) -> Generator[None]:
        """Send one request in this block, which raises `StorageUnavailable` when the server fails.

        Raises `StorageUnavailable` soon while another request tries a server that was too slow. With `always` the
        request is sent all the same.
        """
        is_trial = self._lasts and not always
        if is_trial and not self._trial.acquire(timeout=_TRIAL_SECONDS):
            raise StorageUnavailable("the block store does not answer: the S3 server was too slow a moment ago")
        if is_trial and not self._lasts:  # the trial of another request has succeeded
            self._trial.release()
            is_trial = False
        began, is_failure = time.monotonic(), False
        try:
            yield
        except StorageUnavailable:
            is_failure = True
            raise
        finally:
            self._lasts = is_failure and time.monotonic() - began >= SLOW_SECONDS
            if is_trial:
                self._trial.release()
