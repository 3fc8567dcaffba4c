"""Follows the change feed of a service by polls that wait, for `muniment events follow`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, cast
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Meta

from muniment import durable
from muniment.errors import CursorTooOld, InvalidJson
from muniment.json_text import parse_json
from muniment.maintenance.doctor.answers import without_login
from muniment.maintenance.http_client import RequestFailed, ended_after

# The longest wait that the service offers.
_WAIT_SECONDS: Final = 30
# An answer comes at the latest a moment after the wait.
_ANSWER_SECONDS_MAX: Final = _WAIT_SECONDS + 30
# Pauses after the first, the second, … failure in a row; the last one repeats.
_PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_RETRY_AFTER_SECONDS_MAX: Final = 300
# Of seconds: more are no wait that anybody means.
_RETRY_DIGITS_MAX: Final = 8
_PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
_POSITION: Final = re.compile("[A-Za-z0-9_-]*")
# Positions have 40 characters; those of a later release may have more.
_POSITION_LENGTH_MAX: Final = 200
# Two expressions, each of linear time: one for both takes minutes for a header that a hostile service makes.
_NEXT_URL: Final = re.compile(r"<([^<>]*)>; *rel=\"?next")
_CURSOR: Final = re.compile(f"[?&]cursor=([A-Za-z0-9_-]{{1,{_POSITION_LENGTH_MAX}}})(?:&|\\Z)")
_OK: Final = 200
_TOO_OLD: Final = 410
# Statuses of a service that may answer 200 to the same request later.
_PASSING: Final = (429, 500, 502, 503, 504)

Event = Mapping[str, Any]


class FeedGone(RequestFailed):
    """Events behind the position of the follower are gone: it has to begin again."""


class _NoAnswerYet(RequestFailed):
    """The same request may succeed later, `seconds` from now at the earliest."""

    def __init__(self, text: str, seconds: float = 0) -> None:
        super().__init__(text)
        self.seconds = seconds


class _Members(msgspec.Struct):
    """What every event has, also one of a type that this release does not know."""

    id: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]+\Z", max_length=_POSITION_LENGTH_MAX)]
    type: str
    subject: str
    time: str
    data: dict[str, Any]


class _Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    content: Any


@dataclass(slots=True)
class EventFollower:
    """One follower. `handle` gets each event once and in order; an error that it raises ends `run`.

    `position` is that of the last event that was handled; None: begin with what happens from now on. It is read from
    the file `state` at the start and written there, durably, after each page or, with `stores_each`, each event.
    `waiting` gives a block that a signal may end by an exception; outside of such blocks none may come.
    """

    url: str
    filters: Sequence[tuple[str, str]]
    handle: Callable[[Event], None]
    warn: Callable[[str], None]
    state: Path | None = None
    stores_each: bool = False
    begins_again: bool = False
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    position: str | None = field(default=None, init=False)
    _stored: str | None = field(default=None, init=False)

    def run(self) -> None:
        """Follow until an error, or until `waiting` raises.

        Raises `FeedGone`, `RequestFailed` for a refused request, `OSError` for the file, `ValueError` for its content
        or for the URL, and the errors of `handle`.
        """
        parts = urlsplit(self.url)
        self.url = without_login(self.url.rstrip("/"))
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"{self.url} is no URL of a service: it has the form http://host or https://host")
        if self.state is not None and self.state.exists():
            self.position = self._stored = _read_position(self.state)
        try:
            self._follow()
        finally:
            self._store()

    def _follow(self) -> None:
        failures = 0
        while True:
            try:
                with self.waiting():
                    answer = self._ask()
            except _NoAnswerYet as error:
                if not failures:
                    self.warn(f"{error}; trying again")
                pause = _PAUSES[min(failures, len(_PAUSES) - 1)]
                self._rest(min(max(error.seconds, pause), _RETRY_AFTER_SECONDS_MAX))
                failures += 1
                continue
            failures = 0
            self._take(answer)

    def _rest(self, seconds: float) -> None:
        with self.waiting():
            time.sleep(seconds)

    def _take(self, answer: _Answer) -> None:
        if answer.status == _TOO_OLD and _code(answer) == CursorTooOld.code:
            if not self.begins_again:
                raise FeedGone(f"{_detail(answer)} (--reset begins with what happens from now on)")
            self.warn("events were missed, because their position is too old: beginning again from now")
            self.position = None
            return
        if answer.status != _OK:
            raise RequestFailed(f"{self.url} refuses: {answer.status} {_detail(answer)}")
        for event in _events(answer, self.url):
            self._rest(0)  # a signal ends this between two events
            self.handle(event)
            self.position = event["id"]
            if self.stores_each:
                self._store()
        url = _NEXT_URL.search(answer.headers.get("link", ""))
        cursor = _CURSOR.search(url[1]) if url else None
        if cursor is None:
            raise RequestFailed(f"{self.url} gives no next page: is it a service with a change feed?")
        self.position = cursor[1]
        self._store()

    def _ask(self) -> _Answer:
        """Ask for the events behind the position. Raises `_NoAnswerYet`."""
        place = [("cursor", self.position), ("wait", str(_WAIT_SECONDS))] if self.position else []
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_ANSWER_SECONDS_MAX)
        target = f"{parts.path}/events?{urlencode([*self.filters, *place])}"
        try:
            with closing(connection), ended_after(_ANSWER_SECONDS_MAX, connection):
                connection.request("GET", target, headers={"accept": "application/json"})
                response = connection.getresponse()
                data = response.read(_PAGE_BYTES_MAX)
        except (OSError, HTTPException) as error:
            raise _NoAnswerYet(f"{self.url} does not answer: {error}") from error
        headers = {name.lower(): value for name, value in response.getheaders()}
        try:
            answer = _Answer(response.status, headers, parse_json(data))
        except InvalidJson:  # a page of a proxy, or the beginning of an answer that was cut off
            if response.status == _OK:
                raise _NoAnswerYet(f"{self.url}/events answers no whole JSON") from None
            answer = _Answer(response.status, headers, None)
        if answer.status in _PASSING:
            raise _NoAnswerYet(f"{self.url} answers {answer.status}: {_detail(answer)}", _retry_after(headers))
        return answer

    def _store(self) -> None:
        if self.state is None or self.position is None or self.position == self._stored:
            return
        with durable.whole_file(self.state.resolve()) as file:
            file.write(f"{self.position}\n".encode("ascii"))
        self._stored = self.position


def _events(answer: _Answer, url: str) -> list[Event]:
    """The events of an answer. Raises `RequestFailed` for JSON that has none."""
    try:
        msgspec.convert(answer.content, list[_Members])
        return cast("list[Event]", answer.content)
    except msgspec.ValidationError as error:
        raise RequestFailed(f"{url}/events answers no events: {error}") from error


def _detail(answer: _Answer) -> str:
    if not isinstance(answer.content, dict):
        return "an answer of another server"
    return " ".join(str(cast("dict[str, Any]", answer.content).get("detail", "")).split())


def _code(answer: _Answer) -> object:
    """The code of a problem document; None for a page of another server."""
    return cast("dict[str, Any]", answer.content).get("code") if isinstance(answer.content, dict) else None


def _retry_after(headers: Mapping[str, str]) -> float:
    """The seconds of `Retry-After` (RFC 9110 section 10.2.3); 0 for none, or for a date."""
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) <= _RETRY_DIGITS_MAX else 0


def _read_position(path: Path) -> str | None:
    """The position in a file; None when the file is empty. Raises `ValueError` for another content."""
    text = path.read_bytes().decode("ascii", "replace").strip()
    if not _POSITION.fullmatch(text):
        raise ValueError(f"{path} is no file of a position; without the file, events from now on are shown")
    return text or None
