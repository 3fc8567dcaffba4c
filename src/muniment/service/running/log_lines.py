"""Lines of the log: a line that repeats is written once with a count, and texts of strangers are bounded.

An outage of the database fails every request, with a line for each: thousands a second, in which no other line can be
found. So a warning or an error is written at once, and then, while it repeats, once in an interval with the number of
lines that were left out.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog
from structlog.typing import EventDict, WrappedLogger

# How long lines that repeat are counted before the next of them is written.
INTERVAL_SECONDS: Final = 10.0
# Kinds of lines counted in one interval. All others count as one kind, so that the memory stays bounded.
KINDS_MAX: Final = 256
# Fields that distinguish lines of one event. The other fields, such as the request's id, differ in each line.
_TELLING: Final = ("code", "error", "operation", "route", "status", "chain", "host", "url", "reason")
# Levels of lines that are never left out: a line for each request is what `log_requests=all` asks for.
_WRITTEN: Final = frozenset({"debug", "info"})
_NUMBERS: Final = {"warning": logging.WARNING, "error": logging.ERROR, "critical": logging.CRITICAL}

# As long as the longest path of an operation, a signature included.
_PATH_LENGTH_MAX: Final = 200
_HIDDEN: Final = re.compile(r"[^!-~]")

# Calls a function after some seconds, in another thread.
Later = Callable[[float, Callable[[], None]], None]


@dataclass(slots=True)
class _Kind:
    """Lines of one kind: how many were left out, and the level and fields of the last."""

    left_out: int = 0
    level: str = ""
    last: EventDict | None = None


def _by_timer(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True  # the end of the process writes what is left
    timer.start()


class Repeats:
    """A processor of structlog that leaves out warnings and errors that repeat, and writes their number."""

    def __init__(self, later: Later = _by_timer, *, interval_s: float = INTERVAL_SECONDS) -> None:
        """`later` calls a function after some seconds."""
        self._later = later
        self._interval_s = interval_s
        self._kinds: dict[tuple[object, ...], _Kind] = {}
        # Reentrant: a timer or the end of the process may write while this thread counts.
        self._lock = threading.RLock()

    def __call__(self, _: WrappedLogger, level: str, line: EventDict) -> EventDict:
        """The line; raises `DropEvent` for a line that repeats within the interval."""
        if level in _WRITTEN or "repeated" in line:
            return line
        key = (level, line.get("event"), *(str(line.get(name, "")) for name in _TELLING))
        with self._lock:
            kind = self._kinds.get(key)
            if kind is None and len(self._kinds) >= KINDS_MAX:
                key = ("other",)
                kind = self._kinds.get(key)
            if kind is None:
                self._kinds[key] = _Kind()
                if len(self._kinds) == 1:
                    self._begin_interval()
                return line
            kind.left_out += 1
            kind.level, kind.last = level, line
        raise structlog.DropEvent

    def write(self) -> None:
        """End the interval: write the last of the lines that were left out of each kind, and how many there were.

        A kind that repeated goes on being counted, so that a lasting outage writes one line in an interval.
        """
        with self._lock:
            repeated = {key: kind for key, kind in self._kinds.items() if kind.last is not None}
            self._kinds = {key: _Kind() for key in repeated}
            if self._kinds:
                self._begin_interval()
        for kind in repeated.values():
            _write(kind)

    def _begin_interval(self) -> None:
        """Plan the end of an interval. If it cannot be planned, leave out no line."""
        try:
            self._later(self._interval_s, self.write)
        except RuntimeError:  # no thread can start: the process ends (Python 3.12), or the system has no more threads
            self._kinds.clear()


def _write(kind: _Kind) -> None:
    line: dict[str, Any] = {**(kind.last or {}), "repeated": kind.left_out}
    line.pop("exc_info", None)  # the first line has the traceback
    structlog.get_logger().log(_NUMBERS.get(kind.level, logging.ERROR), line.pop("event", ""), **line)


def shown_path(path: str) -> str:
    """A path for a log or a trace: of bounded length, with every character that is not visible ASCII escaped."""
    cut = path[:_PATH_LENGTH_MAX]
    shown = _HIDDEN.sub(lambda found: f"%{ord(found[0]):02X}", cut)
    return shown if len(cut) == len(path) else f"{shown}…"
