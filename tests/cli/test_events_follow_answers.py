"""`muniment events follow` and answers that a stranger's service may give it."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from middle import Asked, Behaviour, Forward, Middle, before
from muniment.maintenance import follow_events
from muniment.maintenance.follow_events import EventFollower

EVENT: dict[str, Any] = {
    "id": "AAAA", "type": "muniment.trigger.created", "subject": "0x12", "time": "2026-11-20T19:48:00.123Z", "data": {},
}  # fmt: skip
NEXT = {"content-type": "application/json", "link": '</events?cursor=BBBB>; rel="next"'}
# What a server sends at first, and then without an end; the pause after each.
ENDLESS = {
    "100": (b"", b"HTTP/1.1 100 x\r\n\r\n", 0), "slow 100": (b"", b"HTTP/1.1 100 x\r\n\r\n", 0.05),
    "fields": (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n", 0.05),
    "content": (b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n", b" ", 0.05),
    "content without length": (b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", b" ", 0.05),
}  # fmt: skip


class Stopped(Exception):
    """The test has seen enough."""


@pytest.fixture(scope="module")
def middle() -> Generator[Middle]:
    with before("http://127.0.0.1:9") as made:
        yield made


def followed(middle: Middle, behave: Behaviour, pauses: int) -> tuple[list[Mapping[str, Any]], list[str]]:
    """The events and the warnings of a follower until it has rested so often, or failed."""
    events: list[Mapping[str, Any]] = []
    warnings: list[str] = []
    left = pauses

    @contextmanager
    def waiting() -> Generator[None]:
        nonlocal left
        left -= 1
        if left < 0:
            raise Stopped
        yield

    follower = EventFollower(middle.url, [], events.append, warnings.append, waiting=waiting)
    with middle.behaving(behave), pytest.raises(Stopped):
        follower.run()
    return events, warnings


@pytest.mark.parametrize("name", ENDLESS)
def test_an_answer_that_does_not_end_is_given_up(middle: Middle, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, more, pause_s = ENDLESS[name]
    monkeypatch.setattr(follow_events, "_ANSWER_SECONDS_MAX", 0.3)

    def endless(asked: Asked, forward: Forward) -> Iterator[bytes]:
        del asked, forward
        yield begin
        while True:
            time.sleep(pause_s)
            yield more

    events, warnings = followed(middle, endless, 1)
    assert events == []
    assert [each.partition("longer")[1] for each in warnings] == ["longer"], warnings
