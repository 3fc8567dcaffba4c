"""Follow the change feed of a service by long polling, for `muniment events follow`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, cast
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Meta

from muniment import durable
from muniment.operate.http_request import ask, without_login
from muniment.protocol.errors import CursorTooOld, InvalidJson
from muniment.protocol.json_text import parse_json

# The longest `wait` of the service.
_WAIT_SECONDS: Final = 30
_ANSWER_SECONDS_MAX: Final = _WAIT_SECONDS + 30
# Pauses after the first, the second, … failure in a row; the last one repeats.
_PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_RETRY_AFTER_SECONDS_MAX: Final = 300
_RETRY_DIGITS_MAX: Final = 8
_PAGE_BYTES_MAX: Final = 8 * 1024 * 1024
_POSITION: Final = re.compile("[A-Za-z0-9_-]*")
# Positions have 40 characters; those of a later release may have more.
_POSITION_LENGTH_MAX: Final = 200
# Two expressions of linear time: a single one takes minutes for a hostile header.
_NEXT_URL: Final = re.compile(r"<([^<>]*)>; *rel=\"?next")
_CURSOR: Final = re.compile(f"[?&]cursor=([A-Za-z0-9_-]{{1,{_POSITION_LENGTH_MAX}}})(?:&|\\Z)")
# Statuses after which the same request may succeed later.
_PASSING: Final = (429, 500, 502, 503, 504)

Event = Mapping[str, Any]


class RequestFailed(OSError):
    """The service refuses the request, or its answer cannot be used."""


class FeedGone(RequestFailed):
    """Events after the follower's position have been pruned: it must restart."""


class _NoAnswerYet(RequestFailed):
    """The same request may succeed later, `seconds` from now at the earliest."""

    def __init__(self, text: str, seconds: float = 0) -> None:
        super().__init__(text)
        self.seconds = seconds


class _Members(msgspec.Struct):
    """The members of an event of any type."""

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
    """Pass each event once and in order to `handle`, whose errors end `run`.

    `position` is the position of the last handled event; None: start with events from now on. It is read from the file
    `state` at the start, and stored there durably after each page or, with `stores_each`, after each event. A signal
    may raise an exception only in blocks of `waiting`.
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
        if answer.status == HTTPStatus.GONE and _code(answer) == CursorTooOld.code:
            if not self.begins_again:
                raise FeedGone(f"{_detail(answer)} (--reset starts with events from now on)")
            self.warn("the position is too old, so events were missed: starting with events from now on")
            self.position = None
            return
        if answer.status != HTTPStatus.OK:
            raise RequestFailed(f"{self.url} refuses: {answer.status} {_detail(answer)}")
        for event in _events(answer, self.url):
            self._rest(0)  # lets a signal end the loop between two events
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
        """Ask for the events after the position. Raises `_NoAnswerYet`."""
        place = [("cursor", self.position), ("wait", str(_WAIT_SECONDS))] if self.position else []
        url = f"{self.url}/events?{urlencode([*self.filters, *place])}"
        try:
            found = ask(
                url, headers={"accept": "application/json"},
                seconds_max=_ANSWER_SECONDS_MAX, body_bytes_max=_PAGE_BYTES_MAX,
            )  # fmt: skip
        except OSError as error:
            raise _NoAnswerYet(f"{self.url} does not answer: {error}") from error
        try:
            answer = _Answer(found.status, found.headers, parse_json(found.body))
        except InvalidJson:  # a page of a proxy, or an answer that was cut off
            if found.status == HTTPStatus.OK:
                raise _NoAnswerYet(f"{self.url}/events answers no complete JSON") from None
            answer = _Answer(found.status, found.headers, None)
        if answer.status in _PASSING:
            raise _NoAnswerYet(f"{self.url} answers {answer.status}: {_detail(answer)}", _retry_after(answer.headers))
        return answer

    def _store(self) -> None:
        if self.state is None or self.position is None or self.position == self._stored:
            return
        with durable.whole_file(self.state.resolve()) as file:
            file.write(f"{self.position}\n".encode("ascii"))
        self._stored = self.position


def _events(answer: _Answer, url: str) -> list[Event]:
    """The events of an answer. Raises `RequestFailed` for other JSON."""
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
    """The code of a problem document, or None."""
    return cast("dict[str, Any]", answer.content).get("code") if isinstance(answer.content, dict) else None


def _retry_after(headers: Mapping[str, str]) -> float:
    """The seconds of `Retry-After` (RFC 9110 section 10.2.3); 0 without the field, or for a date."""
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) <= _RETRY_DIGITS_MAX else 0


def _read_position(path: Path) -> str | None:
    """The position in a file; None for an empty file. Raises `ValueError` for other content."""
    text = path.read_bytes().decode("ascii", "replace").strip()
    if not _POSITION.fullmatch(text):
        raise ValueError(f"{path} does not contain a position; remove it to start with events from now on")
    return text or None
