"""The query of a page's address, translated to the API's query."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from muniment.http.request import Request

# Parameters that the API takes in milliseconds since 1970, and that a form gives as a date and a time, in UTC.
TIMES: Final = ("createdAfter", "createdBefore")
# `2026-11-20T19:48:00.123`, the longest form in which a browser gives a time.
_TIME_LENGTH_MAX: Final = 23


def asked(request: Request) -> bytes:
    """The query of a page's address for the API: without empty fields, times in milliseconds.

    A time that cannot be read stays as it is: the API refuses it.
    """
    return b"&".join(_in_words_of_api(part) for part in request.query.split(b"&") if part.partition(b"=")[2])


def _in_words_of_api(part: bytes) -> bytes:
    name, _, value = part.partition(b"=")
    if name.decode("ascii", "replace") not in TIMES:
        return part
    moment_ms = milliseconds_of(unquote_to_bytes(value[: 3 * _TIME_LENGTH_MAX]).decode("ascii", "replace"))
    return part if moment_ms is None else b"%s=%d" % (name, moment_ms)


def milliseconds_of(text: str) -> int | None:
    """A date and a time in UTC, such as `2026-11-20T19:48`, in milliseconds since 1970; None for another text."""
    if len(text) > _TIME_LENGTH_MAX or "T" not in text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo else round(moment.replace(tzinfo=UTC).timestamp() * 1000)
