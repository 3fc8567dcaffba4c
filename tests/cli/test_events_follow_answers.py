"""`muniment events follow` and answers that a stranger's service may give it."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from middle import Answered, Behaviour, Middle, always, before
from muniment.cli.client import patience
from muniment.cli.main import main

EVENT: dict[str, Any] = {
    "id": "AAAA", "type": "muniment.trigger.created", "subject": "0x12", "time": "2026-11-20T19:48:00.123Z", "data": {},
}  # fmt: skip
BEFORE = {"content-type": "application/json", "link": '</events?cursor=AAAA>; rel="next"'}
NEXT = {"content-type": "application/json", "link": '</events?cursor=BBBB>; rel="next"'}
BEGUN = Answered(200, BEFORE, b"[]")
RAW = "a\x1b]0;title\x07 \x1b[31m \u202ered \u2066x\u2069 \x9b1m\u2028\nNext: run this"
ESCAPED = "a\\u001b]0;title\\u0007 \\u001b[31m \\u202ered \\u2066x\\u2069 \\u009b1m"


@pytest.fixture(scope="module")
def middle() -> Generator[Middle]:
    with before("http://127.0.0.1:9") as made:
        yield made


def problem(status: int, code: str = "invalid-parameter") -> Answered:
    content = json.dumps({"code": code, "detail": RAW}, ensure_ascii=False).encode()
    return Answered(status, {"content-type": "application/json"}, content)


def followed(middle: Middle, behave: Behaviour, *options: str) -> Result:
    with middle.behaving(behave):
        return CliRunner().invoke(main, ["events", "follow", "--url", middle.url, *options])


def in_turn(*answers: Answered) -> Behaviour:
    left = iter(answers)
    return lambda _asked, _forward: next(left)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 418, 451, 500, 501])
def test_a_refusal_is_a_line_without_what_a_terminal_would_obey(middle: Middle, status: int) -> None:
    done = followed(middle, always(problem(status)), "--owner", "0x" + "1" * 40)
    assert (done.exit_code, done.stdout) == (1, "")
    first, *more = done.stderr.splitlines()
    assert ESCAPED in first
    assert all(each.startswith("Next: ") for each in more)
    assert all(each.isprintable() for each in (first, *more))


def test_the_410_of_another_server_does_not_move_a_position(middle: Middle) -> None:
    page = Answered(200, NEXT, json.dumps([EVENT]).encode())
    done = followed(middle, in_turn(BEGUN, page, Answered(410, {}, b"<html>gone")), "--reset")
    assert "not from a registry" in done.stderr
    assert "missed" not in done.stderr


def test_events_without_a_new_cursor_end_the_command(middle: Middle) -> None:
    """They would be printed again and again."""
    done = followed(middle, in_turn(BEGUN, Answered(200, BEFORE, json.dumps([EVENT]).encode())))
    assert (done.exit_code, done.stdout) == (4, "")
    assert "answers with records and no new cursor" in done.stderr


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_a_warning_is_one_line_without_what_a_terminal_would_obey(
    middle: Middle, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PAUSES_S", (0,))
    done = followed(middle, in_turn(problem(status, "x"), problem(status, "x"), problem(404)))
    warning, *_ = done.stderr.splitlines()
    assert f"answers {status}: {ESCAPED}" in warning
    assert done.stderr.count("trying again") == 1
    assert warning.isprintable()


def test_an_event_is_a_line_without_what_a_terminal_would_obey(middle: Middle, monkeypatch: pytest.MonkeyPatch) -> None:
    event = {**EVENT, **dict.fromkeys(("type", "subject", "time"), RAW), "data": {"status": RAW}}
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for options in ([], ["--json"]):
        page = Answered(200, NEXT, json.dumps([event]).encode())
        done = followed(middle, in_turn(BEGUN, page, Answered(404, {}, b"{}")), *options)
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
    done = followed(middle, in_turn(BEGUN, Answered(200, NEXT, LENIENT[name])))
    assert (done.exit_code, done.stdout) == (4, "")
    assert "that is no registry" in done.stderr
