"""Following: each record once and in order, with the change feed and without it, through every passing failure."""

from __future__ import annotations

from typing import Any

import pytest
from feeding import LOST, ME, Fed, Outcome, answer, refused

from muniment.client import Forged, NotARegistry, Page, Reply
from muniment.client.flows import following
from muniment.client.flows.following import Follower, event_follower
from muniment.client.flows.session import Session
from muniment.client.steps import Flow, Send
from muniment.protocol.errors import CursorTooOld, Integrity


def linked(rows: Any, cursor: str | None, path: str = "/triggers") -> Reply:
    return answer(rows) if cursor is None else answer(rows, link=f'<{path}?cursor={cursor}>; rel="next"')


def events(cursor: str, *ids: str) -> Reply:
    rows = [{"id": id_, "type": "t", "subject": "s", "time": "2026-11-20T19:48:00.123Z", "data": {}} for id_ in ids]
    return linked(rows, cursor, "/events")


def follower(session: Session, **members: Any) -> Follower[int]:
    """Follows a listing of numbers."""

    def read(cursor: str | None) -> Flow[Page[int]]:
        reply = yield from session.answered(Send("GET", f"/numbers?cursor={cursor}"))
        return Page(following.decode(reply, list[int]), following.cursor_of(reply))

    return Follower(session, read, None, 1.0, "number.created", **members)


def pages(fed: Fed, place: Follower[Any], outcomes: list[Outcome], number: int) -> list[list[Any]]:
    """The next pages of a follower, whose requests have these outcomes."""
    found: list[list[Any]] = []

    def several() -> Flow[None]:
        while len(found) < number:
            found.append([*(yield from place.next_page())])

    fed.run(several(), outcomes)
    return found


def targets(fed: Fed) -> list[str]:
    return [send.target for send in fed.sent]


def test_the_feed_is_begun_before_the_listing_is_read_and_reports_when_to_read_again() -> None:
    fed = Fed()
    outcomes: list[Outcome] = [
        events("E0"), linked([1, 2], "A"), linked([], "A"), events("E1"), linked([], "A"), events("E2", "1"),
        linked([3], "B"),
    ]  # fmt: skip
    assert pages(fed, follower(fed.session()), outcomes, 2) == [[1, 2], [3]]
    wait = "types=number.created"
    assert targets(fed) == [
        "/events", "/numbers?cursor=None", "/numbers?cursor=A", f"/events?cursor=E0&wait=20&{wait}",
        "/numbers?cursor=A", f"/events?cursor=E1&wait=20&{wait}", "/numbers?cursor=A",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "nothing", [refused(404, "not-found"), refused(404), answer([]), refused(400, "invalid-parameter")]
)
def test_a_service_without_a_feed_is_asked_again_and_again(nothing: Reply) -> None:
    fed = Fed()
    outcomes: list[Outcome] = [nothing, linked([1], "A"), linked([], "A"), linked([], "A"), linked([2], "B")]
    assert pages(fed, follower(fed.session()), outcomes, 2) == [[1], [2]]
    assert fed.slept == [1.0, 1.0]


def test_filters_that_the_feed_knows_are_given_to_it() -> None:
    fed = Fed()
    place = follower(fed.session(), filters={"signer": ME.address, "active": True})
    pages(fed, place, [events("E0"), linked([], None), events("E1", "1"), linked([1], "A")], 1)
    assert targets(fed)[2] == f"/events?cursor=E0&wait=20&types=number.created&signer={ME.address}"


@pytest.mark.parametrize(
    "failure", [LOST, refused(503), refused(502), refused(429, "too-many-requests", retry_after="900"), refused(408)]
)
def test_no_passing_failure_ends_following(failure: Outcome) -> None:
    fed = Fed(chance=0.5)
    times = 1 if isinstance(failure, Reply) and "retry-after" in failure.headers else 6
    outcomes: list[Outcome] = [
        *[failure] * times * 9, events("E0"), *[failure] * times * 3, linked([1], "A"), linked([], "A"),
        *[failure] * times, linked([], "A"), events("E1", "1"), *[failure] * times, linked([2], "B"),
    ]  # fmt: skip
    assert pages(fed, follower(fed.session()), outcomes, 2) == [[1], [2]]
    assert max(fed.slept) == 60.0


def test_an_empty_page_with_a_new_cursor_is_passed_at_once() -> None:
    fed = Fed()
    assert pages(
        fed, follower(fed.session()), [events("E0"), linked([], "A"), linked([], "B"), linked([1], "C")], 1
    ) == [[1]]
    assert fed.slept == []


@pytest.mark.parametrize("cursor", [None, "A"])
def test_a_page_whose_cursor_leads_nowhere_is_of_no_registry(cursor: str | None) -> None:
    fed = Fed()
    place = follower(fed.session())
    place.cursor = "A"
    with pytest.raises(NotARegistry):
        pages(fed, place, [events("E0"), linked([1], cursor)], 1)


def test_events_that_are_gone_are_no_loss_to_a_listing() -> None:
    fed = Fed()
    outcomes: list[Outcome] = [
        events("E0"), linked([], "A"), linked([], "A"), refused(410, "cursor-too-old"), events("E9"), linked([1], "B"),
    ]  # fmt: skip
    assert pages(fed, follower(fed.session()), outcomes, 1) == [[1]]


@pytest.mark.parametrize(
    ("reply", "kind"), [(refused(410, "cursor-too-old"), CursorTooOld), (refused(500, "integrity"), Integrity)]
)
def test_a_failure_that_does_not_pass_is_raised(reply: Reply, kind: type[Exception]) -> None:
    fed = Fed()
    with pytest.raises(kind):
        pages(fed, follower(fed.session()), [events("E0"), reply], 1)


def test_a_place_moves_only_with_the_page_that_is_given_out() -> None:
    fed = Fed()
    place = follower(fed.session())
    with pytest.raises(Forged):
        pages(fed, place, [events("E0"), linked(["one"], "A")], 1)
    assert place.cursor is None


@pytest.mark.parametrize("wait_s", [0, 20])
def test_a_feed_that_answers_at_once_is_not_asked_in_a_circle(wait_s: int) -> None:
    fed = Fed()
    place = follower(fed.session(wait_s=wait_s))
    pages(
        fed,
        place,
        [events("E0"), linked([], None), *[events("E0"), linked([], None)] * 5, events("E1", "1"), linked([1], "A")],
        1,
    )
    assert len(fed.slept) == 5
    assert min(fed.slept) >= 0.1
    fed = Fed()
    place = event_follower(fed.session(wait_s=wait_s), None, {})
    assert len(pages(fed, place, [events("E0"), *[events("E0")] * 5, events("E1", "1")], 1)) == 1
    assert len(fed.slept) >= 4
    assert min(fed.slept) >= 0.1


def test_events_are_followed_from_the_present_on() -> None:
    fed = Fed()
    outcomes: list[Outcome] = [events("E0"), events("E1", "1", "2"), LOST, events("E2", "3")]
    found = pages(fed, event_follower(fed.session(), None, {"types": ["a", "b"]}), outcomes, 2)
    assert [[event.id for event in page] for page in found] == [["1", "2"], ["3"]]
    assert targets(fed)[1:] == [
        f"/events?cursor={each}&wait=20&types=a,b" for each in ("E0", "E1", "E1")
    ]  # fmt: skip


def test_events_that_are_gone_are_raised_to_a_follower_of_events() -> None:
    fed = Fed()
    with pytest.raises(CursorTooOld):
        pages(fed, event_follower(fed.session(), "E0", {}), [refused(410, "cursor-too-old")], 1)
