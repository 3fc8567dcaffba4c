"""Schedules in words, and the times of a form."""

from __future__ import annotations

from each_row import each_row
from muniment.service.console.reading import milliseconds_of
from muniment.service.console.words import schedule_in_words


@each_row(
    ("schedule", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("*/1 * * * *", "every minute"),
        ("0 * * * *", "every hour"),
        ("5 * * * *", "every hour at minute 5"),
        ("0 */6 * * *", "every 6 hours"),
        ("30 */12 * * *", "every 12 hours at minute 30"),
        ("30 9 * * *", "every day at 09:30"),
        ("0 9 * * 1", "on Mondays at 09:00"),
        ("0 9 * * 7", "on Sundays at 09:00"),
        ("0 9 * * 1-5", "on Mondays to Fridays at 09:00"),
        ("30 9 1 * *", "on day 1 of each month at 09:30"),
    ],
)
def test_common_schedules_have_words(schedule: str, words: str) -> None:
    assert schedule_in_words(schedule) == words


@each_row(
    "schedule",
    [
        "*/7 * * * *",  # the runs before and after the full hour are four minutes apart
        "0 */5 * * *", "* 9 * * *", "*/5 9 * * *", "5/15 * * * *", "0,30 * * * *", "0 9 31 * *", "0 9 L * *",
        "0 9 1 * 1", "0 9 * 1 *", "0 9 * * 5L", "0 9 * * MON", "* */6 * * *",
    ],
)  # fmt: skip
def test_schedules_of_which_words_would_say_too_little_have_none(schedule: str) -> None:
    assert schedule_in_words(schedule) == ""


@each_row(
    ("text", "moment_ms"),
    [
        ("1970-01-01T00:01", 60_000), ("1970-01-01T00:00:01.005", 1_005), ("2026-11-20T19:48:00", 1_795_204_080_000),
        ("2026-11-20", None), ("1795204080000", None), ("2026-11-20T19:48+01:00", None), ("T" * 23, None), ("", None),
        ("2026-11-20T19:48:00.123456", None),
    ],
)  # fmt: skip
def test_a_time_of_a_form_is_in_utc(text: str, moment_ms: int | None) -> None:
    assert milliseconds_of(text) == moment_ms
