"""Lines of the log that repeat, and what a stranger can put into a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TextIO, cast

import pytest
import structlog

from each_row import each_row
from muniment.service.running.log_lines import INTERVAL_SECONDS, KINDS_MAX, Repeats, shown_path


class Log:
    """A log with a processor for repeats, whose intervals end when the test says so."""

    def __init__(self) -> None:
        self.written: list[dict[str, Any]] = []
        self.planned: list[tuple[float, Callable[[], None]]] = []
        self.has_threads = True
        self.repeats = Repeats(self._plan)
        structlog.configure(
            processors=[self.repeats, structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
            logger_factory=structlog.PrintLoggerFactory(cast("TextIO", self)),
        )
        self.logger = structlog.get_logger()

    def _plan(self, seconds: float, call: Callable[[], None]) -> None:
        if not self.has_threads:
            raise RuntimeError("can't create new thread at interpreter shutdown")
        self.planned.append((seconds, call))

    def write(self, text: str) -> None:
        self.written += [json.loads(line) for line in text.splitlines() if line]

    def flush(self) -> None:
        pass

    def end_interval(self) -> None:
        (seconds, call), self.planned = self.planned[0], self.planned[1:]
        assert seconds == INTERVAL_SECONDS
        call()


@pytest.fixture
def log() -> Iterator[Log]:
    yield Log()
    structlog.reset_defaults()


def test_a_line_that_repeats_is_written_once_and_then_with_a_count(log: Log) -> None:
    for number in range(1000):
        log.logger.error("refused", code="database-unavailable", request_id=str(number))
    assert log.written == [{"event": "refused", "code": "database-unavailable", "request_id": "0", "level": "error"}]
    log.end_interval()
    assert log.written[1:] == [
        {"event": "refused", "code": "database-unavailable", "request_id": "999", "level": "error", "repeated": 999}
    ]
    log.end_interval()
    assert len(log.written) == 2, "nothing was left out since"
    assert log.planned == []
    log.logger.error("refused", code="database-unavailable", request_id="later")
    assert log.written[2]["request_id"] == "later"


def test_a_lasting_outage_writes_one_line_in_an_interval(log: Log) -> None:
    for _ in range(5):
        for _ in range(100):
            log.logger.warning("no prices")
        log.end_interval()
    assert [line.get("repeated") for line in log.written] == [None, 99, 100, 100, 100, 100]


def test_lines_of_different_causes_do_not_hide_each_other(log: Log) -> None:
    for code in ("a", "b", "a", "b"):
        log.logger.error("refused", code=code)
        log.logger.warning("refused", code=code)
    assert len(log.written) == 4


def test_two_nodes_of_a_chain_and_two_reasons_do_not_hide_each_other(log: Log) -> None:
    for url, reason in (("a", "timeout"), ("b", "timeout"), ("a", "http-401"), ("a", "timeout")):
        log.logger.warning("node failed", chain=1, url=url, reason=reason)
    assert len(log.written) == 3


def test_a_line_below_a_warning_is_always_written(log: Log) -> None:
    for _ in range(100):
        log.logger.info("request", path="/")
    assert len(log.written) == 100
    assert log.planned == []


def test_more_kinds_of_lines_than_are_told_apart_count_as_one(log: Log) -> None:
    for number in range(10 * KINDS_MAX):
        log.logger.error("refused", code=str(number))
    assert len(log.written) == KINDS_MAX + 1
    log.end_interval()
    assert log.written[-1]["repeated"] == 9 * KINDS_MAX - 1


def test_a_traceback_is_in_the_first_line_only(log: Log) -> None:
    for _ in range(2):
        try:
            _ = {}["absent"]
        except KeyError:
            log.logger.exception("crash")
    log.end_interval()
    assert ["exc_info" in line for line in log.written] == [True, False]


@each_row(
    ("path", "shown"),
    [
        ("/triggers", "/triggers"), ("/a%2fb", "/a%2fb"), ("/a\nb\x1b[31m\x7f é", "/a%0Ab%1B[31m%7F%20%E9"),
        ("/" + "x" * 10_000, "/" + "x" * 199 + "…"),
    ],
)  # fmt: skip
def test_a_path_is_shown_bounded_and_in_visible_ascii(path: str, shown: str) -> None:
    assert shown_path(path) == shown


def test_no_line_is_lost_when_no_thread_can_start(log: Log) -> None:
    """Python 3.12 starts no thread at the end of a process, where the lines that were left out are written."""
    for number in range(3):
        log.logger.error("refused", number=number)
    log.has_threads = False
    log.repeats.write()
    assert [line.get("repeated") for line in log.written] == [None, 2]
    for _ in range(2):
        log.logger.error("refused")
    assert len(log.written) == 4, "no interval would end, so no line is left out"
