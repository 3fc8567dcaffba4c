"""The runs of a cron trigger: agreement with the parser of clients, and refusals."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from counted_calls import calls_within, counted_calls
from each_row import each_row
from muniment.protocol.errors import InvalidConfig
from muniment.protocol.triggers.schedule import (
    CRON_LENGTH_MAX,
    check_cron,
    check_delta,
    count_runs,
    last_run,
    last_runs,
    next_runs,
)
from muniment.protocol.wire import TIMESTAMP_MS_MAX

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "vectors/cron/cron-parser.json").read_text())
DAY_MS = 86_400_000
NOVEMBER_2026 = 1_795_204_080_123  # 2026-11-20T19:48:00.123Z

# What cron-parser takes and we refuse, all of it on purpose.
LOOSER: dict[str, set[str]] = {
    "not five fields": {"", "*", "* *", "* * * *", "* * * * * *", "0 0 0 * * *", "*/10 * * * * *"},
    "named schedules": {"@daily", "@hourly", "@weekly", "@yearly"},
    "the nth weekday": {"0 0 * * 5#3", "0 0 * * MON#1"},
    "hashed values, which differ from run to run": {"H * * * *", "H/5 * * * *", "H(0-10) * * * *"},
    "fields parted by other than space and tab": {"0 0 * * *\n", "0\n0 * * *", "0\u00a00 * * *"},
    "a name and digits run together, read as 11": {"0 0 1 JAN1 *"},
    "one weekday under two numbers": {"0 0 * * 0L,7L"},
}


def accepted(text: str) -> bool:
    try:
        check_cron(text)
    except InvalidConfig:
        return False
    return True


@each_row("case", VECTORS["cases"], ids=lambda case: repr(case["expression"]))
def test_runs_when_cron_parser_says_so(case: dict[str, Any]) -> None:
    text = case["expression"]
    if "refused" in case or text in set().union(*LOOSER.values()):
        assert not accepted(text)
    else:
        assert [next_runs(text, start, 5) for start in VECTORS["starts"]] == case["runs"]


def test_expressions_refused_beyond_cron_parser_are_listed_above() -> None:
    taken = {case["expression"] for case in VECTORS["cases"] if "runs" in case}
    assert {text for text in taken if not accepted(text)} == set().union(*LOOSER.values())


def test_either_day_field_makes_a_day_match_star_steps_included() -> None:
    saturday = NOVEMBER_2026 - NOVEMBER_2026 % DAY_MS + DAY_MS
    # Odd days of November 2026 from the 21st on, and Mondays (the 23rd, the 30th).
    assert next_runs("0 0 */2 * 1", NOVEMBER_2026, 6) == [saturday + n * DAY_MS for n in (0, 2, 4, 6, 8, 9)]


@each_row("text", ["0 0 31 2 *", "0 0 30 2 ?", "0 0 31 4,6,9,11 *", "0 0 30-31 2 *"])
def test_a_schedule_that_never_runs_is_refused_quickly(text: str) -> None:
    with calls_within(10_000), pytest.raises(InvalidConfig, match="never runs"):
        check_cron(text)


def test_a_leap_day_runs_within_eight_years_and_not_only_within_four() -> None:
    leap_2096 = 3_981_312_000_000  # 2096-02-29T00:00:00Z
    [run] = next_runs("0 0 29 2 *", leap_2096, 1)
    assert (run - leap_2096) // DAY_MS == 8 * 365 + 1


def test_a_run_is_strictly_after_and_not_after_the_end() -> None:
    midnight = NOVEMBER_2026 - NOVEMBER_2026 % DAY_MS
    days = [midnight + n * DAY_MS for n in range(1, 4)]
    assert next_runs("0 0 * * *", midnight, 3) == days
    assert next_runs("0 0 * * *", midnight - 1, 1) == [midnight]
    assert next_runs("0 0 * * *", midnight, 9, days[2]) == days
    assert next_runs("0 0 * * *", midnight, 9, days[2] - 1) == days[:2]
    assert next_runs("0 0 * * *", midnight, 9, midnight) == []
    assert next_runs("0 0 * * *", midnight, 0) == []


def test_the_end_of_the_calendar_ends_the_runs() -> None:
    year_9999 = 253_402_300_799_000
    assert next_runs("* * * * *", year_9999 - 150_000, 5) == [year_9999 - 119_000, year_9999 - 59_000]
    assert next_runs("0 0 29 2 *", year_9999, 5) == []
    assert next_runs("* * * * *", 8_640_000_000_000_000, 5) == []


def test_the_length_is_bounded() -> None:
    assert accepted("0 0 * * *" + " " * (CRON_LENGTH_MAX - 9))
    assert not accepted("0 0 * * *" + " " * (CRON_LENGTH_MAX - 8))
    with pytest.raises(InvalidConfig, match="at most 100 characters"):
        check_cron("*," * 5000)


@each_row(
    ("text", "why"),
    [
        ("* * * * * *", "five fields"),
        ("61 * * * *", "'61' as minute, which is not from 0 to 59"),
        ("0 0 * * 5#3", "'5#3' as weekday"),
        ("30-10 * * * *", "ends before it begins"),
        ("*/0 * * * *", "step of 0"),
        ("0 0 * * 0,SUN", "a weekday twice in '0,SUN'"),
        ("0 0 1 FOO *", "'FOO' as month"),
    ],
)
def test_a_refusal_names_the_fault(text: str, why: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        check_cron(text)
    assert why in refused.value.detail


cron_like = st.lists(
    st.lists(
        st.from_regex(
            r"(\*|\?|[0-9]{1,2}|[0-9]{1,2}-[0-9]{1,2}|MON|jan|L|5L|[A-Z]{1,4})(/[0-9]{1,3})?", fullmatch=True
        ),
        min_size=1,
        max_size=3,
    ).map(",".join),
    min_size=4,
    max_size=6,
).map(" ".join)


@settings(deadline=None)
@given(cron_like | st.text() | st.text(alphabet="0123456789*?/,-L# \tMONJAN", max_size=30))
def test_any_text_is_refused_or_runs_within_eight_years(text: str) -> None:
    try:
        check_cron(text)
    except InvalidConfig as refusal:
        refusal.detail.encode()
        with pytest.raises(InvalidConfig):
            next_runs(text, NOVEMBER_2026, 1)
    else:
        [run] = next_runs(text, NOVEMBER_2026, 1)
        assert NOVEMBER_2026 < run <= NOVEMBER_2026 + (8 * 365 + 2) * DAY_MS


SCHEDULES = [
    case["expression"] for case in VECTORS["cases"] if "runs" in case and accepted(case["expression"])
]  # fmt: skip


def field(low: int, high: int, *more: str) -> st.SearchStrategy[str]:
    numbers, steps = st.integers(low, high), st.integers(1, 70)
    ranges = st.tuples(numbers, numbers).map(lambda pair: f"{min(pair)}-{max(pair)}")
    items = st.sampled_from(["*", "*/1", *more]) | numbers.map(str) | ranges
    items |= st.tuples(items.filter(lambda item: "L" not in item), steps).map(
        lambda pair: f"{pair[0].partition('/')[0]}/{pair[1]}"
    )
    return items | st.lists(items, min_size=2, max_size=4).map(",".join)


schedules = (
    st.tuples(
        field(0, 59), field(0, 23), field(1, 31, "L", "?"), field(1, 12, "JAN-DEC"), field(0, 7, "5L", "MON", "?")
    )
    .map(" ".join)
    .filter(accepted)
)


@settings(deadline=None)
@example("*/1 * */1 */1 *", NOVEMBER_2026, 600_000)  # the days alone have more than 100 characters
@given(
    st.sampled_from(SCHEDULES) | schedules,
    st.integers(0, 4_102_444_800_000),
    st.integers(0, 40 * 86_400_000) | st.integers(0, 600_000),
)
def test_runs_looking_back_are_the_runs_looking_forward(text: str, start_ms: int, length_ms: int) -> None:
    forward = next_runs(text, start_ms, 12, start_ms + length_ms)
    if len(forward) < 12:
        assert count_runs(text, start_ms, start_ms + length_ms) == len(forward)
        newest = last_run(text, start_ms + length_ms)
        assert newest == forward[-1] if forward else newest is None or newest <= start_ms
    assert len(forward) == 12 or last_runs(text, start_ms + length_ms, 12, start_ms) == forward
    for index, run in enumerate(forward):
        assert last_run(text, run) == run
        assert last_runs(text, run, 3, start_ms) == forward[max(0, index - 2) : index + 1]
        assert count_runs(text, start_ms, run) == index + 1
        assert last_run(text, run - 1) == (forward[index - 1] if index else last_run(text, start_ms))


def test_the_runs_of_years_are_counted_by_days() -> None:
    year_ms = 365 * DAY_MS
    assert count_runs("* * * * *", 0, year_ms) == 365 * 1_440
    with counted_calls() as calls:
        count_runs("* * * * *", 0, year_ms)
    assert calls.count < 365 * 100
    assert count_runs("* * * * *", year_ms, year_ms) == count_runs("* * * * *", year_ms, 0) == 0
    assert last_run("0 0 1 1 *", DAY_MS) == 0
    assert last_run("0 0 2 1 *", DAY_MS - 1) is None
    assert last_run("* * * * *", 253_402_300_799_999) is None  # the last millisecond of the year 9999
    assert last_run("* * * * *", TIMESTAMP_MS_MAX) is None


@each_row(
    ("text", "seconds"),
    [
        *(("1s", 1), ("90s", 90), ("15m", 900), ("1h", 3600), ("1d", 86_400), ("2w", 1_209_600)),
        *(("52w", 31_449_600), ("364d", 31_449_600), ("31449600s", 31_449_600)),
    ],
)
def test_a_delta_is_so_many_seconds(text: str, seconds: int) -> None:
    assert check_delta(text) == seconds


@each_row(
    "text",
    [
        *("", "0s", "-1h", "+1h", "1", "h", "1H", "1M", "01h", "1 h", " 1h", "1h ", "1h\n", "1.5h", "1h30m", "1:30"),
        *("٣h", "1y", "53w", "365d", "31449601s", "99999999999999d", "9" * 10_000 + "s"),
    ],
)
def test_another_delta_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        check_delta(text)


@settings(deadline=None)
@given(st.text() | st.from_regex(r"[0-9]{1,30}[a-z]", fullmatch=True))
def test_any_delta_is_refused_or_bounded(text: str) -> None:
    with contextlib.suppress(InvalidConfig):
        assert 1 <= check_delta(text) <= 31_449_600
