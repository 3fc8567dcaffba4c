"""Schedules and fee limits in words."""

from __future__ import annotations

from each_row import each_row
from muniment.protocol.triggers.words import fee_in_words, schedule_in_words


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
    ("limit", "words"),
    [
        ("1", "0.000000000000000001 US dollars (1)"),
        ("50000000000000000", "0.05 US dollars (50000000000000000)"),
        ("1000000000000000000", "1 US dollar (1000000000000000000)"),
        ("12500000000000000000", "12.5 US dollars (12500000000000000000)"),
        (str(10 * 10**18), f"10 US dollars ({10 * 10**18})"),
        (str(2**256 - 1), f"{(2**256 - 1) // 10**18}.{(2**256 - 1) % 10**18:018d} US dollars ({2**256 - 1})"),
    ],
)
def test_a_fee_limit_is_exact_in_dollars(limit: str, words: str) -> None:
    assert fee_in_words(limit) == words
