"""Requests to a server that was too slow: one at a time tries it, the others are refused soon."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from muniment.protocol.errors import ContentNotFound, StorageUnavailable
from muniment.service.blocks import s3
from muniment.service.blocks.s3 import Outage


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "SLOW_SECONDS", 0.05)


@pytest.fixture
def hangs() -> Iterator[threading.Event]:
    """Set when the server works again."""
    works = threading.Event()
    yield works
    works.set()


def fail(of: Outage, works: threading.Event | None = None, *, always: bool = False) -> None:
    """A request that the server leaves without an answer."""
    with of.trying(always=always):
        if works is None:
            time.sleep(0.06)
        elif works.wait(120):
            return
        raise StorageUnavailable("slow")


def test_during_an_outage_one_request_tries_and_the_others_are_refused_soon(hangs: threading.Event) -> None:
    of = Outage()
    with pytest.raises(StorageUnavailable, match="slow"):
        fail(of)
    with ThreadPoolExecutor(20) as pool:
        trial = pool.submit(fail, of, hangs)
        began = time.monotonic()
        while not of._trial.locked():
            assert time.monotonic() - began < 60
            time.sleep(0.001)
        others = [pool.submit(fail, of) for _ in range(19)]
        reasons = {str(other.exception()) for other in others}
        assert time.monotonic() - began < 60
        assert reasons == {"the block store does not answer: the S3 server was too slow a moment ago"}
        hangs.set()
        trial.result()
    with of.trying():
        pass


def test_requests_that_wait_for_a_trial_go_on_when_it_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "_TRIAL_SECONDS", 60)
    of = Outage()
    with pytest.raises(StorageUnavailable):
        fail(of)

    def succeed() -> int:
        with of.trying():
            time.sleep(0.02)
        return 1

    with ThreadPoolExecutor(16) as pool:
        ended = sum(each.result() for each in [pool.submit(succeed) for _ in range(16)])
    assert ended == 16


def test_a_quick_failure_and_another_answer_are_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "SLOW_SECONDS", 60)  # whatever else the machine does meanwhile
    of = Outage()
    for error in (ContentNotFound("absent"), StorageUnavailable("at once")):
        with pytest.raises(type(error)), of.trying():
            raise error
    with ThreadPoolExecutor(2) as pool:
        works = threading.Event()
        first = pool.submit(fail, of, works)
        time.sleep(0.05)
        with of.trying():  # the first request is alone
            works.set()
        first.result()


def test_a_check_tries_the_server_whatever_others_do() -> None:
    of = Outage()
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match="slow"):
            fail(of, always=True)
    with of.trying(always=True):
        pass
    with ThreadPoolExecutor(2) as pool:
        assert [pool.submit(fail, of, each).exception() for each in (_set(), _set())] == [None, None]


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
