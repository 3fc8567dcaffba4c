"""Which requests are sent again, when, and how often."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from feeding import LOST, UNSENT, Fed, answer, refused

from muniment.client import Unreachable
from muniment.client.retrying import retry_after_s
from muniment.client.steps import Send

GET = Send("GET", "/triggers/0x")
ONCE = Send("POST", "/users/api-key/rotate", is_repeatable=False)
OK = answer({})


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504])
def test_a_passing_status_is_tried_again(status: int) -> None:
    fed = Fed()
    assert fed.run(fed.retry.reply(GET), [refused(status), OK]) == OK


@pytest.mark.parametrize("status", [200, 204, 301, 400, 401, 403, 404, 409, 410, 413, 422, 500, 501, 505])
@pytest.mark.parametrize("send", [GET, ONCE])
def test_any_other_status_is_the_answer(status: int, send: Send) -> None:
    fed = Fed()
    assert fed.run(fed.retry.reply(send), [refused(status)]).status == status
    assert fed.slept == []


@pytest.mark.parametrize("error", [LOST, UNSENT])
def test_a_repeatable_request_survives_a_lost_connection(error: Unreachable) -> None:
    fed = Fed()
    assert fed.run(fed.retry.reply(GET), [error, error, OK]) == OK


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_request_that_is_not_repeatable_is_not_sent_again_after_an_answer_that_may_hide_its_effect(
    status: int,
) -> None:
    fed = Fed()
    assert fed.run(fed.retry.reply(ONCE), [refused(status)]).status == status


def test_a_request_that_is_not_repeatable_is_sent_again_where_it_certainly_had_no_effect() -> None:
    fed = Fed()
    assert fed.run(fed.retry.reply(ONCE), [UNSENT, refused(429, retry_after="1"), refused(408), UNSENT, OK]) == OK
    with pytest.raises(Unreachable):
        fed.run(fed.retry.reply(ONCE), [UNSENT, LOST])


def test_there_are_six_tries() -> None:
    fed = Fed(chance=1.0)
    assert fed.run(fed.retry.reply(GET), [refused(503)] * 6).status == 503
    assert fed.slept == [0.5, 1.0, 2.0, 4.0, 8.0]
    with pytest.raises(Unreachable):
        fed.run(fed.retry.reply(GET), [LOST] * 6)


@pytest.mark.parametrize(("chance", "slept"), [(0.0, 0.0), (0.25, 0.125), (0.999, 0.4995)])
def test_chance_decides_about_the_whole_of_the_pause(chance: float, slept: float) -> None:
    fed = Fed(chance=chance)
    fed.run(fed.retry.reply(GET), [LOST, OK])
    assert fed.slept == [slept]


def test_chance_is_added_to_the_pause_that_the_service_asks_for() -> None:
    fed = Fed(chance=0.5)
    fed.run(fed.retry.reply(GET), [refused(503, retry_after="7"), OK])
    assert fed.slept == [7.25]


def test_a_pause_may_be_asked_for_as_a_date() -> None:
    fed = Fed()
    fed.run(fed.retry.reply(GET), [refused(429, retry_after=formatdate(fed.now_s + 9, usegmt=True)), OK])
    assert fed.slept == [9.0]


@pytest.mark.parametrize("asked", ["61", "1000000", formatdate(1_900_000_000, usegmt=True), "9" * 400])
def test_a_long_pause_is_an_answer_and_not_slept(asked: str) -> None:
    fed = Fed()
    assert fed.run(fed.retry.reply(GET), [refused(429, retry_after=asked)]).headers["retry-after"] == asked
    assert fed.slept == []


def test_a_pause_of_a_minute_is_slept() -> None:
    fed = Fed()
    fed.run(fed.retry.reply(GET), [refused(503, retry_after="60"), OK])
    assert fed.slept == [60.0]


def test_no_try_begins_after_two_minutes() -> None:
    fed = Fed(request_s=30)
    assert fed.run(fed.retry.reply(GET), [refused(504)] * 5).status == 504
    fed = Fed()
    assert fed.run(fed.retry.reply(GET), [refused(503, retry_after="50")] * 3).status == 503
    assert sum(fed.slept) == 100


@pytest.mark.parametrize(
    "text", ["", "-1", "soon", "1.5", "٣", "²", "Mon, 99 Foo 2026", "Mon, 01 Jan 0001 00:00:00 +9999", "(" * 5000]
)
def test_an_unreadable_pause_is_ignored(text: str) -> None:
    assert retry_after_s({"retry-after": text}, 1_800_000_000) == 0


def test_a_date_in_the_past_is_no_pause() -> None:
    assert retry_after_s({"retry-after": formatdate(1_700_000_000, usegmt=True)}, 1_800_000_000) == 0
