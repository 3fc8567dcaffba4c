"""Faults between the client and the service, over sockets: what passes is waited for, and nothing is stored twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from email.utils import formatdate

import pytest
from facades_world import bundle, calls_of, hash_of, new_intent, new_proposal, signer
from faults_world import FACADES, PASSING, Site, at_first, client, faulty_site, refusing

from cpu_time import cpu_within
from middle import Answered, Asked, Behaviour, Forward, always, before
from muniment.client import NotARegistry, Retry, Unreachable, drivers
from muniment.protocol.errors import Limited, Unavailable


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with faulty_site(tmp_path_factory.mktemp("faults")) as made:
        yield made


@FACADES
@pytest.mark.parametrize("name", PASSING)
def test_a_fault_that_passes_is_not_seen_and_each_write_is_stored_once(site: Site, facade: str, name: str) -> None:
    new = new_intent()
    hash_ = hash_of(new)
    with client(site, facade) as calls:
        for operation, given in (
            ("put", (new,)), ("propose", (hash_, new_proposal())), ("log", (hash_, "info", "once")),
            ("move", (hash_, "enqueued")), ("get", (hash_,)),
        ):  # fmt: skip
            with site.middle.behaving(at_first(PASSING[name], 2)):
                calls.do(f"intents.{operation}", *given)
        with site.middle.behaving(at_first(PASSING[name], 2)):
            calls.do("account.log_in")
        found = calls.do("intents.get", hash_)
        assert (found.status, len(found.proposals), len(found.logs)) == ("enqueued", 1, 1)


@FACADES
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("asked", ["1000000", formatdate(4_000_000_000, usegmt=True)])
def test_a_pause_of_days_is_a_refusal_at_once(site: Site, facade: str, status: int, asked: str) -> None:
    begun_s, requests = time.monotonic(), len(site.middle.asked)
    with client(site, facade) as calls, site.middle.behaving(refusing(status, asked)):
        with pytest.raises(Limited if status == 429 else Unavailable) as raised:
            calls.do("intents.put", new_intent())
        assert raised.value.answer.headers["retry-after"] == asked
    assert len(site.middle.asked) == requests + 1
    assert time.monotonic() - begun_s < 60


@FACADES
@pytest.mark.parametrize("asked", ["1", "date"])
def test_the_pause_that_the_service_asks_for_is_kept(site: Site, facade: str, asked: str) -> None:
    # A date has whole seconds: two from now are more than one.
    text = asked if asked == "1" else formatdate(time.time() + 2, usegmt=True)
    begun_s = time.monotonic()
    with client(site, facade) as calls, site.middle.behaving(at_first(refusing(503, text), 1)):
        calls.do("intents.put", new_intent())
    assert time.monotonic() - begun_s >= 0.9


@FACADES
def test_a_service_that_is_gone_is_unreachable(facade: str, site: Site) -> None:
    with before(site.middle.behind) as gone:
        url = gone.url
    calls = calls_of(facade, url, operator_key="mno_key")
    with pytest.raises(Unreachable) as raised:
        calls.do("intents.put", new_intent())
    assert (raised.value.sent, url in str(raised.value)) == (False, True)
    calls.close()


@FACADES
def test_an_answer_that_comes_too_late_is_unreachable_and_the_write_may_be_stored(site: Site, facade: str) -> None:
    new, stored, release = new_intent(), threading.Event(), threading.Event()

    def slow(asked: Asked, forward: Forward) -> Answered:
        del asked
        answer = forward()
        stored.set()
        release.wait(30)
        return answer

    once = Retry(tries=1)
    with client(site, facade, timeout_s=2, retry=once) as calls:
        calls.every("triggers.list")  # now there is a connection: to connect takes none of the two seconds
        with site.middle.behaving(slow), pytest.raises(Unreachable) as raised:
            calls.do("intents.put", new)
        assert raised.value.sent
        assert stored.wait(60)
        release.set()
    with client(site, facade) as calls:
        assert calls.do("intents.get", hash_of(new)).hash == hash_of(new)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
# What a server sends at first, and then without an end; None: after a pause each time.
ENDLESS = {
    "content": (HEAD + b"\r\n", b" ", 0.05), "fields of the head": (HEAD, b"a: b\r\n", 0.05),
    "100": (b"", b"HTTP/1.1 100 x\r\n\r\n", 0), "103": (b"", b"HTTP/1.1 103 x\r\nlink: x\r\n\r\n" * 500, 0),
    "slow 103": (b"", b"HTTP/1.1 103 x\r\n\r\n", 0.05),
}  # fmt: skip


@FACADES
@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("connection", ["new", "kept alive"])
def test_an_answer_that_does_not_end_is_given_up(
    site: Site, facade: str, name: str, connection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, more, pause_s = ENDLESS[name]

    def endless(asked: Asked, forward: Forward) -> Iterator[bytes]:
        del asked, forward
        yield begin
        while True:
            time.sleep(pause_s)
            yield more

    with client(site, facade, retry=Retry(tries=1)) as calls:
        if connection == "kept alive":
            calls.every("triggers.list")
        monkeypatch.setattr(drivers, "ANSWER_S_MAX", 0.3)
        with site.middle.behaving(endless), pytest.raises(Unreachable, match="longer") as raised:
            calls.do("intents.get", "0x" + "ab" * 32)
        assert raised.value.sent
        monkeypatch.undo()
        assert calls.every("triggers.list") == []


@FACADES
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(site: Site, facade: str, status: int) -> None:
    with before(site.middle.behind) as elsewhere, client(site, facade, api_key="mnk_secret") as calls:
        lead = Answered(status, {"location": f"{elsewhere.url}/functions"}, b"")
        with site.middle.behaving(always(lead)):
            for operation, given in (("intents.put", new_intent()), ("functions.deploy", bundle())):
                with pytest.raises(NotARegistry):
                    calls.do(operation, given)
        assert elsewhere.asked == []


@FACADES
def test_of_a_foreign_link_only_the_cursor_is_used(site: Site, facade: str) -> None:
    user = signer().address
    with before(site.middle.behind) as elsewhere, client(site, facade) as calls:
        made = [calls.do("intents.put", new_intent(user=user)).hash for _ in range(3)]

        def foreign(asked: Asked, forward: Forward) -> Answered:
            del asked
            answer = forward()
            link = answer.headers.get("link", "").replace("<", f"<{elsewhere.url}/intents")
            return answer._replace(headers={**answer.headers, "link": link} if link else answer.headers)

        with site.middle.behaving(foreign):
            assert [each.hash for each in calls.every("intents.list", user=user, limit=1)] == made
        assert elsewhere.asked == []


LONG_LINKS = ["<" * 30_000, "<&cursor=a" * 6_000, "&cursor=a" * 6_000, "<" + "?cursor=a" * 6_000 + ">; rel=first"]


def linked(link: str) -> Behaviour:
    """An empty page with this field."""
    return always(Answered(200, {"content-type": "application/json", "link": link}, b"[]"))


@FACADES
@pytest.mark.parametrize(
    "link",
    [
        '<https://elsewhere.example/intents>; rel="next"', '</intents?cursor=>; rel="next"', "nonsense", *LONG_LINKS,
        f"</intents?cursor={'a' * 65}>; rel=\"next\"",
    ],
)  # fmt: skip
def test_a_link_without_a_cursor_is_of_no_registry(site: Site, facade: str, link: str) -> None:
    with client(site, facade) as calls, site.middle.behaving(linked(link)), pytest.raises(NotARegistry):
        calls.every("intents.list")


@pytest.mark.timed
@FACADES
@pytest.mark.parametrize("link", LONG_LINKS)
def test_a_long_link_is_read_in_no_time(site: Site, facade: str, link: str) -> None:
    with client(site, facade) as calls, site.middle.behaving(linked(link)), cpu_within(1), pytest.raises(NotARegistry):
        calls.every("intents.list")


@FACADES
@pytest.mark.parametrize("status", [200, 503])
def test_an_answer_that_is_too_large_is_not_read_to_its_end(site: Site, facade: str, status: int) -> None:
    requests = len(site.middle.asked)
    piece = bytes(2**20)

    def endless(asked: Asked, forward: Forward) -> Iterator[bytes]:
        del asked, forward
        yield b"HTTP/1.1 %d OK\r\n\r\n" % status
        for _ in range(2**16):
            yield piece

    with client(site, facade) as calls, site.middle.behaving(endless), pytest.raises(NotARegistry, match="more than"):
        calls.do("intents.get", "0x" + "ab" * 32)
    assert len(site.middle.asked) == requests + 1
