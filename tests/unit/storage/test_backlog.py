"""When no more writes are taken."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from each_row import each_row
from muniment.protocol.errors import Overloaded
from muniment.service.storage.backlog import Backlog
from muniment.service.storage.database import DatabaseLimits

LIMITS = DatabaseLimits(writes_waiting_max=3, urgent_writes_waiting_max=5)


def takes(
    backlog: Backlog, now_s: float, *, count: int = 1, oldest_s: float | None = None, urgent: bool = False
) -> bool:
    try:
        backlog.check(count, oldest_s, now_s, urgent=urgent)
    except Overloaded:
        return False
    return True


def test_so_many_writes_may_wait_and_no_more() -> None:
    backlog = Backlog(LIMITS)
    assert takes(backlog, 100, count=2, oldest_s=100)
    assert not takes(backlog, 100, count=3, oldest_s=100)


def test_more_urgent_writes_may_wait_but_memory_is_bounded() -> None:
    backlog = Backlog(LIMITS)
    assert takes(backlog, 100, count=4, oldest_s=100, urgent=True)
    assert not takes(backlog, 100, count=5, oldest_s=100, urgent=True)


def test_writes_are_refused_once_the_oldest_was_late_for_half_a_second() -> None:
    backlog = Backlog()
    assert takes(backlog, 100.20, oldest_s=100)
    assert takes(backlog, 100.30, oldest_s=100)  # late from here on
    assert takes(backlog, 100.79, oldest_s=100)
    assert not takes(backlog, 100.81, oldest_s=100)
    assert takes(backlog, 100.81, oldest_s=100, urgent=True)


def test_an_instant_without_lateness_restarts_the_half_second() -> None:
    backlog = Backlog()
    assert takes(backlog, 100.30, oldest_s=100)
    backlog.look(100.55, 100.6)  # a group was taken, and the next one had not waited long
    assert takes(backlog, 100.90, oldest_s=100.55)
    assert takes(backlog, 101.30, oldest_s=100.55)
    assert not takes(backlog, 101.45, oldest_s=100.55)
    assert takes(backlog, 200, count=0)  # nothing waits any more
    assert takes(backlog, 300.3, oldest_s=300)


@each_row(("commit_s", "patience_s"), [(0.004, 0.25), (0.1, 0.8)])
def test_a_slow_disk_has_eight_usual_commits(commit_s: float, patience_s: float) -> None:
    backlog = Backlog()
    for number in range(200):
        backlog.committed(5.0 if number < 140 else commit_s)  # those of long ago, and a few slow ones, do not count
    assert takes(backlog, 100 + patience_s - 0.01, oldest_s=100)
    assert takes(backlog, 100 + patience_s + 0.6, oldest_s=100)
    assert not takes(backlog, 100 + patience_s + 1.2, oldest_s=100)


def test_slow_commits_now_and_then_are_not_the_usual_ones() -> None:
    backlog = Backlog()
    for number in range(100):
        backlog.committed(2.0 if number % 3 == 0 else 0.01)
    takes(backlog, 100.3, oldest_s=100)
    assert not takes(backlog, 100.9, oldest_s=100)


def test_the_log_says_once_a_second_that_writes_are_refused() -> None:
    waiting = Backlog()
    with capture_logs() as lines:
        for now_s in (10.0, 10.4, 10.8, 11.2):
            with pytest.raises(Overloaded):
                waiting.check(1_000, None, now_s, urgent=False)
    assert [(line["event"], line["refused"]) for line in lines] == [("writes refused", 1), ("writes refused", 3)]
