"""Schedules, times and fee limits in words."""

from __future__ import annotations

from each_row import each_row
from muniment.protocol.triggers.words import delta_in_words, fee_in_words, schedule_in_words, time_in_words


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


@each_row(
    ("delta", "words"),
    [("1s", "1 second"), ("10m", "10 minutes"), ("1h", "1 hour"), ("11d", "11 days"), ("52w", "52 weeks")],
)
def test_a_delta_has_words(delta: str, words: str) -> None:
    assert delta_in_words(delta) == words


@each_row(
    ("timestamp_ms", "words"),
    [
        (0, "1 January 1970, 00:00 UTC"),
        (1_796_116_200_000, "1 December 2026, 09:10 UTC"),
        (1_796_116_215_000, "1 December 2026, 09:10:15 UTC"),
        (1_796_116_200_001, "1 December 2026, 09:10:00.001 UTC"),
        (253_402_300_799_999, "31 December 9999, 23:59:59.999 UTC"),
        (253_402_300_800_000, "253402300800000 ms after 1970"),
    ],
)
def test_a_time_has_words_as_exact_as_it_is_signed(timestamp_ms: int, words: str) -> None:
    assert time_in_words(timestamp_ms) == words
