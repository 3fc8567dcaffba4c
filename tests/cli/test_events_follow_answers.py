"""`muniment events follow` and answers that a stranger's service may give it."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from middle import Answered, Asked, Behaviour, Forward, Middle, always, before
from muniment.cli import output
from muniment.cli.main import main
from muniment.operate import follow_events
from muniment.operate.follow_events import EventFollower, RequestFailed

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


RAW = "a\x1b]0;title\x07 \x1b[31m \u202ered \u2066x\u2069 \x9b1m\u2028\nNext: run this"
ESCAPED = "a\\u001b]0;title\\u0007 \\u001b[31m \\u202ered \\u2066x\\u2069 \\u009b1m"


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


def problem(status: int, detail: str = RAW) -> Behaviour:
    content = json.dumps({"code": "invalid-parameter", "detail": detail}, ensure_ascii=False).encode()
    return always(Answered(status, {"content-type": "application/json"}, content))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 418, 451, 501])
def test_a_refusal_is_one_line_without_what_a_terminal_would_obey(middle: Middle, status: int) -> None:
    with middle.behaving(problem(status)):
        done = CliRunner().invoke(main, ["events", "follow", "--url", middle.url, "--owner", "0x" + "1" * 40])
    assert (done.exit_code, done.stdout) == (1, "")
    assert ESCAPED in done.stderr
    assert done.stderr.count("\n") == 1
    assert all(each.isprintable() for each in done.stderr.rstrip("\n"))


def test_the_410_of_another_server_does_not_move_a_position(middle: Middle) -> None:
    pages = iter([Answered(200, NEXT, json.dumps([EVENT]).encode()), Answered(410, {}, b"<html>gone")])

    def fail(warning: str) -> None:
        raise AssertionError(warning)

    follower = EventFollower(middle.url, [], lambda _: None, fail, begins_again=True)
    with (
        middle.behaving(lambda _asked, _forward: next(pages)),
        pytest.raises(RequestFailed, match="410 an answer of another server"),
    ):
        follower.run()
    assert follower.position == "BBBB"


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_warning_is_one_line_without_what_a_terminal_would_obey(
    middle: Middle, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    _, (warning,) = followed(middle, problem(status), 1)
    output.print_note(warning)
    said = capsys.readouterr().err
    assert ESCAPED in said
    assert (said.count("\n"), said.rstrip("\n").isprintable()) == (1, True)


def test_an_event_is_a_line_without_what_a_terminal_would_obey(middle: Middle, monkeypatch: pytest.MonkeyPatch) -> None:
    event = {**EVENT, **dict.fromkeys(("type", "subject", "time"), RAW), "data": {"status": RAW}}
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for command in (["events", "follow"], ["events", "follow", "--json"]):
        pages = iter([Answered(200, NEXT, json.dumps([event]).encode()), Answered(404, {}, b"{}")])
        with middle.behaving(lambda _asked, _forward, pages=pages: next(pages)):
            done = CliRunner().invoke(main, [*command, "--url", middle.url])
        assert done.stdout.count("\n") == 1
        assert done.stdout.rstrip("\n").isprintable()


# What a lenient parser takes, and a strict one does not (RFC 8259).
LENIENT = {
    "two members": b'[{"id":"AAAA","id":"BBBB","type":"x","subject":"x","time":"x","data":{}}]',
    "NaN": b'[{"id":"AAAA","type":"x","subject":"x","time":"x","data":{"a":NaN}}]',
    "half a pair": b'[{"id":"AAAA","type":"x","subject":"\\ud800","time":"x","data":{}}]',
    "a mark of byte order": b"\xef\xbb\xbf[]", "UTF-16": "[]".encode("utf-16"), "many levels": b"[" * 10_000,
}  # fmt: skip


@pytest.mark.parametrize("name", LENIENT)
def test_only_strict_json_is_read(middle: Middle, name: str) -> None:
    events, (warning,) = followed(middle, always(Answered(200, NEXT, LENIENT[name])), 1)
    assert events == []
    assert "answers no complete JSON" in warning


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
    (warning,) = warnings
    # The standard library of Python 3.14 and later counts interim answers itself.
    assert "no complete answer within" in warning or (not pause_s and "more than 100 interim responses" in warning)
