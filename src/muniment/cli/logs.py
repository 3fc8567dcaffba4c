"""Logs on standard error: lines for people or JSON for programs. Bodies, credentials and secrets are never logged."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

import structlog

from muniment.protocol.visible import visible
from muniment.service.running.environment import unread_variables
from muniment.service.running.log_lines import Repeats

if TYPE_CHECKING:
    from structlog.typing import EventDict

    from muniment.service.running.settings import Settings


class _StandardError:
    """Standard error. A failing write is ignored: a full disk or a closed pipe must not stop the service."""

    def write(self, text: str) -> int:
        with suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


def _without_controls(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Escape what a terminal would obey: a value may be a stranger's text, such as the answer of another server."""
    return {
        name: visible(value, keeps="\n\t" if name == "exception" else "") if isinstance(value, str) else value
        for name, value in line.items()
    }


def warn_of_unread_variables() -> None:
    """Name the variables of the environment that look like settings and are none, in one line without their values."""
    if found := unread_variables(name for name, value in os.environ.items() if value):
        structlog.get_logger(__name__).warning("nothing reads these variables", variables=", ".join(found))


def configure_logs(settings: Settings) -> None:
    """Send the logs of this package and of its server through one pipeline."""
    rendering: list[Any] = (
        [structlog.processors.JSONRenderer()]
        if settings.log_format == "json"
        else [_without_controls, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    repeats = Repeats()
    atexit.register(repeats.write)  # the lines that were left out since the last interval
    structlog.configure(
        processors=[
            repeats,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _StandardError())),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        level=max(level, logging.WARNING), stream=sys.stderr, format="%(levelname)s %(name)s %(message)s"
    )
    # The answer reports the fault of a request; a line for each would let clients fill the log.
    for name in ("uvicorn.error", "python_multipart"):
        logging.getLogger(name).setLevel(logging.ERROR)
