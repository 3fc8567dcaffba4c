"""Schedules in words."""

from __future__ import annotations

from each_row import each_row
from muniment.protocol.triggers.words import schedule_in_words


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
